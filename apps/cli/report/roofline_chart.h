// A chart of the bandwidth of winners over the bytes that they move.
#pragma once

#include "apps/cli/report/findings.h"
#include "apps/cli/report/html.h"

namespace dorajit::cli::report {

// Empty where no problem has a roofline.
Html roofline_chart(const DeviceFindings& device);

}  // namespace dorajit::cli::report
