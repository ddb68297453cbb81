// All settings, and the environment variables that set them.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "runtime/base/error.h"
#include "runtime/base/log.h"

namespace dorajit {

// What to do about a problem without a winner.
enum class TunePolicy {
  kAutomatic,  // kDaemon if a daemon is running, else kFirstUse
  kFirstUse,   // tune now, in this process, within the budget
  kDaemon,     // ask the daemon; until it answers, use the fallback chain's config
  kOff,        // use the fallback chain's config
};

// What to do about a problem that is missing from the lock file, or whose locked config cannot run.
enum class LockedMiss {
  kReport,  // log one warning
  kFail,    // its calls fail
};

inline constexpr double kMaxTuneSeconds = 86400;
inline constexpr int kMaxTuneCandidates = 1'000'000;
inline constexpr int kMaxCpuThreads = 1'000'000;

// The value of a variable of this process; empty if it is not set.
std::string_view environment_variable(const char* name);

struct Settings {
  std::string cache_dir;   // absolute; empty: nothing is stored on disk
  std::string tuning_dir;  // folder of the database and its locks; set by make_engine()
  std::string daemon_dir;  // absolute; folder of the daemon's socket; empty: the default location
  std::int64_t cache_max_bytes = std::int64_t{1} << 30;  // bound on compiled kernels in cache_dir
  bool trust_group = false;       // trust files in cache_dir that members of its group may write
  std::string shipped_databases;  // folder of read-only databases; empty: none
  TunePolicy tune_policy = TunePolicy::kAutomatic;
  double tune_seconds = 2.0;       // per problem, at most kMaxTuneSeconds
  std::int64_t scratch_bytes = 0;  // 0: min(2 GiB, a quarter of free memory)
  int tune_candidates = 0;         // maximum number of configs tried per problem; 0: all
  LogLevel log_level = LogLevel::kWarning;
  bool comprehensive = false;     // DORAJIT_AUTOTUNE=comprehensive
  bool print_autotuning = false;  // print the result of each tuning to standard error
  std::string record_path;        // absolute; file that records the problems in use; empty: none
  std::string locked_path;        // absolute; the lock file; empty: none
  LockedMiss locked_miss = LockedMiss::kReport;
  int cpu_threads = 0;  // maximum per CPU kernel; 0: all that are available
  // Skips the driver's check that pointers belong to their tensor's device.
  bool trust_device_pointers = false;
  std::string nvrtc_path;     // file or folder; empty: search
  std::string host_compiler;  // path or name; empty: search; "none": use no compiler
  // The program whose processes compile users' kernels, dorajitd; empty: the installed one; "none":
  // they are compiled in this process.
  std::string worker;

  // Reads the environment of this process (docs/environment.md lists the variables). An unknown
  // value is kInvalidArgument, with the variable, its value and the accepted values.
  static Result<Settings> from_environment();
};

}  // namespace dorajit
