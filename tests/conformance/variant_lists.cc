#include "tests/conformance/variant_lists.h"

#include <algorithm>
#include <set>
#include <tuple>

namespace dorajit::tests {
namespace {

using kernels::ElementType;
using kernels::Presence;
using kernels::Variant;
using enum kernels::ElementType;

void add_once(Variants& variants, const Variant& variant) {
  if (!std::ranges::contains(variants, variant)) variants.push_back(variant);
}

// Two operands and their types.
using Pair = std::tuple<std::size_t, std::size_t, ElementType, ElementType>;

std::set<Pair> pairs_of(const Variant& variant) {
  const auto types = variant.operand_types();
  std::set<Pair> pairs;
  for (std::size_t a = 0; a < types.size(); ++a) {
    for (std::size_t b = a + 1; b < types.size(); ++b) pairs.emplace(a, b, types[a], types[b]);
  }
  return pairs;
}

// Removes the optional operands whose bit in `dropped` is set.
Variant without(Variant variant, unsigned dropped) {
  const auto& operands = variant.operation->operands;
  for (std::size_t i = 0; i < operands.size(); ++i) {
    if (operands[i].presence != Presence::kOptional) continue;
    if ((dropped & 1U) != 0) variant.types[i] = kAbsent;
    dropped >>= 1U;
  }
  for (std::size_t i = 0; i < operands.size(); ++i) {
    const bool is_for_sum = operands[i].presence == Presence::kForSum;
    if (is_for_sum && !variant.has_sum()) variant.types[i] = kAbsent;
  }
  return variant;
}

}  // namespace

std::vector<const kernels::Operation*> operations_with_a_formula() {
  std::vector<const kernels::Operation*> found = kernels::offered_operations();
  std::erase_if(found, [](const kernels::Operation* one) { return one->formula.empty(); });
  return found;
}

Variants plain_mixes(const kernels::Operation& op) {
  const auto& operands = op.operands;
  Variants variants;
  for (const auto& [matrices, channels] :
       {std::pair(kFloat32, kFloat32), std::pair(kBfloat16, kFloat32),
        std::pair(kBfloat16, kBfloat16), std::pair(kFloat16, kFloat16),
        std::pair(kFloat64, kFloat64), std::pair(kFloat16, kFloat32)}) {
    Variant variant{.operation = &op};
    for (std::size_t i = 0; i < operands.size(); ++i) {
      variant.types[i] = operands[i].shape.is_matrix() ? matrices : channels;
    }
    if (kernels::is_supported(variant)) add_once(variants, variant);
  }
  return variants;
}

Variants sampled_mixes(const kernels::Operation& op, std::size_t most) {
  const Variants all = kernels::all_variants(op);
  Variants variants = plain_mixes(op);
  std::set<Pair> missing;
  for (const Variant& variant : all) missing.merge(pairs_of(variant));
  const auto meet = [&](const Variant& variant) {
    for (const Pair& pair : pairs_of(variant)) missing.erase(pair);
  };
  std::ranges::for_each(variants, meet);
  while (!missing.empty() && variants.size() < most) {
    const auto gain = [&](const Variant& variant) {
      return std::ranges::count_if(pairs_of(variant),
                                   [&](const Pair& pair) { return missing.contains(pair); });
    };
    variants.push_back(*std::ranges::max_element(all, {}, gain));
    meet(variants.back());
  }
  const std::size_t step = std::max<std::size_t>(1, all.size() / most);
  for (std::size_t i = 0; i < all.size() && variants.size() < most; i += step) {
    add_once(variants, all[i]);
  }
  return variants;
}

Variants in_both_broadcasts(const Variants& variants) {
  Variants both = variants;
  for (Variant variant : variants) {
    variant.broadcast = kernels::Broadcast::kPerRow;
    if (kernels::is_supported(variant)) both.push_back(variant);
  }
  return both;
}

Variants with_every_subset(const Variants& variants) {
  Variants subsets;
  for (const Variant& variant : variants) {
    const auto optional = std::ranges::count(variant.operation->operands, Presence::kOptional,
                                             &kernels::Operand::presence);
    for (unsigned dropped = 0; dropped < 1U << optional; ++dropped) {
      const Variant subset = without(variant, dropped);
      if (kernels::is_supported(subset)) add_once(subsets, subset);
    }
  }
  return subsets;
}

Variants plain_forms(const kernels::Operation& op) {
  const Variants mixes = plain_mixes(op);
  if (op.num_sums() < 2) return with_every_subset(mixes);
  Variants forms = with_only_the_sum({mixes[1]});
  Variant without_sums = mixes[1];
  for (std::size_t i = 0; i < op.operands.size(); ++i) {
    if (op.is_sum(i) || op.operands[i].presence == Presence::kForSum) {
      without_sums.types[i] = kAbsent;
    }
  }
  add_once(forms, without_sums);
  for (const Variant& mix : mixes) add_once(forms, mix);
  return forms;
}

Variants with_only_the_sum(const Variants& variants) {
  Variants sums;
  for (const Variant& variant : variants) {
    Variant sum = variant;
    const auto& operands = variant.operation->operands;
    for (std::size_t i = 0; i < operands.size(); ++i) {
      const bool is_other_output =
          operands[i].role == kernels::OperandRole::kOutput && !variant.operation->is_sum(i);
      if (is_other_output) sum.types[i] = kAbsent;
    }
    if (sum.has_sum()) add_once(sums, sum);
  }
  return sums;
}

}  // namespace dorajit::tests
