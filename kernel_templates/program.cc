#include "kernel_templates/program.h"

#include "kernel_templates/embedded_sources.h"
#include "kernel_templates/template.h"

namespace dorajit::kernels {

Program program_of(const Variant& variant, const Config& config, DeviceKind kind) {
  if (const auto own = template_of(variant).program; own != nullptr) return own(variant, config);
  Program program{
      .source = {.name = "dorajit_kernel.cu", .text = instantiation(variant, config, kind)},
      .headers = {},
      .adapts_to_spills = true};
  for (const EmbeddedFile* file : include_closure(source_roots(variant, kind))) {
    program.headers.push_back({std::string(file->name), std::string(file->text)});
  }
  return program;
}

}  // namespace dorajit::kernels
