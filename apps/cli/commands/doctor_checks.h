// What `dorajit doctor` checks.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "autotune/engine_factory.h"
#include "runtime/base/error.h"
#include "runtime/base/settings.h"
#include "runtime/engine.h"

namespace dorajit::cli {

enum class Condition {
  kGood,
  kAbsent,   // not here, which may be intended
  kWarning,  // works, but not as well as it could
  kBroken,
};

std::string_view name(Condition condition);

struct Finding {
  std::string subject;
  Condition condition = Condition::kGood;
  std::string what;  // what was found
  std::string log;   // of a compiler, if one failed
};

Finding check_driver();
Finding check_nvrtc(const Settings& settings, launch::KernelCache& kernels);
Finding check_host_compiler(launch::KernelCache& kernels);
Finding check_cache_folder(const std::string& cache_dir, cache::TuningStore& store);
Finding check_database(cache::TuningStore& store);
// The databases that are read besides the user's.
Finding check_shipped_databases(const std::string& folder, const cache::Trust& trust);
// The lock file of applications; `path` is not empty.
Finding check_lock_file(const std::string& path);
// The variables that dorajit reads, or that look as if it did, by name.
std::vector<Finding> check_environment();
// Opens the device and runs the self test on it.
Finding check_device(Engine& engine, const launch::DeviceId& id);

}  // namespace dorajit::cli
