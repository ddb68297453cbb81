#include "autotune/search/resource_limits.h"

namespace dorajit::autotune {
namespace {

// The same on all GPUs from compute capability 5.0 on.
constexpr int kRegistersPerBlock = 64 * 1024;
constexpr int kRegistersAtOnce = 256;  // allocation unit of a warp
constexpr int kStaticSharedBytes = 48 * 1024;

int registers_of_block(int registers_per_thread, int warps) {
  const int per_warp = registers_per_thread * kernels::kThreadsPerWarp;
  return warps * ((per_warp + kRegistersAtOnce - 1) / kRegistersAtOnce * kRegistersAtOnce);
}

}  // namespace

std::optional<cache::Verdict> verdict_by_resources(const ResourceUsage& used, int warps,
                                                   kernels::DeviceKind kind) {
  if (used.spill_store_bytes > 0 || used.spill_load_bytes > 0) return cache::Verdict::kSpills;
  if (kind == kernels::DeviceKind::kCuda &&
      (registers_of_block(used.registers, warps) > kRegistersPerBlock ||
       used.shared_bytes > kStaticSharedBytes)) {
    return cache::Verdict::kFailedToLaunch;
  }
  return std::nullopt;
}

}  // namespace dorajit::autotune
