#include "runtime/compile/nvrtc_compiler.h"

#include <algorithm>
#include <charconv>
#include <format>
#include <functional>
#include <utility>

#include "kernel_templates/config_text.h"
#include "kernel_templates/program.h"
#include "kernel_templates/template.h"
#include "runtime/compile/file_identity.h"

namespace dorajit::compile {
namespace {

constexpr const char* kReportResources = "--ptxas-options=-v";

// The options that decide the bits of the output come first; none contains a path.
constexpr const char* kOptions[] = {"--fmad=false",    "--ftz=false",
                                    "--prec-div=true", "--prec-sqrt=true",
                                    "--std=c++20",     "--device-as-default-execution-space",
                                    kReportResources};

// Option of the second compilation, which follows if the first one spills registers.
constexpr const char* kIfItSpills = "-DDORAJIT_ONE_BLOCK_PER_SM";

std::vector<std::string> options_of(const kernels::Program& program) {
  if (!program.options) return {std::begin(kOptions), std::end(kOptions)};
  std::vector<std::string> options = *program.options;
  options.emplace_back(kReportResources);
  return options;
}

class Program {
 public:
  Program(const NvrtcLibrary& nvrtc, kernels::Program source)
      : nvrtc_(nvrtc), source_(std::move(source)) {}
  ~Program() {
    if (handle_ != nullptr) nvrtc_.destroy_program(&handle_);
  }
  Program(const Program&) = delete;
  Program& operator=(const Program&) = delete;

  Status create() {
    std::vector<const char*> texts;
    std::vector<const char*> names;
    for (const kernels::SourceFile& header : source_.headers) {
      texts.push_back(header.text.c_str());
      names.push_back(header.name.c_str());
    }
    DORAJIT_TRY(check(
        "nvrtcCreateProgram",
        nvrtc_.create_program(&handle_, source_.source.text.c_str(), source_.source.name.c_str(),
                              static_cast<int>(names.size()), texts.data(), names.data())));
    if (source_.entry.empty()) return {};
    return check("nvrtcAddNameExpression",
                 nvrtc_.add_name_expression(handle_, source_.entry.c_str()));
  }

  // The symbol of the entry, after the compilation.
  Result<std::string> symbol() {
    if (source_.entry.empty()) return Artifact::kDefaultEntry;
    const char* name = nullptr;
    DORAJIT_TRY(
        check("nvrtcGetLoweredName", nvrtc_.lowered_name(handle_, source_.entry.c_str(), &name)));
    return std::string(name);
  }

  int compile(std::vector<const char*> options) {
    // Where a driver is, NVRTC keeps what it compiles in the driver's cache folder. What it finds
    // there has no report of resources, and this library does not check who can write there.
    if (is_at_least(12, 9)) options.push_back("--no-cache");
    if (!is_at_least(12, 4)) return compile_once(options);
    // Without declarations of textures and of the CUDA runtime there is less to parse, and threads
    // parse one after the other. A user's kernel may need them: then it is compiled again.
    options.push_back("--minimal");
    const int result = compile_once(options);
    if (result == 0 || !is_users()) return result;
    options.pop_back();
    nvrtc_.destroy_program(&handle_);  // NVRTC leaks memory if it compiles a program twice
    return create() ? compile_once(options) : result;
  }

  std::string log() { return text(nvrtc_.log_size, nvrtc_.log); }
  std::string cubin() { return text(nvrtc_.cubin_size, nvrtc_.cubin); }
  std::string ptx() { return text(nvrtc_.ptx_size, nvrtc_.ptx); }

 private:
  Status check(const char* call, int result) const {
    if (result == 0) return {};
    return fail(StatusCode::kCompileError,
                std::format("{} failed: {}", call, nvrtc_.get_error_string(result)));
  }

  std::string text(int (*size_of)(NvrtcProgram, std::size_t*), int (*read)(NvrtcProgram, char*)) {
    std::size_t size = 0;
    if (size_of(handle_, &size) != 0) return {};
    std::string bytes(size, '\0');
    if (read(handle_, bytes.data()) != 0) return {};
    return bytes;
  }

  // Whether it is a user's kernel; those alone have options of their own.
  [[nodiscard]] bool is_users() const { return source_.options.has_value(); }

  int compile_once(const std::vector<const char*>& options) {
    return nvrtc_.compile_program(handle_, static_cast<int>(options.size()), options.data());
  }

  [[nodiscard]] bool is_at_least(int major, int minor) const {
    int found_major = 0;
    int found_minor = 0;
    nvrtc_.version(&found_major, &found_minor);
    return std::pair(found_major, found_minor) >= std::pair(major, minor);
  }

  const NvrtcLibrary& nvrtc_;
  const kernels::Program source_;
  NvrtcProgram handle_ = nullptr;
};

// 0 if the text names no architecture.
int arch_number(std::string_view arch) { return cuda_arch_number(arch).value_or(0); }

// The largest number before the phrase: the report has one for each entry point.
int largest_before(std::string_view log, std::string_view phrase) {
  int largest = 0;
  for (std::size_t at = log.find(phrase); at != std::string_view::npos;
       at = log.find(phrase, at + phrase.size())) {
    std::size_t begin = at;
    while (begin > 0 && log[begin - 1] >= '0' && log[begin - 1] <= '9') --begin;
    int value = 0;
    std::from_chars(log.data() + begin, log.data() + at, value);
    largest = std::max(largest, value);
  }
  return largest;
}

bool spills(const ResourceUsage& used) {
  return used.stack_bytes + used.spill_store_bytes + used.spill_load_bytes > 0;
}

Result<Artifact> compile_with(const NvrtcLibrary& nvrtc, const CompileRequest& request,
                              const std::vector<std::string>& options, bool to_cubin) {
  Program program(nvrtc, kernels::program_of(request.variant, request.config, request.target.kind));
  DORAJIT_TRY(program.create());
  std::vector<const char*> arguments;
  for (const std::string& option : options) arguments.push_back(option.c_str());
  const int result = program.compile(arguments);
  std::string log = program.log();
  if (result != 0) {
    return fail(StatusCode::kCompileError,
                std::format("nvrtcCompileProgram failed for {} with config {} on {}: {}",
                            to_text(request.variant), to_text(request.config), request.target.arch,
                            nvrtc.get_error_string(result)),
                std::move(log));
  }
  std::string code = to_cubin ? program.cubin() : program.ptx();
  if (code.empty()) {
    return fail(StatusCode::kCompileError,
                std::format("NVRTC made no code for {}", request.target.arch), std::move(log));
  }
  DORAJIT_ASSIGN(std::string entry, program.symbol());
  return Artifact{
      .code = std::move(code), .resources = parse_resource_report(log), .entry = std::move(entry)};
}

// The build number of NVRTC. Only the PTX of a compiled kernel contains it.
Result<std::string> build_of(const NvrtcLibrary& nvrtc) {
  Program program(nvrtc, {.source = {"probe.cu", "__global__ void probe() {}\n"}, .headers = {}});
  DORAJIT_TRY(program.create());
  if (program.compile({"--gpu-architecture=compute_80"}) != 0) {
    return fail(StatusCode::kNoCompiler,
                std::format("NVRTC at {} cannot compile an empty kernel; reinstall it, or set "
                            "DORAJIT_NVRTC to another libnvrtc",
                            nvrtc.path()),
                program.log());
  }
  const std::string ptx = program.ptx();
  int major = 0;
  int minor = 0;
  nvrtc.version(&major, &minor);
  std::string build = "unknown build";
  constexpr std::string_view kBuild = "Compiler Build ID: ";
  if (const std::size_t at = ptx.find(kBuild); at != std::string::npos) {
    const std::size_t begin = at + kBuild.size();
    build = ptx.substr(begin, ptx.find('\n', begin) - begin);
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

// The request's architecture, with the architecture-specific suffix if the kernel needs it.
std::string arch_of(const CompileRequest& request) {
  const int specific = kernels::template_of(request.variant).specific_architecture;
  const std::string& arch = request.target.arch;
  return specific > 0 && arch == std::format("sm_{}", specific) ? arch + "a" : arch;
}

}  // namespace

ResourceUsage parse_resource_report(std::string_view log) {
  return {.registers = largest_before(log, " registers"),
          .shared_bytes = largest_before(log, " bytes smem"),
          .stack_bytes = largest_before(log, " bytes stack frame"),
          .spill_store_bytes = largest_before(log, " bytes spill stores"),
          .spill_load_bytes = largest_before(log, " bytes spill loads")};
}

NvrtcCompiler::NvrtcCompiler(std::string hint, ArtifactStore* notes,
                             std::chrono::milliseconds limit)
    : hint_(std::move(hint)), notes_(notes), limit_(limit) {}

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
  std::string text = "--gpu-architecture=" + arch_of(request);
  for (const std::string& option : options_of(program)) text.append(" ").append(option);
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
  const std::string wanted = arch_of(request);
  const bool native =
      std::ranges::find(known, wanted.substr(0, wanted.find_first_of("af"))) != known.end();
  if (!native && arch_number(wanted) < arch_number(known.back())) {
    return fail(
        StatusCode::kUnsupported,
        std::format("NVRTC at {} makes no code for {}, only for {} to {}; use another GPU, or "
                    "set DORAJIT_NVRTC to a release that knows it",
                    nvrtc->path(), wanted, known.front(), known.back()));
  }
  // For an architecture newer than this NVRTC, compile to PTX of the newest supported one; the
  // driver translates it.
  const std::string arch = native ? wanted : std::format("compute_{}", arch_number(known.back()));
  const kernels::Program program =
      kernels::program_of(request.variant, request.config, request.target.kind);
  std::vector<std::string> options = options_of(program);
  options.insert(options.begin(), "--gpu-architecture=" + arch);
  const auto attempt = [&] {
    const std::string what =
        std::format("{} with config {}", to_text(request.variant), to_text(request.config));
    return within<Artifact>(limit_, *nvrtc, what, [nvrtc = *nvrtc, request, options, native] {
      return compile_with(nvrtc, request, options, native);
    });
  };
  DORAJIT_ASSIGN(Artifact artifact, attempt());
  if (!program.adapts_to_spills || !spills(artifact.resources)) return artifact;
  options.emplace_back(kIfItSpills);
  return attempt();
}

}  // namespace dorajit::compile
