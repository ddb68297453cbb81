// The templates, styles and scripts of the page, as the build embedded them.
#pragma once

#include <string_view>

namespace dorajit::cli::report {

struct EmbeddedFile {
  std::string_view name;
  std::string_view text;
  std::string_view sha256;
};

extern const EmbeddedFile kEmbeddedFiles[];
extern const int kNumEmbeddedFiles;

// The text of a file of this folder; empty for an unknown name.
std::string_view embedded_file(std::string_view name);

}  // namespace dorajit::cli::report
