// NVRTC, located and opened at run time.
#pragma once

#include <cstddef>
#include <string>
#include <vector>

#include "runtime/base/dynamic_library.h"
#include "runtime/base/error.h"

namespace dorajit::compile {

using NvrtcProgram = struct NvrtcProgramOpaque*;

// clang-format off
#define DORAJIT_NVRTC_FUNCTIONS(X)                                                                 \
  X(version, "nvrtcVersion", int, (int*, int*))                                                    \
  X(get_error_string, "nvrtcGetErrorString", const char*, (int))                                   \
  X(num_supported_archs, "nvrtcGetNumSupportedArchs", int, (int*))                                 \
  X(supported_archs, "nvrtcGetSupportedArchs", int, (int*))                                        \
  X(create_program, "nvrtcCreateProgram", int,                                                     \
    (NvrtcProgram*, const char*, const char*, int, const char* const*, const char* const*))        \
  X(destroy_program, "nvrtcDestroyProgram", int, (NvrtcProgram*))                                  \
  X(add_name_expression, "nvrtcAddNameExpression", int, (NvrtcProgram, const char*))               \
  X(lowered_name, "nvrtcGetLoweredName", int, (NvrtcProgram, const char*, const char**))           \
  X(compile_program, "nvrtcCompileProgram", int, (NvrtcProgram, int, const char* const*))          \
  X(log_size, "nvrtcGetProgramLogSize", int, (NvrtcProgram, std::size_t*))                         \
  X(log, "nvrtcGetProgramLog", int, (NvrtcProgram, char*))                                         \
  X(cubin_size, "nvrtcGetCUBINSize", int, (NvrtcProgram, std::size_t*))                            \
  X(cubin, "nvrtcGetCUBIN", int, (NvrtcProgram, char*))                                            \
  X(ptx_size, "nvrtcGetPTXSize", int, (NvrtcProgram, std::size_t*))                                \
  X(ptx, "nvrtcGetPTX", int, (NvrtcProgram, char*))
// clang-format on

class NvrtcLibrary {
 public:
  // Possible locations of NVRTC, best first: only `hint` (a file or folder) if it is not empty;
  // else the pip wheels of the active Python environment, CUDA_PATH, CUDA_HOME, the system. NVRTC
  // in the environment of this code is skipped, with a warning, if every user may write there.
  static std::vector<std::string> candidates(const std::string& hint);

  // The NVRTC that this process has loaded, else the first candidate that opens. kNoCompiler if
  // there is none or it is older than CUDA 12.
  static Result<NvrtcLibrary> open(const std::string& hint);

  // The file that open() would load, without loading it; empty if only opening can tell.
  static std::string locate(const std::string& hint);

  [[nodiscard]] const std::string& path() const { return path_; }

#define DORAJIT_DECLARE(member, symbol, result, parameters) result(*member) parameters = nullptr;
  DORAJIT_NVRTC_FUNCTIONS(DORAJIT_DECLARE)
#undef DORAJIT_DECLARE

 private:
  static Result<NvrtcLibrary> bind(DynamicLibrary library);

  std::string path_;
};

}  // namespace dorajit::compile
