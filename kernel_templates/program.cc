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
    constexpr std::string_view kOnly[] = {"kernel"};
    const auto stages_of = template_of(variant).stages;
    std::string defines;
    for (const std::string_view stage : stages_of != nullptr ? stages_of(variant) : kOnly) {
      const std::string entry = stage == kOnly[0] ? name : std::format("{}_{}", name, stage);
      defines += std::format("#define dorajit_{} {}\n", stage, entry);
      if (!program.entry.empty()) program.entry += Program::kBetweenEntries;
      program.entry += entry;
    }
    program.source.text.insert(0, defines);
  }
  for (const EmbeddedFile* file : include_closure(source_roots(variant, kind))) {
    program.headers.push_back({std::string(file->name), std::string(file->text)});
  }
  return program;
}

}  // namespace dorajit::kernels
