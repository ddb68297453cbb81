// What a kernel is compiled from.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "kernel_templates/config.h"
#include "kernel_templates/registry.h"

namespace dorajit::kernels {

struct SourceFile {
  std::string name;
  std::string text;
};

struct Program {
  static constexpr char kBetweenEntries = ';';

  SourceFile source;                // the translation unit
  std::vector<SourceFile> headers;  // what it may include, by name
  // Of NVRTC; nothing: those under which every config gives the same bits.
  std::optional<std::vector<std::string>> options{};
  // The kernel of each stage as an expression, such as "swiglu<256, 4>"; empty for a CPU, whose
  // kernels are `dorajit_kernel` and `dorajit_finish`.
  std::string entry{};
  bool adapts_to_spills = false;  // whether the source has a second way for kernels that spill

  // Users' kernels alone have options of their own.
  [[nodiscard]] bool is_users() const { return options.has_value(); }
};

// Of one kernel on a kind of device.
Program program_of(const Variant& variant, const Config& config, DeviceKind kind);

}  // namespace dorajit::kernels
