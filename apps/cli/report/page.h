// The page of reports, as the build embedded it.
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

}  // namespace dorajit::cli::report
