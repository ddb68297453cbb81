// Findings as JSON.
#pragma once

#include "bindings/cli/output.h"
#include "bindings/cli/report/findings.h"

namespace dorajit::cli::report {

Json to_json(const DeviceFindings& device);

}  // namespace dorajit::cli::report
