// Winners against the default config, as a table.
#pragma once

#include "bindings/cli/report/findings.h"
#include "bindings/cli/report/html.h"

namespace dorajit::cli::report {

Html winner_table(const DeviceFindings& device);

}  // namespace dorajit::cli::report
