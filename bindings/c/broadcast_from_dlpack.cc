#include "bindings/c/broadcast_from_dlpack.h"

#include <atomic>
#include <cstdint>
#include <format>

#include "runtime/base/log.h"

namespace dorajit::bindings {
namespace {

// A magnitude stored as [out, 1] belongs to the columns. Over a matrix that is not square, its size
// shows the mistake. Logged once; later calls take no lock.
void warn_of_square_matrix(std::string_view function, std::string_view argument,
                           std::int64_t size) {
  static constinit std::atomic<bool> is_said = false;
  if (is_said.load(std::memory_order_relaxed) || log_level() < LogLevel::kWarning) return;
  if (is_said.exchange(true)) return;
  log(LogLevel::kWarning,
      std::format("{}: argument `{}` is [{}, 1] over a matrix of [{}, {}] and is taken for one "
                  "element per row; pass [{}] for one per column, or, where rows are meant, [1, "
                  "{}, 1] over [1, {}, {}] (logged once)",
                  function, argument, size, size, size, size, size, size, size));
}

}  // namespace

Result<ChannelLayout> channel_layout(std::string_view function, std::string_view argument,
                                     const DLTensor& matrix, const DLTensor& broadcast) {
  if (broadcast.ndim <= 1 || broadcast.shape == nullptr) return {};
  if (matrix.ndim < 1 || matrix.shape == nullptr) return {};
  int axis = -1;  // index of the channel dimension, counted from the last one
  for (int i = 0; i < broadcast.ndim; ++i) {
    if (broadcast.shape[broadcast.ndim - 1 - i] == 1) continue;
    if (axis >= 0) {
      return fail(StatusCode::kUnsupported,
                  std::format("{}: argument `{}` has more than one dimension of several elements; "
                              "its channels must lie along one dimension",
                              function, argument));
    }
    axis = i;
  }
  if (axis < 0) {
    // A single channel: per row, unless the matrix has one column as well.
    axis = matrix.ndim > 1 && matrix.shape[matrix.ndim - 1] != 1 ? 1 : 0;
  }
  if (axis == 0) return {};
  if (axis >= matrix.ndim) {
    return fail(
        StatusCode::kInvalidArgument,
        std::format(
            "{}: argument `{}` has more dimensions than the tensor that it is broadcast over",
            function, argument));
  }
  const std::int64_t channels = broadcast.shape[broadcast.ndim - 1 - axis];
  const std::int64_t size = matrix.shape[matrix.ndim - 1 - axis];
  // Negative sizes are reported by the checks of their own tensor.
  if (channels != 1 && channels != size && channels >= 0 && size >= 0) {
    return fail(
        StatusCode::kInvalidArgument,
        std::format("{}: argument `{}` has {} channels but dimension {} of the tensor that it is "
                    "broadcast over has {} elements; give one element for each",
                    function, argument, channels, matrix.ndim - 1 - axis, size));
  }
  if (broadcast.ndim == 2 && matrix.ndim == 2 && channels > 1 && size == matrix.shape[1]) {
    warn_of_square_matrix(function, argument, size);
  }
  return ChannelLayout{.broadcast = kernels::Broadcast::kPerRow, .column_dims = axis};
}

}  // namespace dorajit::bindings
