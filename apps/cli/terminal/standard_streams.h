// The descriptors 0, 1 and 2.
#pragma once

namespace dorajit::cli {

// Takes those that are closed, so that no file gets their numbers: what is printed would be written
// into it. Writing to a standard output that was closed still fails. Call before anything is
// opened.
void reserve_standard_streams();

}  // namespace dorajit::cli
