#include "tests/conformance/case_lists.h"

#include "kernel_templates/partial_sums.h"
#include "kernel_templates/templates/streaming_configs.h"

namespace dorajit::tests {
namespace {

using kernels::Broadcast;
using kernels::kPartialColumns;

struct Shape {
  std::int64_t rows;
  std::int64_t cols;
  std::int64_t channels = 1;
  std::int64_t row_padding = 0;
  int misalignment = 0;
};

using Shapes = std::vector<Shape>;

// Elementwise, per column. Here and below, the first two are also the short list: an aligned shape
// with complete blocks, and one that is neither.
Shapes column_shapes() {
  return {
      {.rows = 3, .cols = 2061, .row_padding = 3},
      {.rows = 19, .cols = 24, .row_padding = 8, .misalignment = 2},
      {.rows = 1, .cols = 1},
      {.rows = 3, .cols = 7},     // no vector fits into a row
      {.rows = 5, .cols = 1024},  // complete vectors, complete blocks of some configs
      {.rows = 4, .cols = 4096},
      {.rows = 3, .cols = 4099, .row_padding = 5},  // ragged tail, rows aligned by their stride
      {.rows = 2, .cols = 513, .row_padding = 7, .misalignment = 1},  // misaligned start
      {.rows = 3, .cols = 640, .misalignment = 1},
      {.rows = 70, .cols = 33},
  };
}

// Elementwise, per row.
Shapes row_shapes() {
  return {
      {.rows = 3, .cols = 2061, .channels = 3, .row_padding = 3},
      {.rows = 18, .cols = 49, .channels = 6, .row_padding = 7, .misalignment = 1},
      {.rows = 1, .cols = 1},
      {.rows = 6, .cols = 264, .channels = 3},
      {.rows = 900, .cols = 1, .channels = 3},
      {.rows = 4, .cols = 4096, .channels = 4},     // one sample
      {.rows = 3, .cols = 4099, .row_padding = 5},  // one channel
      {.rows = 70, .cols = 33, .channels = 35},
      {.rows = 12, .cols = 640, .channels = 4, .misalignment = 1},
  };
}

// Numbers of leaves have three bits set where possible: the roots of three complete subtrees then
// meet at the end, and no wrong order of them gives the right sum.
Shapes column_sum_shapes() {
  return {
      {.rows = 53, .cols = 261, .row_padding = 3},           // 7 runs, the last one shorter
      {.rows = 256 * 6 + 85, .cols = 5, .misalignment = 1},  // 7 partial sums, the last one shorter
      {.rows = 1, .cols = 1},
      {.rows = 5, .cols = 24},    // less than a run
      {.rows = 256, .cols = 40},  // exactly one partial sum of the minimum size
      {.rows = 257, .cols = 33, .row_padding = 7},
      {.rows = 256 * 2 + 85, .cols = 264},  // complete blocks in several partial sums
      {.rows = 2048 * 6 + 85,
       .cols = 3},  // of the tallest programs; of the others more than there are lanes
      {.rows = 300, .cols = 130, .misalignment = 1},  // more channels than one program finishes
      {.rows = 9, .cols = 4200},                      // several blocks, the last one incomplete
      {.rows = 70, .cols = 1027, .row_padding = 5},
  };
}

Shapes row_sum_shapes() {
  return {
      {.rows = 14, .cols = 1029, .channels = 2, .row_padding = 3},  // 7 partial sums
      {.rows = 42, .cols = 49, .channels = 6, .row_padding = 7, .misalignment = 1},
      {.rows = 1, .cols = 1},
      {.rows = 256 * 6 + 11, .cols = 1},  // partial sums along samples, the last one shorter
      {.rows = 2, .cols = 6 * kPartialColumns + 37, .channels = 2},  // partial sums along columns
      {.rows = 6, .cols = kPartialColumns + 1, .channels = 2, .row_padding = 3, .misalignment = 1},
      {.rows = 3, .cols = 2 * kPartialColumns},
      {.rows = 900, .cols = 1, .channels = 3},
      {.rows = 301, .cols = 3},
      {.rows = 204, .cols = 49, .channels = 4},
      {.rows = 256 * 42 + 11, .cols = 1},  // more partial sums than lanes of the second stage
      {.rows = 210, .cols = 257, .channels = 70},  // more channels than one program finishes
      {.rows = 14, .cols = 1024, .channels = 2},
      {.rows = 70, .cols = 33, .channels = 35},
  };
}

Shapes shapes_of(const kernels::Variant& variant) {
  const kernels::Template* const used = &kernels::template_of(variant);
  if (used == &kernels::column_sums_template) return column_sum_shapes();
  if (used == &kernels::row_sums_template) return row_sum_shapes();
  return variant.broadcast == Broadcast::kPerRow ? row_shapes() : column_shapes();
}

constexpr std::size_t kFewShapes = 2;

}  // namespace

std::vector<CaseSpec> case_list(const kernels::Variant& variant, CaseList list) {
  // One infinity makes a sum infinite in any order, so only some sums contain one.
  const bool has_sum = variant.has_sum();
  const Values some{.mild = 0.1, .wild = has_sum ? 0 : 0.02};
  const Values many{.mild = 0.2, .wild = has_sum ? 0.01 : 0.1};
  Shapes shapes = shapes_of(variant);
  if (list == CaseList::kFew) shapes.resize(kFewShapes);
  std::vector<CaseSpec> cases;
  unsigned seed = 0;
  const auto add = [&](const Shape& shape, double scale, const Values& values) {
    cases.push_back({.rows = shape.rows,
                     .cols = shape.cols,
                     .channels = shape.channels,
                     .scale = scale,
                     .matrices = values,
                     .gains = values,
                     .seed = ++seed});
    cases.back().laid_out(shape.row_padding, shape.misalignment);
  };
  for (const Shape& shape : shapes) add(shape, 0.75, some);
  if (list == CaseList::kFew) return cases;
  add({.rows = 10, .cols = 100, .channels = 5}, 0.75, many);
  add({.rows = 2, .cols = 100}, -0.0, many);
  add({.rows = 2, .cols = 100}, 1e300, many);
  add({.rows = 20, .cols = 10, .channels = 2}, 1.0, {.zeros = 1});
  return cases;
}

}  // namespace dorajit::tests
