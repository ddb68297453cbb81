#include "apps/cli/report/embedded_files.h"

#include <algorithm>
#include <cstddef>
#include <span>

namespace dorajit::cli::report {

std::string_view embedded_file(std::string_view name) {
  const std::span files(kEmbeddedFiles, static_cast<std::size_t>(kNumEmbeddedFiles));
  const auto found = std::ranges::find(files, name, &EmbeddedFile::name);
  return found == files.end() ? std::string_view() : found->text;
}

}  // namespace dorajit::cli::report
