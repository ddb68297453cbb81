#include "kernel_templates/registry.h"

#include <algorithm>
#include <cstdint>
#include <format>

#include "kernel_templates/embedded_sources.h"
#include "kernel_templates/math/backward.h"
#include "kernel_templates/math/compose.h"
#include "kernel_templates/math/compose_biased_residual.h"
#include "kernel_templates/math/compose_inner.h"
#include "kernel_templates/math/compose_residual.h"
#include "kernel_templates/math/norm_assembly.h"
#include "kernel_templates/math/residual_backward.h"
#include "kernel_templates/math/unfused_passes.h"
#include "kernel_templates/reference.h"

namespace dorajit::kernels {
namespace {

using enum OperandRole;
using enum OperandShape;

constexpr std::string_view kScale[] = {"scale"};

constexpr OperandSpec kComposeOperands[] = {{"lora", kInput, kMatrix},
                                            {"base", kInput, kMatrix},
                                            {"gain", kInput, kBroadcast},
                                            {"out", kOutput, kMatrix}};
constexpr OperandSpec kComposeInnerOperands[] = {{"lora", kInput, kMatrix},
                                                 {"base", kInput, kMatrix},
                                                 {"gain", kInput, kBroadcast},
                                                 {"out", kOutput, kMatrix},
                                                 {"inner", kOutput, kMatrix}};
constexpr OperandSpec kBackwardOperands[] = {{"d_out", kInput, kMatrix},
                                             {"inner", kInput, kMatrix, Presence::kForSum},
                                             {"gain", kInput, kBroadcast},
                                             {"d_lora", kOutput, kMatrix, Presence::kOptional},
                                             {"d_base", kOutput, kMatrix, Presence::kOptional},
                                             {"d_gain", kOutput, kSum, Presence::kOptional}};
constexpr OperandSpec kNormAssemblyOperands[] = {{"w_norm_sq", kInput, kMatrix},
                                                 {"cross", kInput, kMatrix},
                                                 {"ba_norm_sq", kInput, kMatrix},
                                                 {"norm", kOutput, kMatrix}};
constexpr OperandSpec kComposeResidualOperands[] = {
    {"lora", kInput, kMatrix},
    {"result", kInput, kMatrix},
    {"gain", kInput, kBroadcast},
    {"out", kOutput, kMatrix},
    {"inner", kOutput, kMatrix, Presence::kOptional}};
constexpr OperandSpec kComposeBiasedResidualOperands[] = {
    {"lora", kInput, kMatrix},    {"result", kInput, kMatrix},
    {"gain", kInput, kBroadcast}, {"bias", kInput, kBroadcast},
    {"out", kOutput, kMatrix},    {"inner", kOutput, kMatrix, Presence::kOptional}};
constexpr OperandSpec kResidualBackwardOperands[] = {
    {"d_out", kInput, kMatrix},
    {"inner", kInput, kMatrix, Presence::kForSum},
    {"gain", kInput, kBroadcast},
    {"d_lora", kOutput, kMatrix, Presence::kOptional},
    {"d_result", kOutput, kMatrix, Presence::kOptional},
    {"d_gain", kOutput, kSum, Presence::kOptional}};
constexpr OperandSpec kScaleOperands[] = {{"x", kInput, kMatrix}, {"y", kOutput, kMatrix}};
constexpr OperandSpec kGainOperands[] = {
    {"x", kInput, kMatrix}, {"gain", kInput, kBroadcast}, {"y", kOutput, kMatrix}};
constexpr OperandSpec kAddOperands[] = {
    {"a", kInput, kMatrix}, {"b", kInput, kMatrix}, {"y", kOutput, kMatrix}};

constexpr int find_shape(std::span<const OperandSpec> operands, OperandShape shape) {
  for (std::size_t i = 0; i < operands.size(); ++i) {
    if (operands[i].shape == shape) return static_cast<int>(i);
  }
  return -1;
}

template <template <class> class Formula>
constexpr OpSpec describe(Op op, std::string_view name, std::span<const OperandSpec> operands,
                          std::span<const std::string_view> scalars, std::string_view formula,
                          std::string_view math_header) {
  return {op,
          name,
          operands,
          scalars,
          formula,
          math_header,
          evaluate_reference<Formula>,
          find_shape(operands, kSum),
          find_shape(operands, kBroadcast) >= 0};
}

constexpr std::string_view kUnfused = "math/unfused_passes.h";

// In the order of Op.
const OpSpec kOps[] = {
    describe<Compose>(Op::kCompose, "compose", kComposeOperands, kScale, "Compose",
                      "math/compose.h"),
    describe<ComposeInner>(Op::kComposeInner, "compose_inner", kComposeInnerOperands, kScale,
                           "ComposeInner", "math/compose_inner.h"),
    describe<Backward>(Op::kBackward, "backward", kBackwardOperands, kScale, "Backward",
                       "math/backward.h"),
    describe<NormAssembly>(Op::kNormAssembly, "norm_assembly", kNormAssemblyOperands, kScale,
                           "NormAssembly", "math/norm_assembly.h"),
    describe<ComposeResidual>(Op::kComposeResidual, "compose_residual", kComposeResidualOperands,
                              kScale, "ComposeResidual", "math/compose_residual.h"),
    describe<ComposeBiasedResidual>(Op::kComposeBiasedResidual, "compose_biased_residual",
                                    kComposeBiasedResidualOperands, kScale, "ComposeBiasedResidual",
                                    "math/compose_biased_residual.h"),
    describe<ResidualBackward>(Op::kResidualBackward, "residual_backward",
                               kResidualBackwardOperands, kScale, "ResidualBackward",
                               "math/residual_backward.h"),
    describe<ScaleByScalar>(Op::kScaleByScalar, "scale_by_scalar", kScaleOperands, kScale,
                            "ScaleByScalar", kUnfused),
    describe<ScaleByGain>(Op::kScaleByGain, "scale_by_gain", kGainOperands, {}, "ScaleByGain",
                          kUnfused),
    describe<ScaleByGainMinusOne>(Op::kScaleByGainMinusOne, "scale_by_gain_minus_one",
                                  kGainOperands, {}, "ScaleByGainMinusOne", kUnfused),
    describe<Add>(Op::kAdd, "add", kAddOperands, {}, "Add", kUnfused),
};

struct TemplateSources {
  std::string_view cuda;
  std::string_view cpu;
  std::string_view entry_macro;  // defined by both
};

// In the order of TemplateKind.
constexpr TemplateSources kTemplates[] = {
    {"cuda/elementwise.cuh", "cpu/elementwise.h", "DORAJIT_ELEMENTWISE_KERNEL"},
    {"cuda/column_sums.cuh", "cpu/column_sums.h", "DORAJIT_COLUMN_SUMS_KERNEL"},
    {"cuda/row_sums.cuh", "cpu/row_sums.h", "DORAJIT_ROW_SUMS_KERNEL"},
};

const TemplateSources& sources_of(const Variant& variant) {
  return kTemplates[static_cast<std::size_t>(template_kind(variant))];
}

constexpr std::string_view kTypeNames[] = {"f32", "bf16", "f16", "f64", "-"};
constexpr std::string_view kTypeConstants[] = {"kFloat32", "kBfloat16", "kFloat16", "kFloat64",
                                               "kAbsent"};

}  // namespace

const OpSpec& spec(Op op) { return kOps[static_cast<std::size_t>(op)]; }

std::span<const OpSpec> all_ops() { return kOps; }

std::span<const OpSpec> offered_ops() {
  return std::span(kOps).first(static_cast<std::size_t>(Op::kScaleByScalar));
}

std::span<const ElementType> Variant::operand_types() const {
  return std::span(types).first(spec(op).operands.size());
}

bool Variant::has_sum() const {
  const int sum = spec(op).sum_operand;
  return sum >= 0 && has(static_cast<std::size_t>(sum));
}

std::string_view name(ElementType type) { return kTypeNames[static_cast<std::size_t>(type)]; }

std::optional<ElementType> parse_element_type(std::string_view text) {
  const auto* found = std::ranges::find(kTypeNames, text);
  if (found == std::end(kTypeNames)) return std::nullopt;
  return static_cast<ElementType>(found - std::begin(kTypeNames));
}

std::string to_text(const Variant& variant) {
  std::string text(spec(variant.op).name);
  if (variant.broadcast == Broadcast::kPerRow) text.append(".rows");
  char separator = '/';
  for (const ElementType type : variant.operand_types()) {
    text.push_back(separator);
    text.append(name(type));
    separator = ',';
  }
  return text;
}

std::optional<Variant> parse_variant(std::string_view text) {
  constexpr std::string_view kPerRow = ".rows";
  const std::size_t slash = text.find('/');
  if (slash == std::string_view::npos) return std::nullopt;
  std::string_view op = text.substr(0, slash);
  Variant variant;
  if (op.ends_with(kPerRow)) {
    op.remove_suffix(kPerRow.size());
    variant.broadcast = Broadcast::kPerRow;
  }
  const auto found = std::ranges::find(all_ops(), op, &OpSpec::name);
  if (found == all_ops().end()) return std::nullopt;
  variant.op = found->op;
  std::string_view types = text.substr(slash + 1);
  const std::size_t wanted = found->operands.size();
  for (std::size_t i = 0; i < wanted; ++i) {
    const std::size_t end = i + 1 < wanted ? types.find(',') : types.size();
    if (end == std::string_view::npos) return std::nullopt;
    const auto type = parse_element_type(types.substr(0, end));
    if (!type) return std::nullopt;
    variant.types[i] = *type;
    types.remove_prefix(std::min(end + 1, types.size()));
  }
  return variant;
}

bool is_supported(const Variant& variant) {
  const OpSpec& op = spec(variant.op);
  if (variant.broadcast == Broadcast::kPerRow && !op.has_broadcast) return false;
  bool writes = false;
  int present = 0;
  for (std::size_t i = 0; i < op.operands.size(); ++i) {
    const OperandSpec& operand = op.operands[i];
    const bool is_needed = operand.presence == Presence::kRequired ||
                           (operand.presence == Presence::kForSum && variant.has_sum());
    if (is_needed && !variant.has(i)) return false;
    if (operand.presence == Presence::kForSum && !variant.has_sum() && variant.has(i)) return false;
    writes = writes || (operand.role == kOutput && variant.has(i));
    present += variant.has(i) ? 1 : 0;
  }
  const auto doubles = std::ranges::count(variant.operand_types(), ElementType::kFloat64);
  return writes && (doubles == 0 || doubles == present);
}

ElementType compute_type(const Variant& variant) {
  return std::ranges::contains(variant.operand_types(), ElementType::kFloat64)
             ? ElementType::kFloat64
             : ElementType::kFloat32;
}

TemplateKind template_kind(const Variant& variant) {
  if (!variant.has_sum()) return TemplateKind::kElementwise;
  return variant.broadcast == Broadcast::kPerRow ? TemplateKind::kRowSums
                                                 : TemplateKind::kColumnSums;
}

std::vector<Variant> all_variants(Op op) {
  const std::size_t operands = spec(op).operands.size();
  std::size_t combinations = 1;
  for (std::size_t i = 0; i < operands; ++i) combinations *= kNumElementTypes;
  std::vector<Variant> variants;
  for (std::size_t code = 0; code < combinations; ++code) {
    Variant variant{.op = op};
    std::size_t rest = code;
    for (std::size_t i = 0; i < operands; ++i) {
      variant.types[i] = static_cast<ElementType>(rest % kNumElementTypes);
      rest /= kNumElementTypes;
    }
    if (is_supported(variant)) variants.push_back(variant);
  }
  return variants;
}

std::vector<std::string_view> source_roots(const Variant& variant, DeviceKind kind) {
  const TemplateSources& sources = sources_of(variant);
  return {spec(variant.op).math_header, kind == DeviceKind::kCuda ? sources.cuda : sources.cpu};
}

std::string source_identity(const Variant& variant, DeviceKind kind) {
  std::string hashes;
  for (const EmbeddedFile* file : include_closure(source_roots(variant, kind))) {
    hashes.append(file->name).append("=").append(file->sha256).append(";");
  }
  return hashes;
}

std::string instantiation(const Variant& variant, const Config& config, DeviceKind kind) {
  std::string text;
  for (const std::string_view root : source_roots(variant, kind)) {
    text += std::format("#include \"{}\"\n", root);
  }
  text += std::format(
      "{}(dorajit::kernels::{}, (dorajit::kernels::Config{{{}, {}, {}, {}, {}, "
      "static_cast<dorajit::kernels::CachePolicy>({})}}), dorajit::kernels::Broadcast::{}",
      sources_of(variant).entry_macro, spec(variant.op).formula, config.block_size,
      config.num_warps, config.rows_per_program, config.vector_width, config.unroll,
      static_cast<int>(config.cache_policy),
      variant.broadcast == Broadcast::kPerRow ? "kPerRow" : "kPerColumn");
  for (const ElementType type : variant.operand_types()) {
    text += std::format(", dorajit::kernels::ElementType::{}",
                        kTypeConstants[static_cast<std::size_t>(type)]);
  }
  text += ")\n";
  return text;
}

}  // namespace dorajit::kernels
