// Everything that may be configured, and the environment variables that set it.
#pragma once

#include <cstdint>
#include <string>

#include "runtime/base/error.h"
#include "runtime/base/log.h"

namespace dorajit {

// What to do about a problem without a winner.
enum class TunePolicy {
  kAutomatic,  // kDaemon where one answers, else kFirstUse
  kFirstUse,   // tune now, in this process, within the budget
  kDaemon,     // ask the daemon, and run the fallback chain's answer meanwhile
  kOff,        // run the fallback chain's answer
};

// What to do about a problem that a lock file says nothing of, or that cannot run as it says.
enum class LockedMiss {
  kReport,  // one warning says so
  kFail,    // its calls fail
};

inline constexpr double kMaxTuneSeconds = 86400;
inline constexpr int kMaxTuneCandidates = 1'000'000;
inline constexpr int kMaxCpuThreads = 1'000'000;

struct Settings {
  std::string cache_dir;   // absolute; empty: nothing is kept on disk
  std::string tuning_dir;  // of the database and its locks; make_engine() derives it
  std::string daemon_dir;  // absolute; where the daemon listens; empty: the usual place
  std::int64_t cache_max_bytes = std::int64_t{1} << 30;  // of compiled kernels there
  bool trust_group = false;       // groups that may write what is there may run code here
  std::string shipped_databases;  // folder of databases to read from; empty: none
  TunePolicy tune_policy = TunePolicy::kAutomatic;
  double tune_seconds = 2.0;       // per problem, at most kMaxTuneSeconds
  std::int64_t scratch_bytes = 0;  // 0: min(2 GiB, a quarter of free memory)
  int tune_candidates = 0;         // configs tried per problem at most; 0: all
  LogLevel log_level = LogLevel::kWarning;
  bool comprehensive = false;     // DORAJIT_AUTOTUNE=comprehensive
  bool print_autotuning = false;  // say on standard error what each tuning found
  std::string record_path;        // absolute; problems that are met go there; empty: nowhere
  std::string locked_path;        // absolute; the lock file that holds; empty: none
  LockedMiss locked_miss = LockedMiss::kReport;
  int cpu_threads = 0;                 // that run a CPU kernel at most; 0: all that may be used
  bool trust_device_pointers = false;  // callers do: data lies on the device that its tensor names
  std::string nvrtc_path;              // file or folder; empty: search
  std::string host_compiler;           // path or name; empty: search; "none": do without

  // The environment of this process (docs/environment.md lists the variables). An unknown value is
  // kInvalidArgument and names the variable, its value and the values that it takes.
  static Result<Settings> from_environment();
};

}  // namespace dorajit
