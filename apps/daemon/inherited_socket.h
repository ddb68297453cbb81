// Socket activation: a listening socket that systemd made and hands over.
#pragma once

namespace dorajit::daemon {

// Its descriptor, or -1 where none is handed over. Child processes do not inherit it.
int inherited_socket();

}  // namespace dorajit::daemon
