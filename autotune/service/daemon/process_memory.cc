#include "autotune/service/daemon/process_memory.h"

#include <unistd.h>

#include <format>
#include <fstream>

namespace dorajit::autotune {

std::int64_t resident_bytes(pid_t process) {
  std::ifstream file(std::format("/proc/{}/statm", process));
  std::int64_t total_pages = 0;
  std::int64_t resident_pages = 0;
  if (!(file >> total_pages >> resident_pages)) return 0;
  return resident_pages * ::sysconf(_SC_PAGESIZE);
}

std::int64_t physical_bytes() {
  return static_cast<std::int64_t>(::sysconf(_SC_PHYS_PAGES)) * ::sysconf(_SC_PAGESIZE);
}

}  // namespace dorajit::autotune
