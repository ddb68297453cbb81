#include "apps/cli/commands/environment_report.h"

#include <unistd.h>

#include <algorithm>
#include <string_view>

namespace dorajit::cli {
namespace {

constexpr std::string_view kPrefix = "DORAJIT_";
constexpr std::string_view kKnown[] = {"DORAJIT_AUTOTUNE",
                                       "DORAJIT_CACHE_DIR",
                                       "DORAJIT_CACHE_MAX_BYTES",
                                       "DORAJIT_CXX",
                                       "DORAJIT_DAEMON_DIR",
                                       "DORAJIT_DATABASES",
                                       "DORAJIT_LOCKED",
                                       "DORAJIT_LOCKED_MISS",
                                       "DORAJIT_LOG",
                                       "DORAJIT_NVRTC",
                                       "DORAJIT_PRINT_AUTOTUNING",
                                       "DORAJIT_RECORD",
                                       "DORAJIT_SCRATCH_BYTES",
                                       "DORAJIT_TRUST_GROUP",
                                       "DORAJIT_TUNE",
                                       "DORAJIT_TUNE_CANDIDATES",
                                       "DORAJIT_TUNE_SECONDS"};
// Not ours, but read: where the cache and temporary files go, where CUDA is, which GPUs show.
constexpr std::string_view kForeign[] = {"CONDA_PREFIX",
                                         "CUDA_HOME",
                                         "CUDA_PATH",
                                         "CUDA_VISIBLE_DEVICES",
                                         "DORA_AUTOTUNE_COMPREHENSIVE",
                                         "TMPDIR",
                                         "VIRTUAL_ENV",
                                         "XDG_CACHE_HOME",
                                         "XDG_RUNTIME_DIR"};

}  // namespace

std::vector<EnvironmentVariable> variables_in_force() {
  std::vector<EnvironmentVariable> found;
  for (char** entry = environ; entry != nullptr && *entry != nullptr; ++entry) {
    const std::string_view text = *entry;
    const std::string_view name = text.substr(0, text.find('='));
    const bool is_ours = name.starts_with(kPrefix);
    if (!is_ours && std::ranges::find(kForeign, name) == std::end(kForeign)) continue;
    const std::string_view value = text.substr(std::min(name.size() + 1, text.size()));
    found.push_back({.name = std::string(name),
                     .value = std::string(value),
                     .is_known = !is_ours || std::ranges::find(kKnown, name) != std::end(kKnown)});
  }
  std::ranges::sort(found, {}, &EnvironmentVariable::name);
  return found;
}

}  // namespace dorajit::cli
