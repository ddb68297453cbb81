#include "runtime/compile/host_compiler.h"

#include <unistd.h>

#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <format>
#include <sstream>

#include "kernel_templates/embedded_sources.h"
#include "runtime/base/files.h"
#include "runtime/compile/compiler.h"
#include "runtime/compile/subprocess.h"

namespace dorajit::compile {
namespace {

namespace fs = std::filesystem;

// The options that decide the bits of the output come first; none contains a path.
constexpr const char* kOptions[] = {
    "-ffp-contract=off", "-fno-fast-math", "-std=c++20", "-O3",
    "-march=native",     "-shared",        "-fPIC",      "-fvisibility=hidden",
    "-fno-exceptions",   "-fno-rtti",      "-nostdinc++"};

// Returns an absolute path, because the compiler runs in another folder.
std::optional<std::string> find_on_path(const std::string& name) {
  std::error_code ignored;
  if (name.contains('/')) {
    if (access(name.c_str(), X_OK) != 0) return std::nullopt;
    return fs::absolute(name, ignored).string();
  }
  const char* path = std::getenv("PATH");
  std::istringstream folders(path != nullptr ? path : kStandardPath);
  for (std::string folder; std::getline(folders, folder, ':');) {
    std::string file = folder + "/" + name;
    if (access(file.c_str(), X_OK) == 0) return fs::absolute(file, ignored).string();
  }
  return std::nullopt;
}

// The line of a log that a message quotes: the first one about an error, else the first one.
std::string complaint(const std::string& log) {
  std::string first;
  std::istringstream lines(log);
  for (std::string line; std::getline(lines, line);) {
    if (line.contains("error")) return ": " + line;
    if (first.empty()) first = line;
  }
  return first.empty() ? first : ": " + first;
}

}  // namespace

HostCompiler::HostCompiler(std::string name, ArtifactStore* notes)
    : name_(std::move(name)), notes_(notes) {}

Result<std::string> HostCompiler::program() {
  if (name_ == "none") {
    return fail(StatusCode::kNoCompiler, "the host compiler is turned off (DORAJIT_CXX=none)");
  }
  if (!name_.empty()) {
    if (auto file = find_on_path(name_)) return *std::move(file);
    return fail(StatusCode::kNoCompiler,
                std::format("DORAJIT_CXX={} is not an executable file; set it to a C++20 compiler, "
                            "or unset it",
                            name_));
  }
  for (const char* candidate : {"c++", "g++", "clang++"}) {
    if (auto file = find_on_path(candidate)) return *std::move(file);
  }
  return fail(StatusCode::kNoCompiler,
              "no C++ compiler (c++, g++ or clang++) on PATH; install one, or set DORAJIT_CXX");
}

Result<std::string> HostCompiler::identity() {
  const std::scoped_lock lock(mutex_);
  if (identity_) return *identity_;
  auto found = [this]() -> Result<std::string> {
    DORAJIT_ASSIGN(const std::string file, program());
    return remembered_fact(notes_, "host compiler", file, [&file]() -> Result<std::string> {
      DORAJIT_ASSIGN(const ProcessResult run, run_process({file, "--version"}, kCompileTimeLimit));
      if (run.exit_code != 0) {
        return fail(StatusCode::kNoCompiler,
                    std::format("{} --version ended with {}; set DORAJIT_CXX to a C++20 compiler",
                                file, run.exit_code),
                    run.output);
      }
      return run.output.substr(0, run.output.find('\n'));
    });
  }();
  identity_ = found;
  return found;
}

std::string HostCompiler::options(const CompileRequest&) const {
  std::string text;
  for (const char* option : kOptions) text.append(option).append(" ");
  return text;
}

Result<Artifact> HostCompiler::compile(const CompileRequest& request) {
  DORAJIT_ASSIGN(const std::string file, program());
  DORAJIT_ASSIGN(const PrivateFolder folder, PrivateFolder::make());
  for (const auto* source :
       kernels::include_closure(kernels::source_roots(request.variant, request.target.kind))) {
    DORAJIT_TRY(folder.write(std::string(source->name), source->text));
  }
  const std::string text =
      kernels::instantiation(request.variant, request.config, request.target.kind);
  constexpr const char* kSource = "dorajit_kernel.cc";
  constexpr const char* kObject = "dorajit_kernel.so";
  DORAJIT_TRY(folder.write(kSource, text));
  // The compiler runs in the opened folder and also keeps its temporary files there. A folder that
  // replaces it by name in TMPDIR is neither read nor written.
  std::vector<std::string> argv = {file};
  argv.insert(argv.end(), std::begin(kOptions), std::end(kOptions));
  argv.insert(argv.end(), {"-I.", "-o", kObject, kSource});
  DORAJIT_ASSIGN(ProcessResult run, run_process(argv, kCompileTimeLimit, folder.descriptor()));
  if (run.exit_code != 0) {
    const std::string message =
        std::format("{} failed ({}) for {}{}; set DORAJIT_CXX to a C++20 compiler", file,
                    run.exit_code, to_text(request.variant), complaint(run.output));
    return fail(StatusCode::kCompileError, message, std::move(run.output));
  }
  std::string code = folder.read(kObject);
  if (code.empty()) {
    return fail(StatusCode::kCompileError, std::format("{} wrote no shared object", file),
                std::move(run.output));
  }
  return Artifact{std::move(code), {}};
}

}  // namespace dorajit::compile
