// Findings as JSON.
#pragma once

#include "apps/cli/report/findings.h"
#include "apps/cli/terminal/output.h"

namespace dorajit::cli::report {

Json to_json(const DeviceFindings& device);

}  // namespace dorajit::cli::report
