// The journal of systemd, as something to write lines to.
#pragma once

#include <string_view>

#include "runtime/base/file_descriptor.h"

namespace dorajit::daemon {

// A stream whose lines appear in the journal under that name, with the priority that "<N>" at their
// beginning says. Empty where there is no journal.
FileDescriptor open_journal(std::string_view identifier);

// Whether standard error is such a stream, as in a service of systemd.
bool is_stderr_the_journal();

// Messages of the log begin with their priority from now on.
void mark_priorities();

}  // namespace dorajit::daemon
