// What happens when the program is told to end by a signal.
#pragma once

namespace dorajit::cli {

// From now on SIGINT, SIGTERM and SIGHUP delete what is being written and is not whole yet, and
// then end the process as they would have. A signal that is ignored stays so. Call before there are
// other threads.
void clean_up_when_interrupted();

}  // namespace dorajit::cli
