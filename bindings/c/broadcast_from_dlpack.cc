#include "bindings/c/broadcast_from_dlpack.h"

#include <atomic>
#include <cstdint>
#include <format>

#include "runtime/base/log.h"

namespace dorajit::bindings {
namespace {

// A magnitude kept as [out, 1] is meant for the columns, which every other shape of the matrix
// would tell. Said once, without a lock from then on.
void warn_of_square_matrix(std::string_view function, std::string_view argument,
                           std::int64_t size) {
  static constinit std::atomic<bool> is_said = false;
  if (is_said.load(std::memory_order_relaxed) || log_level() < LogLevel::kWarning) return;
  if (is_said.exchange(true)) return;
  log(LogLevel::kWarning,
      std::format("{}: argument `{}` is [{}, 1] over a matrix of [{}, {}] and is taken for one "
                  "element per row; pass [{}] for one per column, or, where rows are meant, [1, "
                  "{}, 1] over [1, {}, {}] (this is said once)",
                  function, argument, size, size, size, size, size, size, size));
}

}  // namespace

Result<ChannelLayout> channel_layout(std::string_view function, std::string_view argument,
                                     const DLTensor& matrix, const DLTensor& broadcast) {
  if (broadcast.ndim <= 1 || broadcast.shape == nullptr) return {};
  if (matrix.ndim < 1 || matrix.shape == nullptr) return {};
  int axis = -1;  // from the last dimension; of the channels
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
    // One channel for all: per row, unless the columns are one as well.
    axis = matrix.ndim > 1 && matrix.shape[matrix.ndim - 1] != 1 ? 1 : 0;
  }
  if (axis == 0) return {};
  if (axis >= matrix.ndim) {
    return fail(StatusCode::kInvalidArgument,
                std::format("{}: argument `{}` has more dimensions than what it is broadcast over",
                            function, argument));
  }
  const std::int64_t channels = broadcast.shape[broadcast.ndim - 1 - axis];
  const std::int64_t size = matrix.shape[matrix.ndim - 1 - axis];
  // Negative sizes are named by the checks of their own tensor.
  if (channels != 1 && channels != size && channels >= 0 && size >= 0) {
    return fail(StatusCode::kInvalidArgument,
                std::format("{}: argument `{}` has {} channels but dimension {} of what it is "
                            "broadcast over has {} elements; give one element for each",
                            function, argument, channels, matrix.ndim - 1 - axis, size));
  }
  if (broadcast.ndim == 2 && matrix.ndim == 2 && channels > 1 && size == matrix.shape[1]) {
    warn_of_square_matrix(function, argument, size);
  }
  return ChannelLayout{.broadcast = kernels::Broadcast::kPerRow, .column_dims = axis};
}

}  // namespace dorajit::bindings
