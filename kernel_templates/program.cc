#include "kernel_templates/program.h"

#include <cctype>
#include <format>

#include "kernel_templates/embedded_sources.h"
#include "kernel_templates/template.h"

namespace dorajit::kernels {
namespace {

// What profilers and debuggers show, such as "dorajit_compose_bf16_bf16_f32_bf16".
std::string entry_name(const Variant& variant) {
  std::string name = "dorajit_";
  for (const char one : to_text(variant)) {
    if (one == '-') {
      name += "none";  // the type of an operand that is left out
    } else {
      name += std::isalnum(static_cast<unsigned char>(one)) != 0 ? one : '_';
    }
  }
  return name;
}

}  // namespace

Program program_of(const Variant& variant, const Config& config, DeviceKind kind) {
  if (const auto own = template_of(variant).program; own != nullptr) return own(variant, config);
  Program program{
      .source = {.name = "dorajit_kernel.cu", .text = instantiation(variant, config, kind)},
      .headers = {},
      .adapts_to_spills = true};
  if (kind == DeviceKind::kCuda) {
    const std::string name = entry_name(variant);
    program.source.text =
        std::format("#define dorajit_kernel {0}\n#define dorajit_finish {0}_finish\n{1}", name,
                    program.source.text);
    program.entry = name;
    if (template_of(variant).has_second_stage) {
      program.entry += std::format("{}{}_finish", Program::kBetweenEntries, name);
    }
  }
  for (const EmbeddedFile* file : include_closure(source_roots(variant, kind))) {
    program.headers.push_back({std::string(file->name), std::string(file->text)});
  }
  return program;
}

}  // namespace dorajit::kernels
