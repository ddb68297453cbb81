#include "own_kernels/kernel.h"

#include <array>
#include <bit>
#include <memory>
#include <utility>

#include "own_kernels/included_files.h"
#include "own_kernels/own_operation.h"
#include "runtime/base/artifact_store.h"

namespace dorajit::own_kernels {
namespace {

const kernels::Template& select(const kernels::Variant&) { return own_template; }

// By operand: its type is served, and the same as that of others of its name.
std::string_view why_unsupported(const kernels::Variant& variant) {
  const OwnOperation& own = OwnOperation::of(variant);
  std::array<kernels::ElementType, kernels::kMaxOperands> common;  // by the first of a name
  common.fill(kernels::ElementType::kAbsent);
  for (std::size_t i = 0; i < own.served_types.size(); ++i) {
    if (!variant.has(i)) continue;  // it is optional
    const auto [types, same_as] = own.served_types[i];
    if (common[same_as] == kernels::ElementType::kAbsent) common[same_as] = variant.types[i];
    const bool is_served = (types >> static_cast<unsigned>(variant.types[i]) & 1U) != 0;
    if (!is_served || variant.types[i] != common[same_as]) return own.refusals[i];
  }
  return {};
}

const OwnOperation* as_own(const kernels::Operation& operation) {
  return operation.select_template == select ? static_cast<const OwnOperation*>(&operation)
                                             : nullptr;
}

std::shared_ptr<ArtifactStore>& kept_kernels() {
  static auto* const store = new std::shared_ptr<ArtifactStore>;
  return *store;
}

// The name has the hash of the description, so that another's does not pass for it.
const kernels::Operation* find_kept(std::string_view full_name) {
  const auto description = find_description(*kept_kernels(), full_name);
  if (!description) return nullptr;
  const auto made = make_kernel(*description, kept_kernels().get());
  return made && kernels::full_name(**made) == full_name ? *made : nullptr;
}

}  // namespace

Result<const kernels::Operation*> make_kernel(std::string_view json, ArtifactStore* kept_in) {
  DORAJIT_ASSIGN(Description description, parse_description(json));
  DORAJIT_TRY(description.included.empty() ? read_included_files(description)
                                           : find_included_files(description, kept_in));
  DORAJIT_ASSIGN(std::unique_ptr<OwnOperation> own, build_operation(std::move(description)));
  own->select_template = select;
  own->why_unsupported = why_unsupported;
  const kernels::Operation& found = kernels::add_operation(*own);
  if (&found == own.get()) (void)own.release();  // never dropped
  return &found;
}

std::optional<kernels::Variant> variant_of(const kernels::Operation& kernel,
                                           kernels::ElementType type) {
  kernels::Variant variant{.operation = &kernel};
  const auto& served = static_cast<const OwnOperation&>(kernel).served_types;
  for (std::size_t i = 0; i < served.size(); ++i) {
    const bool is_choice = std::popcount(served[i].types) > 1;
    variant.types[i] =
        is_choice ? type : static_cast<kernels::ElementType>(std::countr_zero(served[i].types));
  }
  if (!kernels::is_supported(variant)) return std::nullopt;
  return variant;
}

const char* const* scalar_names(const kernels::Operation& operation) {
  const OwnOperation* const own = as_own(operation);
  return own != nullptr ? own->scalar_names.data() : nullptr;
}

void serve_kept_kernels(std::shared_ptr<ArtifactStore> store) {
  kept_kernels() = std::move(store);
  kernels::set_operation_source(find_kept);
}

}  // namespace dorajit::own_kernels
