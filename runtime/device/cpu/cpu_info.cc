#include "runtime/device/cpu/cpu_info.h"

#include <sched.h>
#include <sys/utsname.h>
#include <unistd.h>

#include <algorithm>
#include <cmath>
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

// The CPU quota of the container, in processors, or `otherwise` if there is none: "200000 100000"
// is two.
int quota_processors(int otherwise) {
  std::ifstream file("/sys/fs/cgroup/cpu.max");
  double quota = 0;
  double period = 0;
  if (!(file >> quota >> period) || period <= 0) return otherwise;
  return static_cast<int>(std::ceil(quota / period));
}

// The threads that this process may use, within the limits of containers and job schedulers.
int usable_processors() {
  int processors = static_cast<int>(sysconf(_SC_NPROCESSORS_ONLN));
  cpu_set_t set;
  CPU_ZERO(&set);
  if (sched_getaffinity(0, sizeof set, &set) == 0) processors = CPU_COUNT(&set);
  return std::max(1, std::min(processors, quota_processors(processors)));
}

// The largest cache of the first processor. In some virtual machines sysconf() reports the host's.
std::int64_t last_level_cache_bytes() {
  std::int64_t largest = 0;
  for (int index = 0; index < 8; ++index) {
    std::ifstream file(std::format("/sys/devices/system/cpu/cpu0/cache/index{}/size", index));
    std::int64_t kibibytes = 0;
    if (file >> kibibytes) largest = std::max(largest, kibibytes * 1024);
  }
  return largest;
}

constexpr int kMaxWorkers = 64;  // fewer threads already saturate the memory bandwidth
constexpr std::int64_t kAssumedCacheBytes = 32LL << 20;

}  // namespace

std::int64_t free_memory_bytes() {
  const std::int64_t free =
      static_cast<std::int64_t>(sysconf(_SC_AVPHYS_PAGES)) * sysconf(_SC_PAGESIZE);
  std::ifstream limit_file("/sys/fs/cgroup/memory.max");
  std::ifstream used_file("/sys/fs/cgroup/memory.current");
  std::int64_t limit = 0;
  std::int64_t used = 0;
  if (!(limit_file >> limit) || !(used_file >> used)) return free;
  return std::clamp<std::int64_t>(limit - used, 0, free);
}

DeviceInfo read_cpu_info(int max_threads) {
  DeviceInfo info;
  info.name = cpuinfo_field("model name");
  if (info.name.empty()) info.name = "CPU";
  const int wanted = max_threads > 0 ? std::min(max_threads, kMaxWorkers) : kMaxWorkers;
  const int processors = std::min(usable_processors(), wanted);
  info.traits = {.kind = kernels::DeviceKind::kCpu, .processors = processors};
  utsname system{};
  const bool named = uname(&system) == 0;
  info.driver_version = named ? system.release : "unknown";
  // Model and stepping identify the target of "native"; the flags show what the kernel enables. The
  // fields differ by architecture: first those of x86, then those of Arm.
  std::string identity = named ? system.machine : "";
  for (const char* field :
       {"vendor_id", "cpu family", "model\t", "stepping", "flags", "CPU implementer",
        "CPU architecture", "CPU variant", "CPU part", "Features"}) {
    identity.append("|").append(cpuinfo_field(field));
  }
  const std::string isa = hash_hex(identity).substr(0, 12);
  info.fingerprint = std::format("cpu/{}/{}/{} threads", info.name, isa, processors);
  info.target = {.kind = kernels::DeviceKind::kCpu,
                 .arch = std::format("native {} {}", info.name, isa)};
  const std::int64_t cache = last_level_cache_bytes();
  info.cache_bytes = cache > 0 ? cache : kAssumedCacheBytes;
  info.memory_bytes = static_cast<std::int64_t>(sysconf(_SC_PHYS_PAGES)) * sysconf(_SC_PAGESIZE);
  return info;
}

}  // namespace dorajit::device
