// A library with the face of NVML: two GPUs that are as busy as an environment variable says.
#include <cstdint>
#include <cstdlib>
#include <cstring>

namespace {

struct Utilization {
  unsigned gpu, memory;
};

}  // namespace

extern "C" {

// NVIDIA's names, and handles that point nowhere.
// NOLINTBEGIN(readability-identifier-naming, performance-no-int-to-ptr)
int nvmlInit_v2() { return std::getenv("FAKE_NVML_PERCENT") != nullptr ? 0 : 9; }
int nvmlShutdown() { return 0; }
int nvmlDeviceGetCount_v2(unsigned* count) {
  *count = 3;
  return 0;
}
int nvmlDeviceGetHandleByIndex_v2(unsigned index, void** device) {
  *device = reinterpret_cast<void*>(static_cast<std::uintptr_t>(index) + 1);
  return index == 1 ? 15 : 0;  // lost
}
int nvmlDeviceGetName(void* device, char* name, unsigned size) {
  std::strncpy(name, device == reinterpret_cast<void*>(1) ? "NVIDIA H200" : "NVIDIA T4", size);
  return 0;
}
int nvmlDeviceGetUtilizationRates(void* device, Utilization* rates) {
  rates->memory = 0;
  rates->gpu = device == reinterpret_cast<void*>(1)
                   ? static_cast<unsigned>(std::atoi(std::getenv("FAKE_NVML_PERCENT")))
                   : 0;
  return 0;
}
// NOLINTEND(readability-identifier-naming, performance-no-int-to-ptr)
}
