// The report as one page that needs nothing else.
#pragma once

#include <span>
#include <string>

#include "apps/cli/report/findings.h"

namespace dorajit::cli::report {

struct PageFacts {
  std::string origin;  // what was read, in words
  std::string remark;  // said where nothing was found
  std::int64_t now_unix_s = 0;
};

// HTML with its styles and scripts. What stands in findings and facts is shown as text, whatever
// it is.
std::string page_html(std::span<const DeviceFindings> devices, const PageFacts& facts);

}  // namespace dorajit::cli::report
