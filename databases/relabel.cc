// Keeps shipped trials valid after a change of kernel sources that leaves the machine code as it
// is, such as a renamed variable or a reworded comment. A trial names the sources of its kernel by
// their hash, so any such change invalidates it.
//
//     dorajit_relabel codes FILE.jsonl > codes.txt    built from the sources before the change
//     dorajit_relabel apply FILE.jsonl codes.txt      built from the sources after it
//
// `codes` compiles every kernel of the file's trials and prints, one line each, its variant, its
// config, the hash of its sources and the hash of its machine code. `apply` compiles them again. A
// trial gets the hash of the present sources if its kernel has the same machine code as before;
// other trials are removed, and counted on standard error. Needs NVRTC (DORAJIT_NVRTC), but no GPU.
#include <elf.h>

#include <algorithm>
#include <atomic>
#include <cstdint>
#include <cstdio>
#include <cstring>
#include <format>
#include <fstream>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <thread>
#include <vector>

#include "cache/database/trial_files.h"
#include "kernel_templates/config_text.h"
#include "kernel_templates/spaces.h"
#include "runtime/base/hash.h"
#include "runtime/base/settings.h"
#include "runtime/compile/nvrtc_compiler.h"
#include "runtime/launch/problem.h"

namespace {

using dorajit::Result;
using dorajit::Status;
using dorajit::cache::Trial;
using dorajit::compile::CompileRequest;
using dorajit::kernels::DeviceKind;

struct Kernel {
  CompileRequest request;
  std::string sources;  // hash of the present ones
  std::string line{};   // "VARIANT CONFIG SOURCES CODE", when it was compiled
  std::optional<dorajit::Error> failure{};
};

std::string name_of(const CompileRequest& request) {
  return std::format("{} {}", to_text(request.variant), to_text(request.config));
}

// The architecture in "cuda/NVIDIA H200/sm_90/132 SMs/...".
Result<dorajit::compile::Target> target_of(const std::string& device) {
  const std::size_t at = device.find("/sm_");
  const auto number = at == std::string::npos ? std::nullopt
                                              : dorajit::compile::cuda_arch_number(device.substr(
                                                    at + 1, device.find('/', at + 1) - at - 1));
  if (!number) {
    return dorajit::fail(dorajit::StatusCode::kInvalidArgument,
                         std::format("device {} names no CUDA architecture", device));
  }
  return dorajit::compile::cuda_target(*number / 10, *number % 10);
}

Result<CompileRequest> request_of(const Trial& trial) {
  const auto problem = dorajit::launch::parse_problem(trial.problem);
  if (!problem) {
    return dorajit::fail(dorajit::StatusCode::kInvalidArgument,
                         std::format("invalid problem key {}", trial.problem));
  }
  DORAJIT_ASSIGN(auto target, target_of(trial.device));
  return CompileRequest{.variant = problem->variant, .config = trial.config, .target = target};
}

// A hash of a cubin without its table of symbols and their names, and without the order of
// initialised constants, which follows their names. Renaming a constant changes these.
std::string hash_of_code(const std::string& cubin) {
  const auto read = [&]<class T>(T& value, std::size_t at) {
    if (at <= cubin.size() - sizeof value) std::memcpy(&value, cubin.data() + at, sizeof value);
  };
  Elf64_Ehdr header{};
  read(header, 0);
  const auto section_at = [&](std::size_t index) {
    Elf64_Shdr section{};
    read(section, header.e_shoff + index * sizeof section);
    return section;
  };
  const Elf64_Shdr names = section_at(header.e_shstrndx);
  dorajit::Hasher hasher("cubin");
  for (std::size_t i = 1; i < header.e_shnum; ++i) {
    const Elf64_Shdr section = section_at(i);
    if (section.sh_type == SHT_SYMTAB || section.sh_type == SHT_STRTAB) continue;
    hasher.add("size", static_cast<std::int64_t>(section.sh_size));
    if (section.sh_type == SHT_NOBITS) continue;
    std::string bytes = cubin.substr(std::min(section.sh_offset, cubin.size()), section.sh_size);
    const std::size_t name = std::min(names.sh_offset + section.sh_name, cubin.size());
    if (std::string_view(cubin).substr(name).starts_with(".nv.global.init")) {
      std::ranges::sort(bytes);
    }
    hasher.add("bytes", bytes);
  }
  return hasher.digest();
}

// The kernels of the trials, by name, compiled by as many threads as there are processors.
Result<std::map<std::string, Kernel>> compile_all(const std::vector<Trial>& trials) {
  std::map<std::string, Kernel> kernels;
  for (const Trial& trial : trials) {
    DORAJIT_ASSIGN(CompileRequest request, request_of(trial));
    kernels.try_emplace(
        name_of(request), request,
        dorajit::hash_hex(dorajit::kernels::source_identity(request.variant, DeviceKind::kCuda)));
  }
  DORAJIT_ASSIGN(const dorajit::Settings settings, dorajit::Settings::from_environment());
  dorajit::compile::NvrtcCompiler nvrtc(settings.nvrtc_path, nullptr);
  std::vector<Kernel*> order;
  for (auto& [name, kernel] : kernels) order.push_back(&kernel);
  std::atomic<std::size_t> next{0};
  const auto work = [&] {
    for (std::size_t i = next++; i < order.size(); i = next++) {
      Kernel& kernel = *order[i];
      const auto made = nvrtc.compile(kernel.request);
      if (!made) {
        kernel.failure = made.error();
        continue;
      }
      kernel.line = std::format("{} {} {}", name_of(kernel.request), kernel.sources,
                                hash_of_code(made->code));
    }
  };
  std::vector<std::thread> threads(std::max(1U, std::thread::hardware_concurrency()));
  for (std::thread& thread : threads) thread = std::thread(work);
  for (std::thread& thread : threads) thread.join();
  for (const Kernel* kernel : order) {
    if (kernel->failure) return std::unexpected(*kernel->failure);
  }
  return kernels;
}

struct Code {
  std::string sources;
  std::string machine_code;
};

// What `codes` printed, by the name of the kernel.
std::map<std::string, Code> read_codes(const char* path) {
  std::map<std::string, Code> codes;
  std::ifstream file(path);
  for (std::string variant, config, sources, code; file >> variant >> config >> sources >> code;) {
    codes[std::format("{} {}", variant, config)] = {sources, code};
  }
  return codes;
}

Status apply(const char* path, std::vector<Trial> trials, const char* codes_path) {
  const std::map<std::string, Code> before = read_codes(codes_path);
  DORAJIT_ASSIGN(const auto now, compile_all(trials));
  const auto removed = std::erase_if(trials, [&](Trial& trial) {
    const std::string name = name_of(*request_of(trial));
    const Kernel& kernel = now.at(name);
    const auto old = before.find(name);
    const bool is_same = old != before.end() &&
                         trial.environment.templates == old->second.sources &&
                         kernel.line.ends_with(" " + old->second.machine_code);
    trial.environment.templates = kernel.sources;
    return !is_same;
  });
  DORAJIT_TRY(dorajit::cache::write_trial_file(path, trials));
  std::fprintf(stderr, "%s: %zu trials kept, %zu removed\n", path, trials.size(), removed);
  return {};
}

Status run(const std::string& mode, const char* path, const char* codes_path) {
  DORAJIT_ASSIGN(const auto file, dorajit::cache::read_trial_file(path));
  if (mode == "apply") return apply(path, file.trials, codes_path);
  DORAJIT_ASSIGN(const auto kernels, compile_all(file.trials));
  for (const auto& [name, kernel] : kernels) std::printf("%s\n", kernel.line.c_str());
  return {};
}

}  // namespace

int main(int count, char** arguments) {
  const std::string mode = count > 1 ? arguments[1] : "";
  if (!(mode == "codes" && count == 3) && !(mode == "apply" && count == 4)) {
    std::fprintf(stderr, "usage: %s codes FILE.jsonl | apply FILE.jsonl CODES\n", arguments[0]);
    return 2;
  }
  const Status done = run(mode, arguments[2], count == 4 ? arguments[3] : nullptr);
  if (!done) std::fprintf(stderr, "%s\n", done.error().message.c_str());
  return done ? 0 : 1;
}
