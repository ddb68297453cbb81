// Bandwidth that winners reach, over the bytes they move, as a picture.
#pragma once

#include "apps/cli/report/findings.h"
#include "apps/cli/report/html.h"

namespace dorajit::cli::report {

// Empty where no problem has a roofline.
Html roofline_chart(const DeviceFindings& device);

}  // namespace dorajit::cli::report
