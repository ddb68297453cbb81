#include "runtime/device/cpu/cpu_info.h"

#include <sched.h>
#include <sys/utsname.h>
#include <unistd.h>

#include <algorithm>
#include <format>
#include <fstream>
#include <string>

#include "runtime/base/hash.h"

namespace dorajit::device {
namespace {

// The first value of a field in /proc/cpuinfo.
std::string cpuinfo_field(std::string_view field) {
  std::ifstream file("/proc/cpuinfo");
  for (std::string line; std::getline(file, line);) {
    if (!line.starts_with(field)) continue;
    const std::size_t colon = line.find(": ");
    return colon == std::string::npos ? std::string() : line.substr(colon + 2);
  }
  return {};
}

// The threads that this process may use, as containers and job schedulers limit them.
int usable_processors() {
  cpu_set_t set;
  CPU_ZERO(&set);
  if (sched_getaffinity(0, sizeof set, &set) == 0) return std::max(1, CPU_COUNT(&set));
  return std::max(1, static_cast<int>(sysconf(_SC_NPROCESSORS_ONLN)));
}

// The largest cache of the first processor. sysconf() reports the host's in some virtual machines.
std::int64_t last_level_cache_bytes() {
  std::int64_t largest = 0;
  for (int index = 0; index < 8; ++index) {
    std::ifstream file(std::format("/sys/devices/system/cpu/cpu0/cache/index{}/size", index));
    std::int64_t kibibytes = 0;
    if (file >> kibibytes) largest = std::max(largest, kibibytes * 1024);
  }
  return largest;
}

constexpr int kMostWorkers = 64;  // bandwidth is spent long before
constexpr std::int64_t kAssumedCacheBytes = 32LL << 20;

}  // namespace

DeviceInfo read_cpu_info() {
  DeviceInfo info;
  info.name = cpuinfo_field("model name");
  if (info.name.empty()) info.name = "CPU";
  const int processors = std::min(usable_processors(), kMostWorkers);
  info.traits = {.kind = kernels::DeviceKind::kCpu, .processors = processors};
  // Model and stepping stand for what "native" means; the flags for what the kernel lets us use.
  const std::string isa = hash_hex(cpuinfo_field("flags")).substr(0, 8);
  const std::string model = std::format("{}-{}-{}", cpuinfo_field("cpu family"),
                                        cpuinfo_field("model\t"), cpuinfo_field("stepping"));
  info.fingerprint = std::format("cpu/{}/{}/{}/{} threads", info.name, model, isa, processors);
  info.target = {.kind = kernels::DeviceKind::kCpu,
                 .arch = std::format("native {} {} {}", info.name, model, isa)};
  utsname system{};
  info.driver_version = uname(&system) == 0 ? system.release : "unknown";
  const std::int64_t cache = last_level_cache_bytes();
  info.cache_bytes = cache > 0 ? cache : kAssumedCacheBytes;
  info.memory_bytes = static_cast<std::int64_t>(sysconf(_SC_PHYS_PAGES)) * sysconf(_SC_PAGESIZE);
  return info;
}

}  // namespace dorajit::device
