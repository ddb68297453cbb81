#include "kernel_templates/registry.h"

#include <atomic>
#include <cstdlib>
#include <format>
#include <iterator>

#include "kernel_templates/embedded_sources.h"
#include "kernel_templates/float8.h"
#include "kernel_templates/integer_types.h"
#include "kernel_templates/template.h"

namespace dorajit::kernels {
namespace {

constexpr std::string_view kTypeNames[] = {"f32", "bf16", "f16", "f64", "-"};
// Those that were added, the latest first. Never removed.
struct Added {
  const Operation* operation;
  Added* next;
};
std::atomic<Added*> added_operations{nullptr};

std::atomic<OperationSource> operation_source{nullptr};

const Operation* find_added(std::string_view name) {
  const Added* one = added_operations.load(std::memory_order_acquire);
  while (one != nullptr && full_name(*one->operation) != name) one = one->next;
  return one != nullptr ? one->operation : nullptr;
}

const Operation* find_anywhere_but_in_table(std::string_view name) {
  if (const Operation* const added = find_added(name)) return added;
  const OperationSource source = operation_source.load(std::memory_order_acquire);
  return source != nullptr && name.contains('@') ? source(name) : nullptr;
}

constexpr std::string_view kTypeConstants[] = {"kFloat32", "kBfloat16", "kFloat16", "kFloat64",
                                               "kAbsent"};

}  // namespace

std::vector<const Operation*> offered_operations() {
  std::vector<const Operation*> offered;
  std::ranges::copy_if(all_operations(), std::back_inserter(offered), &Operation::is_offered);
  return offered;
}

std::string full_name(const Operation& operation) {
  return operation.version.empty() ? std::string(operation.name)
                                   : std::format("{}@{}", operation.name, operation.version);
}

const Operation* find_operation(std::string_view name) {
  const auto all = all_operations();
  const auto found = std::ranges::find(all, name, &Operation::name);
  return found == all.end() ? find_anywhere_but_in_table(name) : *found;
}

const Operation& add_operation(const Operation& added) {
  auto* const entry = new Added{.operation = &added, .next = nullptr};
  Added* first = added_operations.load(std::memory_order_acquire);
  do {
    if (const Operation* const present = find_added(full_name(added))) {
      delete entry;
      return *present;
    }
    entry->next = first;
  } while (!added_operations.compare_exchange_weak(first, entry, std::memory_order_acq_rel));
  return *entry->operation;
}

void set_operation_source(OperationSource source) {
  operation_source.store(source, std::memory_order_release);
}

const Operation& operation(std::string_view name) {
  const Operation* const found = find_operation(name);
  if (found == nullptr) std::abort();
  return *found;
}

std::span<const ElementType> Variant::operand_types() const {
  return std::span(types).first(operation->operands.size());
}

bool Variant::has_sum() const {
  const int sum = operation->sum_operand;
  return sum >= 0 && has(static_cast<std::size_t>(sum));
}

std::string_view name(ElementType type) {
  if (const auto* const float8 = as_float8(type)) return float8->text;
  const IntegerType* const integer = as_integer(type);
  return integer != nullptr ? integer->text : kTypeNames[static_cast<std::size_t>(type)];
}

std::optional<ElementType> parse_element_type(std::string_view text) {
  const auto* const integer = std::ranges::find(kIntegerTypes, text, &IntegerType::text);
  if (integer != std::end(kIntegerTypes)) return integer->type;
  const auto* const float8 = std::ranges::find(kFloat8Types, text, &Float8Type::text);
  if (float8 != std::end(kFloat8Types)) return float8->type;
  const auto* found = std::ranges::find(kTypeNames, text);
  if (found == std::end(kTypeNames)) return std::nullopt;
  return static_cast<ElementType>(found - std::begin(kTypeNames));
}

std::string to_text(const Variant& variant) {
  std::string text = full_name(*variant.operation);
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
  std::string_view name = text.substr(0, slash);
  Variant variant;
  if (name.ends_with(kPerRow)) {
    name.remove_suffix(kPerRow.size());
    variant.broadcast = Broadcast::kPerRow;
  }
  variant.operation = find_operation(name);
  if (variant.operation == nullptr) return std::nullopt;
  std::string_view types = text.substr(slash + 1);
  const std::size_t wanted = variant.operation->operands.size();
  for (std::size_t i = 0; i < wanted; ++i) {
    const std::size_t end = i + 1 < wanted ? types.find(',') : types.size();
    if (end == std::string_view::npos) return std::nullopt;
    const auto type = parse_element_type(types.substr(0, end));
    if (!type) return std::nullopt;
    if (is_of_own_kernels(*type) && !variant.operation->mixes_all_types) return std::nullopt;
    variant.types[i] = *type;
    types.remove_prefix(std::min(end + 1, types.size()));
  }
  return variant;
}

bool is_supported(const Variant& variant) {
  const Operation& op = *variant.operation;
  if (variant.broadcast == Broadcast::kPerRow && !op.has_row_form) return false;
  bool writes = false;
  int present = 0;
  for (std::size_t i = 0; i < op.operands.size(); ++i) {
    const Operand& operand = op.operands[i];
    const bool is_needed = operand.presence == Presence::kRequired ||
                           (operand.presence == Presence::kForSum && variant.has_sum());
    if (is_needed && !variant.has(i)) return false;
    if (operand.presence == Presence::kForSum && !variant.has_sum() && variant.has(i)) return false;
    if (operand.typed_as >= 0 && variant.has(i)) {
      const auto other = static_cast<std::size_t>(operand.typed_as);
      if (variant.has(other) && variant.types[other] != variant.types[i]) return false;
    }
    writes = writes || (operand.role == OperandRole::kOutput && variant.has(i));
    present += variant.has(i) ? 1 : 0;
  }
  const auto types = variant.operand_types();
  const auto doubles = std::ranges::count(types, ElementType::kFloat64);
  const bool is_mix_of_floats =
      (doubles == 0 || doubles == present) && std::ranges::none_of(types, is_of_own_kernels);
  return writes && (op.mixes_all_types || is_mix_of_floats) &&
         (op.why_unsupported == nullptr || op.why_unsupported(variant).empty());
}

ElementType compute_type(const Variant& variant) {
  return std::ranges::contains(variant.operand_types(), ElementType::kFloat64)
             ? ElementType::kFloat64
             : ElementType::kFloat32;
}

std::vector<Variant> all_variants(const Operation& operation) {
  const std::span<const Operand> operands = operation.operands;
  std::size_t combinations = 1;
  for (const Operand& operand : operands) {
    if (operand.typed_as < 0) combinations *= kNumElementTypes;
  }
  std::vector<Variant> variants;
  for (std::size_t code = 0; code < combinations; ++code) {
    Variant variant{.operation = &operation};
    std::size_t rest = code;
    for (std::size_t i = 0; i < operands.size(); ++i) {
      if (operands[i].typed_as >= 0) {
        variant.types[i] = variant.types[static_cast<std::size_t>(operands[i].typed_as)];
        continue;
      }
      variant.types[i] = static_cast<ElementType>(rest % kNumElementTypes);
      rest /= kNumElementTypes;
    }
    if (is_supported(variant)) variants.push_back(variant);
  }
  return variants;
}

std::vector<std::string_view> source_roots(const Variant& variant, DeviceKind kind) {
  const Template& used = template_of(variant);
  std::vector<std::string_view> roots;
  if (!variant.operation->math_header.empty()) roots.push_back(variant.operation->math_header);
  roots.push_back(kind == DeviceKind::kCuda ? used.cuda_source : used.cpu_source);
  return roots;
}

std::string source_identity(const Variant& variant, DeviceKind kind) {
  if (!variant.operation->sources.empty()) return std::string(variant.operation->sources);
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
  const Template& used = template_of(variant);
  const std::string expression = used.config_expression(config);
  if (variant.operation->formula.empty()) {
    text += std::format("{}(({})", used.entry_macro, expression);
  } else {
    text += std::format("{}(dorajit::kernels::{}, ({}), dorajit::kernels::Broadcast::{}",
                        used.entry_macro, variant.operation->formula, expression,
                        variant.broadcast == Broadcast::kPerRow ? "kPerRow" : "kPerColumn");
  }
  for (const ElementType type : variant.operand_types()) {
    text += std::format(", dorajit::kernels::ElementType::{}",
                        kTypeConstants[static_cast<std::size_t>(type)]);
  }
  text += ")\n";
  return text;
}

}  // namespace dorajit::kernels
