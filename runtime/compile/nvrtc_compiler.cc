#include "runtime/compile/nvrtc_compiler.h"

#include <algorithm>
#include <charconv>
#include <format>
#include <functional>
#include <utility>

#include "kernel_templates/config.h"
#include "kernel_templates/program.h"
#include "kernel_templates/template.h"
#include "runtime/compile/compile_worker.h"
#include "runtime/compile/compiler.h"

namespace dorajit::compile {
namespace {

// The options that decide the bits of the output come first; none contains a path.
constexpr const char* kBuiltinOptions[] = {"--fmad=false",    "--ftz=false",
                                           "--prec-div=true", "--prec-sqrt=true",
                                           "--std=c++20",     "--device-as-default-execution-space",
                                           kReportResources};

// Option of the second compilation, which follows if the first one spills registers.
constexpr const char* kIfItSpills = "-DDORAJIT_ONE_BLOCK_PER_SM";

// Among the options of a user's kernel: what it is compiled for on devices of that architecture. It
// may be given for several.
constexpr std::string_view kArchitecture = "--gpu-architecture=";

std::vector<std::string> options_of(const kernels::Program& program) {
  if (!program.options) return {std::begin(kBuiltinOptions), std::end(kBuiltinOptions)};
  std::vector<std::string> options = *program.options;
  std::erase_if(options, [](const std::string& one) { return one.starts_with(kArchitecture); });
  options.emplace_back(kReportResources);
  return options;
}

// 0 if the text names no architecture.
int arch_number(std::string_view arch) { return cuda_arch_number(arch).value_or(0); }

bool spills(const ResourceUsage& used) {
  return used.stack_bytes + used.spill_store_bytes + used.spill_load_bytes > 0;
}

// The first file that the source includes and that is not among its headers; empty if there is
// none.
std::string_view missing_header(std::string_view log) {
  constexpr std::string_view kNotFound = "open source file \"";
  const std::size_t at = log.find(kNotFound);
  if (at == std::string_view::npos) return {};
  log.remove_prefix(at + kNotFound.size());
  return log.substr(0, log.find('"'));
}

Result<Artifact> artifact_of(NvrtcOutput made, std::string_view what) {
  if (!made.failure.empty()) {
    std::string message = std::format("{} for {}", made.failure, what);
    if (const auto header = missing_header(made.log); !header.empty()) {
      message +=
          std::format("; \"{}\" is not among its headers; name its folder in \"include\"", header);
    } else if (const std::string errors = first_errors(made.log); !errors.empty()) {
      message += ": " + errors;
    }
    return fail(StatusCode::kCompileError, std::move(message), std::move(made.log));
  }
  const ResourceUsage resources = parse_resource_report(made.log);
  return Artifact{
      .code = std::move(made.code), .resources = resources, .entry = std::move(made.entry)};
}

// The build number of NVRTC. Only the PTX of a compiled kernel contains it.
Result<std::string> build_of(const NvrtcLibrary& nvrtc) {
  const NvrtcOutput made = run_nvrtc(
      nvrtc,
      {.program = {.source = {"probe.cu", "__global__ void dorajit_kernel() {}\n"}, .headers = {}},
       .options = {"--gpu-architecture=compute_80"},
       .makes_cubin = false});
  if (!made.failure.empty()) {
    return fail(StatusCode::kNoCompiler,
                std::format("NVRTC at {} cannot compile an empty kernel; reinstall it, or set "
                            "DORAJIT_NVRTC to another libnvrtc",
                            nvrtc.path()),
                made.log);
  }
  int major = 0;
  int minor = 0;
  nvrtc.version(&major, &minor);
  std::string build = "unknown build";
  constexpr std::string_view kBuild = "Compiler Build ID: ";
  if (const std::size_t at = made.code.find(kBuild); at != std::string::npos) {
    const std::size_t begin = at + kBuild.size();
    build = made.code.substr(begin, made.code.find('\n', begin) - begin);
  }
  return std::format("NVRTC {}.{} {}", major, minor, build);
}

// `work` must own its inputs, because it may outlive the caller.
template <class T>
Result<T> within(std::chrono::milliseconds limit, const NvrtcLibrary& nvrtc, std::string_view what,
                 std::function<Result<T>()> work) {
  auto [outcome, result] = run_within(limit, std::move(work));
  switch (outcome) {
    case Outcome::kDone:
      return *std::move(result);
    case Outcome::kTooLate:
      return fail(StatusCode::kCompileError,
                  std::format("NVRTC at {} did not compile {} within {} ms and still runs in an "
                              "abandoned thread; set DORAJIT_NVRTC to another libnvrtc",
                              nvrtc.path(), what, limit.count()));
    case Outcome::kRefused:
      break;
  }
  return fail(StatusCode::kCompileError,
              std::format("{} is not compiled: NVRTC at {} has not come back from {} compilations; "
                          "restart the process, or set DORAJIT_NVRTC to another libnvrtc",
                          what, nvrtc.path(), kMaxAbandonedThreads));
}

// The request's architecture, with the architecture-specific suffix if the kernel needs it; empty
// if the kernel is for others.
std::string arch_of(const CompileRequest& request, const kernels::Program& program) {
  bool is_for_others = false;
  for (const std::string& option : program.options.value_or(std::vector<std::string>())) {
    if (!option.starts_with(kArchitecture)) continue;
    std::string arch = option.substr(kArchitecture.size());
    if (arch_number(arch) == arch_number(request.target.arch)) return arch;
    is_for_others = true;
  }
  if (is_for_others) return {};
  const int specific = kernels::template_of(request.variant).specific_architecture;
  const std::string& arch = request.target.arch;
  return specific > 0 && arch == std::format("sm_{}", specific) ? arch + "a" : arch;
}

}  // namespace

NvrtcCompiler::NvrtcCompiler(std::string hint, ArtifactStore* notes,
                             std::chrono::milliseconds limit, std::string worker)
    : hint_(std::move(hint)), notes_(notes), limit_(limit), worker_(std::move(worker)) {}

Result<const NvrtcLibrary*> NvrtcCompiler::library() {
  const std::scoped_lock lock(mutex_);
  // Opens the file whose identity is part of the keys, even if the process has loaded another NVRTC
  // since.
  if (!library_ && !located_.empty()) library_ = NvrtcLibrary::open(located_);
  if (!library_ || !*library_) library_ = NvrtcLibrary::open(hint_);
  if (!*library_) return std::unexpected(library_->error());
  return &**library_;
}

Result<std::string> NvrtcCompiler::read_build() {
  DORAJIT_ASSIGN(const NvrtcLibrary* nvrtc, library());
  return within<std::string>(limit_, *nvrtc, "an empty kernel",
                             [nvrtc = *nvrtc] { return build_of(nvrtc); });
}

Result<std::string> NvrtcCompiler::identity() {
  {
    const std::scoped_lock lock(mutex_);
    if (identity_) return *identity_;
  }
  const std::string path = NvrtcLibrary::locate(hint_);
  {
    const std::scoped_lock lock(mutex_);
    if (!library_) located_ = path;
  }
  auto identity = remembered_fact(path.empty() ? nullptr : notes_, "nvrtc", path,
                                  [this] { return read_build(); });
  const std::scoped_lock lock(mutex_);
  identity_ = identity;
  return identity;
}

std::string NvrtcCompiler::options(const CompileRequest& request) const {
  const kernels::Program program =
      kernels::program_of(request.variant, request.config, request.target.kind);
  std::string text = std::string(kArchitecture) + arch_of(request, program);
  for (const std::string& option : options_of(program)) text.append(" ").append(option);
  // What is compiled in this process may include files that no key covers.
  if (program.is_users() && worker_ != kNoWorker) text.append(" headers only");
  if (program.adapts_to_spills) text.append(" if it spills: ").append(kIfItSpills);
  return text;
}

Result<std::vector<std::string>> NvrtcCompiler::supported_archs() {
  DORAJIT_ASSIGN(const NvrtcLibrary* nvrtc, library());
  int count = 0;
  nvrtc->num_supported_archs(&count);
  std::vector<int> numbers(static_cast<std::size_t>(count));
  nvrtc->supported_archs(numbers.data());
  std::vector<std::string> archs;
  for (const int number : numbers) archs.push_back(std::format("sm_{}", number));
  return archs;
}

Result<Artifact> NvrtcCompiler::compile(const CompileRequest& request) {
  DORAJIT_ASSIGN(const NvrtcLibrary* nvrtc, library());
  DORAJIT_ASSIGN(const std::vector<std::string> known, supported_archs());
  const kernels::Program program =
      kernels::program_of(request.variant, request.config, request.target.kind);
  const std::string wanted = arch_of(request, program);
  if (wanted.empty()) {
    return fail(StatusCode::kUnsupported,
                std::format("{} has no {} for {} among its options", to_text(request.variant),
                            kArchitecture, request.target.arch));
  }
  const bool native =
      std::ranges::find(known, wanted.substr(0, wanted.find_first_of("af"))) != known.end();
  const bool is_specific = wanted.ends_with('a') || wanted.ends_with('f');
  if (!native && (is_specific || arch_number(wanted) < arch_number(known.back()))) {
    return fail(
        StatusCode::kUnsupported,
        std::format("NVRTC at {} makes no code for {}, only for {} to {}; use another GPU, or "
                    "set DORAJIT_NVRTC to a release that knows it",
                    nvrtc->path(), wanted, known.front(), known.back()));
  }
  // For an architecture newer than this NVRTC, compile to PTX of the newest supported one; the
  // driver translates it.
  const std::string arch = native ? wanted : std::format("compute_{}", arch_number(known.back()));
  NvrtcJob job{.program = program, .options = options_of(program), .makes_cubin = native};
  job.options.insert(job.options.begin(), std::string(kArchitecture) + arch);
  const std::string what = std::format("{} with config {} on {}", to_text(request.variant),
                                       to_text(request.config), request.target.arch);
  const auto attempt = [&]() -> Result<Artifact> {
    if (program.is_users() && worker_ != kNoWorker) {
      DORAJIT_ASSIGN(NvrtcOutput made,
                     run_in_worker(worker_, nvrtc->path(), job, what, request.deadline));
      return artifact_of(std::move(made), what);
    }
    DORAJIT_ASSIGN(NvrtcOutput made,
                   within<NvrtcOutput>(limit_, *nvrtc, what, [nvrtc = *nvrtc, job] {
                     return Result<NvrtcOutput>(run_nvrtc(nvrtc, job));
                   }));
    return artifact_of(std::move(made), what);
  };
  DORAJIT_ASSIGN(Artifact artifact, attempt());
  if (!program.adapts_to_spills || !spills(artifact.resources)) return artifact;
  job.options.emplace_back(kIfItSpills);
  return attempt();
}

}  // namespace dorajit::compile
