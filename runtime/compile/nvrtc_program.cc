#include "runtime/compile/nvrtc_program.h"

#include <algorithm>
#include <charconv>
#include <cstddef>
#include <format>
#include <ranges>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "runtime/base/error.h"

namespace dorajit::compile {
namespace {

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
    for (const std::string& entry : entries()) {
      DORAJIT_TRY(
          check("nvrtcAddNameExpression", nvrtc_.add_name_expression(handle_, entry.c_str())));
    }
    return {};
  }

  // As Artifact::entry has them, after the compilation.
  Result<std::string> symbols() {
    if (source_.entry.empty()) return Artifact::kDefaultEntry;
    std::string symbols;
    for (const std::string& entry : entries()) {
      const char* name = nullptr;
      DORAJIT_TRY(check("nvrtcGetLoweredName", nvrtc_.lowered_name(handle_, entry.c_str(), &name)));
      if (!symbols.empty()) symbols += kernels::Program::kBetweenEntries;
      symbols += name;
    }
    return symbols;
  }

  int compile(std::vector<const char*> options) {
    // Where a driver is, NVRTC keeps what it compiles in the driver's cache folder. What it finds
    // there has no report of resources, and this library does not check who can write there.
    if (is_at_least(12, 9)) options.push_back("--no-cache");
    if (!is_at_least(12, 4)) return compile_once(options);
    // Without declarations of textures and of the CUDA runtime there is less to parse, and threads
    // parse one after the other. A user's kernel may need them: then it is compiled again.
    options.push_back("--minimal");
    int result = compile_once(options);
    if (result == 0 || !source_.is_users()) return result;
    options.pop_back();
    result = compile_again(options, result);
    if (result == 0 || !first_error_line(log()).empty()) return result;
    // ptxas leaves out some errors, such as that of too much shared memory, where it reports.
    std::erase_if(options, [](std::string_view one) { return one == kReportResources; });
    return compile_again(options, result);
  }

  std::string log() {
    std::string log = text(nvrtc_.log_size, nvrtc_.log);
    log.resize(std::min(log.size(), log.find('\0')));  // NVRTC counts the zero byte at the end
    return log;
  }
  std::string cubin() { return text(nvrtc_.cubin_size, nvrtc_.cubin); }
  std::string ptx() { return text(nvrtc_.ptx_size, nvrtc_.ptx); }

 private:
  [[nodiscard]] std::vector<std::string> entries() const {
    std::vector<std::string> entries;
    for (const auto one : std::views::split(source_.entry, kernels::Program::kBetweenEntries)) {
      entries.emplace_back(std::string_view(one));
    }
    return entries;
  }

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

  // NVRTC leaks memory if it compiles a program twice.
  int compile_again(const std::vector<const char*>& options, int result) {
    nvrtc_.destroy_program(&handle_);
    return create() ? compile_once(options) : result;
  }
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

// Where "error: " or "error   : " stands, as NVRTC and ptxas write it, or "fatal   : ".
std::size_t find_error(std::string_view log) {
  std::size_t first = std::string_view::npos;
  for (const std::string_view word : {"error", "fatal"}) {
    std::size_t at = log.find(word);
    for (; at != std::string_view::npos; at = log.find(word, at + 1)) {
      const std::size_t after = log.find_first_not_of(' ', at + word.size());
      if (after != std::string_view::npos && log.substr(after).starts_with(": ")) break;
    }
    first = std::min(first, at);
  }
  return first;
}

}  // namespace

std::string_view first_error_line(std::string_view log) {
  const std::size_t error = find_error(log);
  if (error == std::string_view::npos) return {};
  const std::size_t begin = log.rfind('\n', error) + 1;  // 0 in the first line
  return log.substr(begin, std::min(log.find('\n', error), log.size()) - begin);
}

std::string first_errors(std::string_view log) {
  constexpr int kMost = 2;
  constexpr std::size_t kMaxCharacters = 400;  // of one
  std::string errors;
  for (int i = 0; i < kMost; ++i) {
    const std::string_view line = first_error_line(log);
    if (line.empty()) break;
    log.remove_prefix(static_cast<std::size_t>(line.end() - log.begin()));
    std::string error(line.substr(0, kMaxCharacters));
    const std::string_view notes = log.substr(0, log.find("\n\n"));
    if (const std::size_t with = notes.find("[with "); with != std::string_view::npos) {
      error += std::format(
          " {}", notes.substr(with, notes.find(']', with) + 1 - with).substr(0, kMaxCharacters));
    }
    errors += (errors.empty() ? "" : "; ") + error;
  }
  return errors;
}

ResourceUsage parse_resource_report(std::string_view log) {
  return {.registers = largest_before(log, " registers"),
          .shared_bytes = largest_before(log, " bytes smem"),
          .stack_bytes = largest_before(log, " bytes stack frame"),
          .spill_store_bytes = largest_before(log, " bytes spill stores"),
          .spill_load_bytes = largest_before(log, " bytes spill loads")};
}

NvrtcOutput run_nvrtc(const NvrtcLibrary& nvrtc, const NvrtcJob& job) {
  Program program(nvrtc, job.program);
  if (const Status created = program.create(); !created) {
    return {.failure = created.error().message, .log = {}, .entry = {}, .code = {}};
  }
  std::vector<const char*> options;
  for (const std::string& option : job.options) options.push_back(option.c_str());
  const int result = program.compile(options);
  NvrtcOutput made{.failure = {}, .log = program.log(), .entry = {}, .code = {}};
  if (result != 0) {
    made.failure = std::format("nvrtcCompileProgram failed ({})", nvrtc.get_error_string(result));
    return made;
  }
  made.code = job.makes_cubin ? program.cubin() : program.ptx();
  auto entry = program.symbols();
  if (!entry)
    made.failure = entry.error().message;
  else if (made.code.empty())
    made.failure = "NVRTC made no code";
  else
    made.entry = *std::move(entry);
  return made;
}

}  // namespace dorajit::compile
