#include "bindings/c/broadcast_from_dlpack.h"

#include <cstdint>
#include <format>

namespace dorajit::bindings {

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
  return ChannelLayout{.broadcast = kernels::Broadcast::kPerRow, .column_dims = axis};
}

}  // namespace dorajit::bindings
