#include "bindings/cli/shapes.h"

#include <charconv>
#include <format>

namespace dorajit::cli {

Status check_shape(const Shape& shape) {
  if (shape.rows > 0 && shape.cols > 0) return {};
  return fail(StatusCode::kInvalidArgument,
              std::format("{} rows x {} columns is no size to tune for; both must be at least 1",
                          shape.rows, shape.cols));
}

Result<Shape> parse_shape(std::string_view text) {
  Shape shape;
  const char* const begin = text.data();
  const char* const end = begin + text.size();
  const auto rows = std::from_chars(begin, end, shape.rows);
  if (rows.ec == std::errc{} && rows.ptr != end && *rows.ptr == 'x') {
    const auto cols = std::from_chars(rows.ptr + 1, end, shape.cols);
    if (cols.ec == std::errc{} && cols.ptr == end) {
      DORAJIT_TRY(check_shape(shape));
      return shape;
    }
  }
  return fail(StatusCode::kInvalidArgument,
              std::format("--shape {} is not of the form ROWSxCOLS, as in 512x4096", text));
}

}  // namespace dorajit::cli
