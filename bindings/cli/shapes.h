// Problem sizes as they stand on a command line.
#pragma once

#include <cstdint>
#include <string_view>

#include "runtime/base/error.h"

namespace dorajit::cli {

struct Shape {
  std::int64_t rows = 0;
  std::int64_t cols = 0;

  friend bool operator==(const Shape&, const Shape&) = default;
};

// "4096x14336"; kInvalidArgument for anything else, and for sizes below 1.
Result<Shape> parse_shape(std::string_view text);

// kInvalidArgument unless both are positive. launch::check_size() has the upper bound.
Status check_shape(const Shape& shape);

}  // namespace dorajit::cli
