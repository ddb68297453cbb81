#include "tests/conformance/random_cases.h"

#include <algorithm>
#include <array>
#include <format>
#include <limits>
#include <mutex>
#include <random>
#include <span>

#include "kernel_templates/partial_sums.h"
#include "tests/conformance/parallel_for.h"

namespace dorajit::tests {
namespace {

using kernels::Broadcast;
using kernels::ElementType;
using kernels::Variant;

constexpr double kInfinity = std::numeric_limits<double>::infinity();
constexpr std::int64_t kMaxElements = 20000;
constexpr std::int64_t kLongest = 9000;

class Draw {
 public:
  explicit Draw(unsigned seed) : random_(seed) {}

  std::int64_t between(std::int64_t least, std::int64_t most) {
    return std::uniform_int_distribution<std::int64_t>(least, most)(random_);
  }
  bool one_in(std::int64_t count) { return between(1, count) == 1; }
  template <class T>
  T of(std::span<const T> choices) {
    return choices[static_cast<std::size_t>(
        between(0, static_cast<std::int64_t>(choices.size()) - 1))];
  }
  template <class T>
  T of(std::initializer_list<T> choices) {
    return of(std::span<const T>(choices.begin(), choices.size()));
  }

 private:
  std::mt19937 random_;
};

Variant draw_variant(Draw& draw) {
  const std::string_view name = draw.of(
      {std::string_view("compose"), std::string_view("compose_inner"), std::string_view("backward"),
       std::string_view("norm_assembly"), std::string_view("compose_residual"),
       std::string_view("residual_backward"), std::string_view("magnitude_backward"),
       std::string_view("gated_silu"), std::string_view("gated_gelu"),
       std::string_view("gated_silu_backward"), std::string_view("gated_gelu_tanh_backward")});
  Variant variant{.operation = &kernels::operation(name)};
  const bool all_double = draw.one_in(8);
  const auto& operands = variant.operation->operands;
  for (std::size_t i = 0; i < operands.size(); ++i) {
    const int other = operands[i].typed_as;
    variant.types[i] =
        all_double ? ElementType::kFloat64
        : other >= 0
            ? variant.types[static_cast<std::size_t>(other)]
            : draw.of({ElementType::kFloat32, ElementType::kBfloat16, ElementType::kFloat16});
  }
  const Variants forms = in_both_broadcasts(with_every_subset({variant}));
  return draw.of(std::span(forms));
}

// Sizes at a boundary, and their neighbours, are as likely as all others together.
std::int64_t draw_size(Draw& draw, std::int64_t most) {
  if (draw.one_in(2)) return draw.between(1, most);
  const std::int64_t end = std::int64_t{1} << draw.between(0, 13);
  return std::clamp<std::int64_t>(end * draw.between(1, 3) + draw.between(-1, 1), 1, most);
}

void draw_shape(Draw& draw, const Variant& variant, CaseSpec& spec) {
  // One of the two is short, so that the other one may be long.
  const std::int64_t first = draw_size(draw, draw.of<std::int64_t>({3, 40, kLongest}));
  const std::int64_t second = draw_size(draw, std::max<std::int64_t>(1, kMaxElements / first));
  spec.rows = first;
  spec.cols = second;
  if (draw.one_in(2)) std::swap(spec.rows, spec.cols);
  if (variant.broadcast == Broadcast::kPerColumn) return;
  if (variant.has_sum() && draw.one_in(4)) {
    // Both kinds of partial sums: several spans of columns, several samples.
    spec.channels = draw.between(1, 2);
    spec.rows = spec.channels * draw.between(2, 3);
    spec.cols = kernels::kPartialColumns * draw.between(1, 2) + draw.between(-1, 40);
    return;
  }
  spec.channels = draw_size(draw, draw.of<std::int64_t>({1, 3, 90}));
  spec.channels = std::min(spec.channels, spec.rows);
  spec.rows -= spec.rows % spec.channels;
}

Values draw_values(Draw& draw) {
  return draw.of<Values>({{},
                          {.mild = 0.2},
                          {.zeros = 0.5},
                          {.zeros = 1},
                          {.spread = 1e-20, .mild = 0.3},
                          {.spread = 1e6},
                          {.mild = 0.1, .wild = 0.01},
                          {.mild = 0.1, .wild = 0.3}});
}

Values draw_gains(Draw& draw) {
  constexpr double kTrained = 0.0015;     // deviation of trained gains from 1
  constexpr double kBfloatStep = 0x1p-7;  // from 1 to the next bf16
  return draw.one_in(4) ? draw_values(draw)
                        : Values{.center = 1,
                                 .spread = draw.of({0.0, kTrained, kBfloatStep}),
                                 .mild = draw.of({0.0, 0.1})};
}

double draw_scale(Draw& draw) {
  return draw.of({0.75, 1.0, 2.0, -2.5, 0.0, -0.0, 1e300, -1e300, 3e38, 1e-40, 5e-324, kInfinity,
                  -kInfinity, std::numeric_limits<double>::quiet_NaN()});
}

RandomCase draw_rest(Draw& draw, unsigned seed, const Variant& variant) {
  RandomCase drawn{.variant = variant, .spec = {}, .placement = {}};
  CaseSpec& spec = drawn.spec;
  draw_shape(draw, variant, spec);
  const bool is_aligned = draw.one_in(3);
  for (OperandLayout& layout : spec.layouts) {
    if (is_aligned) break;
    layout.row_padding = draw.of<std::int64_t>({0, 0, 1, 3, 8, 16, 37});
    layout.misalignment = draw.of({0, 0, 0, 1, 2, 3, 4, 8});
  }
  spec.scale = draw_scale(draw);
  spec.matrices = draw_values(draw);
  spec.gains = draw_gains(draw);
  spec.seed = seed;
  const std::vector<Placement> places = placements(variant);
  drawn.placement = draw.of(std::span(places));
  drawn.config_turn = static_cast<std::size_t>(draw.between(0, 1000));
  return drawn;
}

std::string check(device::Device& device, launch::KernelCache& kernels, const RandomCase& drawn) {
  const auto& traits = device.info().traits;
  const auto space = kernels::config_space(drawn.variant, traits,
                                           vector_width(drawn.variant, drawn.spec, traits.kind),
                                           kernels::SpaceKind::kSlim);
  const auto kernel = kernels.get(device, drawn.variant, space[drawn.config_turn % space.size()]);
  if (!kernel) return kernel.error().message + "\n" + kernel.error().log;
  OpBuffers buffers;
  return OpCase(drawn.variant, drawn.spec).run(device, *kernel, drawn.placement, buffers);
}

}  // namespace

RandomCase draw_case(unsigned seed) {
  Draw draw(seed);
  return draw_rest(draw, seed, draw_variant(draw));
}

RandomCase draw_case(unsigned seed, const Variants& variants) {
  Draw draw(seed);
  return draw_rest(draw, seed, draw.of(std::span(variants)));
}

std::vector<std::string> check_random_cases(device::Device& device, launch::KernelCache& kernels,
                                            unsigned first_seed, unsigned count,
                                            const Variants& variants) {
  std::mutex mutex;
  std::vector<std::string> failures;
  parallel_for(count, [&](std::size_t i) {
    const unsigned seed = first_seed + static_cast<unsigned>(i);
    const std::string failure =
        check(device, kernels, variants.empty() ? draw_case(seed) : draw_case(seed, variants));
    if (failure.empty()) return;
    const std::scoped_lock lock(mutex);
    failures.push_back(std::format("seed {}: {}", seed, failure));
  });
  return failures;
}

}  // namespace dorajit::tests
