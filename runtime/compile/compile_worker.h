// Compiles users' kernels in processes of their own: a source that crashes NVRTC, or keeps it busy
// for long, costs that process, and NVRTC reads no file that the source includes.
#pragma once

#include <chrono>
#include <string>
#include <string_view>

#include "runtime/base/error.h"
#include "runtime/compile/nvrtc_program.h"

namespace dorajit::compile {

// Settings::worker: users' kernels are compiled in this process.
inline constexpr std::string_view kNoWorker = "none";

// Runs the job with the NVRTC at that path in a process of `program` (dorajitd), which is killed at
// the deadline, at the latest after kCompileTimeLimit. `what` is for messages. kInternal if the
// process crashed, kCompileError if it was killed.
Result<NvrtcOutput> run_in_worker(const std::string& program, const std::string& nvrtc,
                                  const NvrtcJob& job, std::string_view what,
                                  std::chrono::steady_clock::time_point deadline);

// Such a process: takes its job from the working folder and leaves the output there. Returns only
// if it cannot write there.
Status run_compile_worker();

}  // namespace dorajit::compile
