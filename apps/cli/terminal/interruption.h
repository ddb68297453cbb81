// Cleaning up when a signal ends the program.
#pragma once

namespace dorajit::cli {

// From now on SIGINT, SIGTERM and SIGHUP first delete unfinished files, and then end the process as
// they would have. An ignored signal stays ignored. Call before there are other threads.
void clean_up_when_interrupted();

}  // namespace dorajit::cli
