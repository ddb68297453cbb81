// The beginning of log lines, which depends on where standard error goes.
#pragma once

namespace dorajit::daemon {

// Log lines begin with their priority as "<N>" in systemd's journal, as usual on a terminal, and
// with the time in UTC elsewhere. Call again when standard error has become another file.
void choose_log_format();

}  // namespace dorajit::daemon
