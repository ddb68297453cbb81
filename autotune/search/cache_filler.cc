#include "autotune/search/cache_filler.h"

#include <utility>

namespace dorajit::autotune {
namespace {

// How many times the cache's size is read, and how many times it is written.
constexpr std::int64_t kCacheSizes = 2;
constexpr std::int64_t kPartsOfFreeMemory = 8;  // it takes at most one of these parts

}  // namespace

CacheFiller::CacheFiller(device::Device& device) : device_(device) {
  if (device.info().traits.kind == kernels::DeviceKind::kCpu) return;
  const std::int64_t bytes = 2 * kCacheSizes * device.info().cache_bytes;
  const auto free = device.free_memory();
  if (!free || bytes > *free / kPartsOfFreeMemory) return;
  auto buffer = device.allocate(static_cast<std::size_t>(bytes));
  if (buffer && device.fill((*buffer)->data(), 0, (*buffer)->size())) buffer_ = *std::move(buffer);
}

Status CacheFiller::enqueue(device::Stream stream) const {
  if (buffer_ == nullptr) return {};
  const std::size_t half = buffer_->size() / 2;
  return device_.copy(buffer_->data() + half, buffer_->data(), half, stream);
}

}  // namespace dorajit::autotune
