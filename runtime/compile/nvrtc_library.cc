#include "runtime/compile/nvrtc_library.h"

#include <cstdlib>
#include <filesystem>
#include <format>

#include "runtime/base/dynamic_library.h"
#include "runtime/base/log.h"

namespace dorajit::compile {
namespace {

namespace fs = std::filesystem;

constexpr const char* kSonames[] = {"libnvrtc.so.13", "libnvrtc.so.12", "libnvrtc.so"};
constexpr int kOldestMajor = 12;

void add_folder(const fs::path& folder, std::vector<std::string>& found) {
  std::error_code ignored;
  for (const char* soname : kSonames) {
    const fs::path file = folder / soname;
    if (fs::exists(file, ignored)) found.push_back(file.string());
  }
}

// The folder in an environment variable; empty if the variable is not set.
fs::path folder_of(const char* variable) {
  const char* value = std::getenv(variable);
  const fs::path folder = value != nullptr ? value : "";
  return folder.is_absolute() ? folder : fs::path();
}

// <site-packages>/nvidia/{cu13,cuda_nvrtc}/lib
void add_wheels(const fs::path& site_packages, std::vector<std::string>& found) {
  for (const char* package : {"cu13", "cuda_nvrtc"}) {
    add_folder(site_packages / "nvidia" / package / "lib", found);
  }
}

// <environment>/lib/python3.X/site-packages; Debian uses dist-packages.
void add_python_wheels(const fs::path& environment, std::vector<std::string>& found) {
  std::error_code ignored;
  for (const auto& entry : fs::directory_iterator(environment / "lib", ignored)) {
    if (!entry.path().filename().string().starts_with("python3")) continue;
    for (const char* packages : {"site-packages", "dist-packages"}) {
      add_wheels(entry.path() / packages, found);
    }
  }
}

// lib/ of the conda environment that contains this code: a program in its bin/, or a package in its
// lib/python3.X/site-packages/.
void add_own_environment(const fs::path& own, std::vector<std::string>& found) {
  if (own.filename() == "bin") add_folder(own.parent_path() / "lib", found);
  if (own.parent_path().filename() == "site-packages") {
    add_folder(own.parent_path().parent_path().parent_path(), found);
  }
}

// NVRTC in the Python environment in which this code is installed, as a package or as a program.
std::vector<std::string> in_environment_of(const fs::path& own) {
  std::vector<std::string> found;
  add_wheels(own.parent_path(), found);
  add_python_wheels(own.parent_path(), found);
  add_own_environment(own, found);
  return found;
}

// Whether every user may create folders there, even with the sticky bit.
bool is_open_to_all(const fs::path& folder) {
  std::error_code error;
  const fs::perms mode = fs::status(folder, error).permissions();
  return !error && (mode & fs::perms::others_write) != fs::perms::none;
}

void say_passed_over(const std::string& library, const fs::path& own) {
  log_once(
      LogLevel::kWarning, "passed over " + library,
      std::format("{} is not used, because every user may write {}, the folder above dorajit's own "
                  "({}); install dorajit where others cannot write, or set DORAJIT_NVRTC={} "
                  "if you trust that file",
                  library, own.parent_path().string(), own.string(), library));
}

// NVRTC opens its builtins by bare name, which fails outside the system's search path unless the
// process has loaded them already.
void preload_builtins(const fs::path& library) {
  std::error_code ignored;
  for (const auto& entry : fs::directory_iterator(library.parent_path(), ignored)) {
    const std::string name = entry.path().filename().string();
    if (!name.starts_with("libnvrtc-builtins.so")) continue;
    if (auto builtins = DynamicLibrary::open(entry.path().string())) builtins->keep_forever();
  }
}

}  // namespace

std::vector<std::string> NvrtcLibrary::candidates(const std::string& hint) {
  std::vector<std::string> found;
  std::error_code ignored;
  if (!hint.empty()) {
    if (fs::is_directory(hint, ignored)) {
      add_folder(hint, found);
    } else {
      found.push_back(hint);
    }
    return found;
  }
  if (const fs::path own = folder_of_this_code(); !own.empty()) {
    found = in_environment_of(own);
    // Files beside a folder in /tmp may belong to any user.
    if (!found.empty() && is_open_to_all(own.parent_path())) {
      say_passed_over(found.front(), own);
      found.clear();
    }
  }
  for (const char* variable : {"VIRTUAL_ENV", "CONDA_PREFIX"}) {
    if (const fs::path environment = folder_of(variable); !environment.empty()) {
      add_python_wheels(environment, found);
      add_folder(environment / "lib", found);
    }
  }
  for (const char* variable : {"CUDA_PATH", "CUDA_HOME"}) {
    if (const fs::path toolkit = folder_of(variable); !toolkit.empty()) {
      add_folder(toolkit / "lib64", found);
    }
  }
  add_folder("/usr/local/cuda/lib64", found);
  found.insert(found.end(), std::begin(kSonames), std::end(kSonames));
  return found;
}

std::string NvrtcLibrary::locate(const std::string& hint) {
  if (hint.empty()) {
    for (const char* soname : kSonames) {
      if (DynamicLibrary::find_loaded(soname)) return {};
    }
  }
  const auto all = candidates(hint);
  if (all.empty() || !all.front().contains('/')) return {};
  return all.front();
}

Result<NvrtcLibrary> NvrtcLibrary::bind(DynamicLibrary library) {
  NvrtcLibrary nvrtc;
  const char* missing = nullptr;
#define DORAJIT_LOAD(member, symbol_name, result, parameters)                         \
  nvrtc.member = reinterpret_cast<result(*) parameters>(library.symbol(symbol_name)); \
  if (nvrtc.member == nullptr) missing = symbol_name;
  DORAJIT_NVRTC_FUNCTIONS(DORAJIT_LOAD)
#undef DORAJIT_LOAD
  if (nvrtc.version != nullptr) {
    nvrtc.path_ = DynamicLibrary::file_of(reinterpret_cast<const void*>(nvrtc.version));
  }
  library.keep_forever();  // NVRTC has threads and thread-local state: unloading it is not safe
  int major = 0;
  int minor = 0;
  if (missing == nullptr) nvrtc.version(&major, &minor);
  if (missing != nullptr || major < kOldestMajor) {
    return fail(StatusCode::kNoCompiler,
                std::format("NVRTC at {} is too old ({}); dorajit needs CUDA {} or later: pip "
                            "install nvidia-cuda-nvrtc, or set DORAJIT_NVRTC to another libnvrtc",
                            nvrtc.path_,
                            missing != nullptr ? std::format("it has no {}", missing)
                                               : std::format("CUDA {}.{}", major, minor),
                            kOldestMajor));
  }
  return nvrtc;
}

Result<NvrtcLibrary> NvrtcLibrary::open(const std::string& hint) {
  if (hint.empty()) {
    for (const char* soname : kSonames) {
      if (auto loaded = DynamicLibrary::find_loaded(soname)) {
        if (auto nvrtc = bind(*std::move(loaded))) return nvrtc;
      }
    }
  }
  std::string tried;
  Error too_old;
  for (const std::string& candidate : candidates(hint)) {
    if (candidate.contains('/')) preload_builtins(candidate);
    auto library = DynamicLibrary::open(candidate);
    if (!library) {
      tried += std::format("\n  {}", library.error().message);
      continue;
    }
    auto nvrtc = bind(*std::move(library));
    if (nvrtc) return nvrtc;
    too_old = std::move(nvrtc).error();
  }
  if (!too_old.message.empty()) return std::unexpected(too_old);
  return fail(
      StatusCode::kNoCompiler,
      std::format("NVRTC was not found{}; install it (pip install nvidia-cuda-nvrtc, or the "
                  "CUDA toolkit), or set DORAJIT_NVRTC to libnvrtc or its folder",
                  hint.empty() ? "" : " at DORAJIT_NVRTC=" + hint),
      tried);
}

}  // namespace dorajit::compile
