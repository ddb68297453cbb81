#include "runtime/base/settings.h"

#include <charconv>
#include <concepts>
#include <cstdlib>
#include <filesystem>
#include <format>
#include <initializer_list>
#include <locale>
#include <sstream>
#include <system_error>
#include <utility>

#include "runtime/base/dynamic_library.h"

namespace dorajit {
namespace {

// The path in a variable, made absolute against the current working directory.
std::string absolute_path(const char* name) {
  const std::string_view file = environment_variable(name);
  if (file.empty()) return {};
  std::error_code ignored;  // on an error the path is kept unchanged
  const auto absolute = std::filesystem::absolute(file, ignored);
  return ignored ? std::string(file) : absolute.string();
}

template <class T>
using Choice = std::pair<std::string_view, T>;

// Sets `target` when the variable is set to one of the choices.
template <class T>
Status read_choice(const char* name, std::initializer_list<Choice<T>> choices, T& target) {
  const std::string_view text = environment_variable(name);
  if (text.empty()) return {};
  std::string accepted;
  for (const auto& [choice, value] : choices) {
    if (choice == text) {
      target = value;
      return {};
    }
    accepted.append(accepted.empty() ? "" : ", ").append(choice);
  }
  return fail(StatusCode::kInvalidArgument,
              std::format("environment variable {} is \"{}\"; set it to one of: {}, or unset it",
                          name, text, accepted));
}

// Parses the entire text as a number; false if that fails.
template <std::integral Integer>
bool parse_number(std::string_view text, Integer& value) {
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  return error == std::errc{} && end == text.data() + text.size();
}

bool parse_number(std::string_view text, double& value) {
  // A stream would also accept blanks, hexadecimal and other forms.
  if (text.find_first_not_of("0123456789.eE+-") != std::string_view::npos) return false;
  std::istringstream number{std::string(text)};  // libc++ has no from_chars for floating point
  number.imbue(std::locale::classic());          // independent of the host application's locale
  return (number >> value) && number.peek() == std::istringstream::traits_type::eof();
}

template <class T>
Status read_number(const char* name, T minimum, T maximum, std::string_view unit, T& target) {
  const std::string_view text = environment_variable(name);
  if (text.empty()) return {};
  T value{};
  if (!parse_number(text, value) || !(value >= minimum && value <= maximum)) {
    return fail(StatusCode::kInvalidArgument,
                std::format("environment variable {} is \"{}\"; set it to a number of {} "
                            "between {} and {}, or unset it",
                            name, text, unit, minimum, maximum));
  }
  target = value;
  return {};
}

// Reads a folder from a variable. It must be absolute, because processes run in different working
// directories.
Status read_folder(const char* name, std::string& target) {
  const std::string_view text = environment_variable(name);
  if (text.empty()) return {};
  if (!text.starts_with('/')) {
    return fail(StatusCode::kInvalidArgument,
                std::format("environment variable {} is \"{}\"; set it to an absolute path, or "
                            "unset it",
                            name, text));
  }
  target = text;
  return {};
}

std::string default_cache_dir() {
  if (const auto dir = environment_variable("XDG_CACHE_HOME"); dir.starts_with('/')) {
    return std::format("{}/dorajit", dir);
  }
  if (const auto home = environment_variable("HOME"); home.starts_with('/')) {
    return std::format("{}/.cache/dorajit", home);
  }
  return {};
}

}  // namespace

std::string_view environment_variable(const char* name) {
  const char* value = std::getenv(name);
  return value != nullptr ? value : "";
}

Result<Settings> Settings::from_environment() {
  Settings settings;
  settings.cache_dir = default_cache_dir();
  DORAJIT_TRY(read_folder("DORAJIT_CACHE_DIR", settings.cache_dir));
  DORAJIT_TRY(read_folder("DORAJIT_DAEMON_DIR", settings.daemon_dir));
  DORAJIT_TRY(
      read_choice<bool>("DORAJIT_TRUST_GROUP", {{"0", false}, {"1", true}}, settings.trust_group));
  DORAJIT_TRY(read_choice<TunePolicy>("DORAJIT_TUNE",
                                      {{"automatic", TunePolicy::kAutomatic},
                                       {"first_use", TunePolicy::kFirstUse},
                                       {"daemon", TunePolicy::kDaemon},
                                       {"off", TunePolicy::kOff}},
                                      settings.tune_policy));
  DORAJIT_TRY(read_choice<LogLevel>("DORAJIT_LOG",
                                    {{"off", LogLevel::kOff},
                                     {"error", LogLevel::kError},
                                     {"warning", LogLevel::kWarning},
                                     {"info", LogLevel::kInfo},
                                     {"debug", LogLevel::kDebug}},
                                    settings.log_level));
  DORAJIT_TRY(read_choice<bool>("DORA_AUTOTUNE_COMPREHENSIVE", {{"0", false}, {"1", true}},
                                settings.comprehensive));
  DORAJIT_TRY(read_choice<bool>("DORAJIT_AUTOTUNE", {{"slim", false}, {"comprehensive", true}},
                                settings.comprehensive));
  DORAJIT_TRY(read_number<double>("DORAJIT_TUNE_SECONDS", 0.0, kMaxTuneSeconds, "seconds",
                                  settings.tune_seconds));
  DORAJIT_TRY(read_number<std::int64_t>("DORAJIT_SCRATCH_BYTES", 0, INT64_MAX, "bytes",
                                        settings.scratch_bytes));
  DORAJIT_TRY(read_number<std::int64_t>("DORAJIT_CACHE_MAX_BYTES", 0, INT64_MAX, "bytes",
                                        settings.cache_max_bytes));
  DORAJIT_TRY(read_number<int>("DORAJIT_TUNE_CANDIDATES", 0, kMaxTuneCandidates, "configs",
                               settings.tune_candidates));
  DORAJIT_TRY(read_choice<bool>("DORAJIT_PRINT_AUTOTUNING", {{"0", false}, {"1", true}},
                                settings.print_autotuning));
  if (environment_variable("DORAJIT_DATABASES").empty()) {
    settings.shipped_databases = installed_file("share/dorajit/databases");
  } else if (environment_variable("DORAJIT_DATABASES") != "none") {
    DORAJIT_TRY(read_folder("DORAJIT_DATABASES", settings.shipped_databases));
  }
  settings.record_path = absolute_path("DORAJIT_RECORD");
  settings.locked_path = absolute_path("DORAJIT_LOCKED");
  DORAJIT_TRY(read_choice<LockedMiss>(
      "DORAJIT_LOCKED_MISS", {{"report", LockedMiss::kReport}, {"fail", LockedMiss::kFail}},
      settings.locked_miss));
  settings.nvrtc_path = environment_variable("DORAJIT_NVRTC");
  settings.host_compiler = environment_variable("DORAJIT_CXX");
  const std::string_view worker = environment_variable("DORAJIT_WORKER");
  settings.worker = worker == "none" ? std::string(worker) : absolute_path("DORAJIT_WORKER");
  return settings;
}

}  // namespace dorajit
