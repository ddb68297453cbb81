// The standard streams, descriptors 0, 1 and 2.
#pragma once

namespace dorajit::cli {

// Occupies those that are closed: otherwise a file that is opened later gets the number, and output
// is written into it. Writing to a closed standard output still fails. Call before any file is
// opened.
void reserve_standard_streams();

}  // namespace dorajit::cli
