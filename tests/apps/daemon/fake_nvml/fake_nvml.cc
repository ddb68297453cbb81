// A library with the face of NVML: an H200, a GPU that is lost, a T4 and another H200. The file
// that FAKE_NVML names says how many percent the two H200s are used; without it there is no driver.
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <fstream>

namespace {

struct Utilization {
  unsigned gpu, memory;
};

constexpr std::uintptr_t kFirst = 1;
constexpr std::uintptr_t kLost = 2;
constexpr std::uintptr_t kT4 = 3;

std::uintptr_t number(void* device) { return reinterpret_cast<std::uintptr_t>(device); }

}  // namespace

extern "C" {

// NVIDIA's names, and handles that point nowhere.
// NOLINTBEGIN(readability-identifier-naming, performance-no-int-to-ptr)
int nvmlInit_v2() { return std::getenv("FAKE_NVML") != nullptr ? 0 : 9; }
int nvmlShutdown() { return 0; }
int nvmlDeviceGetCount_v2(unsigned* count) {
  *count = 4;
  return 0;
}
int nvmlDeviceGetHandleByIndex_v2(unsigned index, void** device) {
  *device = reinterpret_cast<void*>(index + kFirst);
  return number(*device) == kLost ? 15 : 0;
}
int nvmlDeviceGetName(void* device, char* name, unsigned size) {
  std::strncpy(name, number(device) == kT4 ? "NVIDIA T4" : "NVIDIA H200", size);
  return 0;
}
int nvmlDeviceGetUUID(void* device, char* uuid, unsigned size) {
  std::snprintf(uuid, size, "GPU-%u", static_cast<unsigned>(number(device)));
  return 0;
}
int nvmlDeviceGetUtilizationRates(void* device, Utilization* rates) {
  std::ifstream file(std::getenv("FAKE_NVML"));
  unsigned first = 0;
  unsigned last = 0;
  file >> first >> last;
  rates->memory = 0;
  rates->gpu = number(device) == kT4 ? 0 : number(device) == kFirst ? first : last;
  return 0;
}
// NOLINTEND(readability-identifier-naming, performance-no-int-to-ptr)
}
