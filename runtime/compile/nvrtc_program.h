// One compilation by NVRTC, in the process that calls it.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "kernel_templates/program.h"
#include "runtime/base/artifact_store.h"
#include "runtime/compile/nvrtc_library.h"

namespace dorajit::compile {

// The option that makes a log have the resources of a kernel.
inline constexpr const char* kReportResources = "--ptxas-options=-v";

struct NvrtcJob {
  kernels::Program program;
  std::vector<std::string> options;
  bool makes_cubin = true;  // else PTX
};

struct NvrtcOutput {
  std::string failure;  // empty: it compiled
  std::string log;
  std::string entry;  // the symbol
  std::string code;
};

// Cannot be interrupted. NVRTC's front end compiles for one thread of a process at a time.
NvrtcOutput run_nvrtc(const NvrtcLibrary& nvrtc, const NvrtcJob& job);

// The first line of a log that has an error; empty where there is none.
std::string_view first_error_line(std::string_view log);

// The first errors of a log, each with the template arguments that the compiler's notes to it name:
// `k.cu(3): error: identifier "x" is undefined [with BLOCK=128]`.
std::string first_errors(std::string_view log);

// Parses the resource figures of ptxas's verbose report; missing figures are zero.
ResourceUsage parse_resource_report(std::string_view log);

}  // namespace dorajit::compile
