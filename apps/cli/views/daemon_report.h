// The daemon's status as text.
#pragma once

#include <string>

#include "apps/cli/terminal/output.h"

namespace dorajit::cli {

// `status` is the document that the daemon sends (docs/daemon_protocol.md). Members that are
// missing or of another type are left out.
std::string daemon_text(const Json& status);

}  // namespace dorajit::cli
