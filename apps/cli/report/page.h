// The report as one self-contained page.
#pragma once

#include <span>
#include <string>

#include "apps/cli/report/findings.h"

namespace dorajit::cli::report {

struct PageFacts {
  std::string origin;  // names what was read
  std::string remark;  // shown where nothing was found
  std::int64_t now_unix_s = 0;
};

// HTML with its styles and scripts. All of findings and facts is shown as text, never as markup.
std::string page_html(std::span<const DeviceFindings> devices, const PageFacts& facts);

}  // namespace dorajit::cli::report
