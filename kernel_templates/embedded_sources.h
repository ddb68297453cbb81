// The template sources, embedded by the build so that no file is needed at run time.
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace dorajit::kernels {

struct EmbeddedFile {
  std::string_view name;  // relative to kernel_templates/, as in #include directives
  std::string_view text;
  std::string_view sha256;  // of the text without comments and blank lines, computed by the build
};

extern const EmbeddedFile kEmbeddedFiles[];
extern const int kNumEmbeddedFiles;

// The file of this name, or null.
const EmbeddedFile* find_embedded(std::string_view name);

// `roots` and all embedded files that they include, without duplicates, sorted by name. A
// compilation reads these files, and an artifact's identity covers them.
std::vector<const EmbeddedFile*> include_closure(const std::vector<std::string_view>& roots);

}  // namespace dorajit::kernels
