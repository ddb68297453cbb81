#include "kernel_templates/templates/shared_memory.h"

#include <format>

namespace dorajit::kernels {
namespace {

// The maximum for a program.
long long max_shared_bytes(int architecture) {
  constexpr long long kKibi = 1024;
  switch (architecture) {
    case 80:
    case 87:
      return 163 * kKibi;
    case 90:
    case 100:
    case 103:
    case 110:
      return 227 * kKibi;
    default:
      return 99 * kKibi;
  }
}

}  // namespace

std::string why_beyond_shared_memory(long long wanted, const SpaceTraits& traits) {
  const long long max_bytes = max_shared_bytes(traits.architecture);
  if (wanted <= max_bytes) return {};
  return std::format("its tiles take {} bytes of shared memory, of which there are {}", wanted,
                     max_bytes);
}

}  // namespace dorajit::kernels
