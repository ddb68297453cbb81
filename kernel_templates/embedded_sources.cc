#include "kernel_templates/embedded_sources.h"

#include <algorithm>

namespace dorajit::kernels {
namespace {

void visit(const EmbeddedFile* file, std::vector<const EmbeddedFile*>& closure) {
  if (file == nullptr || std::ranges::find(closure, file) != closure.end()) return;
  closure.push_back(file);
  constexpr std::string_view kDirective = "\n#include \"";
  const std::string_view text = file->text;
  for (std::size_t at = text.find(kDirective); at != std::string_view::npos;
       at = text.find(kDirective, at + 1)) {
    const std::size_t begin = at + kDirective.size();
    visit(find_embedded(text.substr(begin, text.find('"', begin) - begin)), closure);
  }
}

}  // namespace

const EmbeddedFile* find_embedded(std::string_view name) {
  for (int i = 0; i < kNumEmbeddedFiles; ++i) {
    if (kEmbeddedFiles[i].name == name) return &kEmbeddedFiles[i];
  }
  return nullptr;
}

std::vector<const EmbeddedFile*> include_closure(const std::vector<std::string_view>& roots) {
  std::vector<const EmbeddedFile*> closure;
  for (const std::string_view root : roots) visit(find_embedded(root), closure);
  std::ranges::sort(closure, {}, &EmbeddedFile::name);
  return closure;
}

}  // namespace dorajit::kernels
