// Winners against the default config, as a table.
#pragma once

#include "apps/cli/report/findings.h"
#include "apps/cli/report/html.h"

namespace dorajit::cli::report {

Html winner_table(const DeviceFindings& device);

}  // namespace dorajit::cli::report
