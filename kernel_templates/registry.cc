#include "kernel_templates/registry.h"

#include <algorithm>
#include <cstdint>
#include <format>

#include "kernel_templates/embedded_sources.h"
#include "kernel_templates/math/compose.h"
#include "kernel_templates/math/unfused_passes.h"
#include "kernel_templates/reference.h"

namespace dorajit::kernels {
namespace {

using enum OperandRole;
using enum OperandShape;

constexpr std::string_view kScale[] = {"scale"};

constexpr OperandSpec kComposeOperands[] = {{"lora", kInput, kMatrix},
                                            {"base", kInput, kMatrix},
                                            {"gain", kInput, kColumns},
                                            {"out", kOutput, kMatrix}};
constexpr OperandSpec kScaleOperands[] = {{"x", kInput, kMatrix}, {"y", kOutput, kMatrix}};
constexpr OperandSpec kGainOperands[] = {
    {"x", kInput, kMatrix}, {"gain", kInput, kColumns}, {"y", kOutput, kMatrix}};
constexpr OperandSpec kAddOperands[] = {
    {"a", kInput, kMatrix}, {"b", kInput, kMatrix}, {"y", kOutput, kMatrix}};

template <template <class> class Formula>
constexpr OpSpec elementwise(Op op, std::string_view name, std::span<const OperandSpec> operands,
                             std::span<const std::string_view> scalars, std::string_view formula,
                             std::string_view math_header) {
  return {op,
          name,
          operands,
          scalars,
          formula,
          math_header,
          "cuda/elementwise.cuh",
          "cpu/elementwise.h",
          "DORAJIT_ELEMENTWISE_KERNEL",
          elementwise_reference<Formula>};
}

constexpr std::string_view kUnfused = "math/unfused_passes.h";

// In the order of Op.
const OpSpec kOps[] = {
    elementwise<Compose>(Op::kCompose, "compose", kComposeOperands, kScale, "Compose",
                         "math/compose.h"),
    elementwise<ScaleByScalar>(Op::kScaleByScalar, "scale_by_scalar", kScaleOperands, kScale,
                               "ScaleByScalar", kUnfused),
    elementwise<ScaleByGain>(Op::kScaleByGain, "scale_by_gain", kGainOperands, {}, "ScaleByGain",
                             kUnfused),
    elementwise<ScaleByGainMinusOne>(Op::kScaleByGainMinusOne, "scale_by_gain_minus_one",
                                     kGainOperands, {}, "ScaleByGainMinusOne", kUnfused),
    elementwise<Add>(Op::kAdd, "add", kAddOperands, {}, "Add", kUnfused),
};

constexpr std::string_view kTypeNames[kNumElementTypes] = {"f32", "bf16", "f16", "f64"};
constexpr std::string_view kTypeConstants[kNumElementTypes] = {"kFloat32", "kBfloat16", "kFloat16",
                                                               "kFloat64"};

}  // namespace

const OpSpec& spec(Op op) { return kOps[static_cast<std::size_t>(op)]; }

std::span<const OpSpec> all_ops() { return kOps; }

std::span<const ElementType> Variant::operand_types() const {
  return std::span(types).first(spec(op).operands.size());
}

std::string_view name(ElementType type) { return kTypeNames[static_cast<std::size_t>(type)]; }

std::optional<ElementType> parse_element_type(std::string_view text) {
  const auto* found = std::ranges::find(kTypeNames, text);
  if (found == std::end(kTypeNames)) return std::nullopt;
  return static_cast<ElementType>(found - std::begin(kTypeNames));
}

std::string to_text(const Variant& variant) {
  std::string text(spec(variant.op).name);
  char separator = '/';
  for (const ElementType type : variant.operand_types()) {
    text.push_back(separator);
    text.append(name(type));
    separator = ',';
  }
  return text;
}

bool is_supported(const Variant& variant) {
  const auto types = variant.operand_types();
  const auto doubles = std::ranges::count(types, ElementType::kFloat64);
  return doubles == 0 || doubles == static_cast<std::ptrdiff_t>(types.size());
}

std::vector<Variant> all_variants(Op op) {
  const std::size_t operands = spec(op).operands.size();
  std::size_t combinations = 1;
  for (std::size_t i = 0; i < operands; ++i) combinations *= kNumElementTypes;
  std::vector<Variant> variants;
  for (std::size_t code = 0; code < combinations; ++code) {
    Variant variant{.op = op, .types = {}};
    std::size_t rest = code;
    for (std::size_t i = 0; i < operands; ++i) {
      variant.types[i] = static_cast<ElementType>(rest % kNumElementTypes);
      rest /= kNumElementTypes;
    }
    if (is_supported(variant)) variants.push_back(variant);
  }
  return variants;
}

std::vector<std::string_view> source_roots(Op op, DeviceKind kind) {
  const OpSpec& s = spec(op);
  return {s.math_header, kind == DeviceKind::kCuda ? s.cuda_template : s.cpu_template};
}

std::string source_identity(Op op, DeviceKind kind) {
  std::string hashes;
  for (const EmbeddedFile* file : include_closure(source_roots(op, kind))) {
    hashes.append(file->name).append("=").append(file->sha256).append(";");
  }
  return hashes;
}

std::string instantiation(const Variant& variant, const Config& config, DeviceKind kind) {
  const OpSpec& s = spec(variant.op);
  std::string text;
  for (const std::string_view root : source_roots(variant.op, kind)) {
    text += std::format("#include \"{}\"\n", root);
  }
  text += std::format(
      "{}(dorajit::kernels::{}, (dorajit::kernels::Config{{{}, {}, {}, {}, {}, "
      "static_cast<dorajit::kernels::CachePolicy>({})}})",
      s.entry_macro, s.formula, config.block_size, config.num_warps, config.rows_per_program,
      config.vector_width, config.unroll, static_cast<int>(config.cache_policy));
  for (const ElementType type : variant.operand_types()) {
    text += std::format(", dorajit::kernels::ElementType::{}",
                        kTypeConstants[static_cast<std::size_t>(type)]);
  }
  text += ")\n";
  return text;
}

}  // namespace dorajit::kernels
