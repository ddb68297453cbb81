// Other data for a GPU's last-level cache.
#pragma once

#include <memory>

#include "runtime/base/error.h"
#include "runtime/device/device.h"

namespace dorajit::autotune {

// Copies other data through the cache, as the layers between two launches do: part of what stays is
// clean and part has yet to be written back, which costs the next launch as it costs a caller.
// While the copy runs, the CPU enqueues what is to be timed, so that no wait for the CPU is in the
// time.
class CacheFiller {
 public:
  // Does nothing on a CPU, where rotating among operands is enough and a copy would be slow, and
  // where the memory cannot be had.
  explicit CacheFiller(device::Device& device);

  // Enqueues the copy.
  Status enqueue(device::Stream stream) const;

 private:
  device::Device& device_;
  std::unique_ptr<device::Buffer> buffer_;
};

}  // namespace dorajit::autotune
