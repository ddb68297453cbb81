// The streams and the exit code of a program: text or JSON on standard output, messages on standard
// error.
#pragma once

#include <array>
#include <functional>
#include <nlohmann/json.hpp>
#include <string_view>

#include "runtime/base/error.h"

namespace dorajit::cli {

// Scripts rely on these numbers (docs/cli.md); they never change.
enum class ExitCode : int { kOk = 0, kFailed = 1, kUsage = 2, kUnavailable = 3 };

struct ExitCodeMeaning {
  int code;
  std::string_view meaning;
};

// All exit codes of the program.
inline constexpr std::array<ExitCodeMeaning, 5> kExitCodes = {{
    {static_cast<int>(ExitCode::kOk), "done"},
    {static_cast<int>(ExitCode::kFailed), "the operation was tried and failed"},
    {static_cast<int>(ExitCode::kUsage),
     "wrong usage: the command line, or the value of an environment variable"},
    {static_cast<int>(ExitCode::kUnavailable),
     "something that was asked for is not on this machine: NVIDIA driver, GPU, NVRTC, C++ "
     "compiler"},
    {130, "ended by Ctrl-C (SIGINT), as a shell reports it"},
}};

constexpr ExitCode exit_code_of(StatusCode code) {
  switch (code) {
    case StatusCode::kInvalidArgument:
    case StatusCode::kUnsupported:
      return ExitCode::kUsage;
    case StatusCode::kNoDriver:
    case StatusCode::kNoCompiler:
      return ExitCode::kUnavailable;
    default:
      return ExitCode::kFailed;
  }
}

// Keeps the order in which fields were added.
using Json = nlohmann::ordered_json;

// Lines of text. Control characters, which could command a terminal, become escapes
// (printable_text()).
void print(std::string_view text);
// For programs to read: bytes as they are.
void print_bytes(std::string_view bytes);
void print_document(const Json& document);
// A command's document, which begins with its name and the program's version, with those fields.
Json result_document(std::string_view command, const Json& fields);
// That document, or the text. Returns kOk.
ExitCode print_result(bool json, std::string_view command, const Json& fields,
                      std::string_view text);

// "dorajit: error: ..." and the log, if there is one.
void print_error(const Error& error);
void print_error(StatusCode code, std::string message);
// "dorajit: ..."
void print_note(std::string_view text);

// Whether a write to standard output has failed. For commands that print without end.
bool output_is_lost();

Json to_json(const Error& error);

// Runs a program and returns its exit code. An exception, or standard output that cannot be written
// completely, is printed as an error and makes the program fail. Call it before any file is opened.
int run_program(const std::function<ExitCode()>& run);

}  // namespace dorajit::cli
