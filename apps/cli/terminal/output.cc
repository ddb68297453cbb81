#include "apps/cli/terminal/output.h"

#include <fcntl.h>
#include <unistd.h>

#include <cerrno>
#include <csignal>
#include <cstdio>
#include <exception>
#include <format>
#include <initializer_list>
#include <string>
#include <system_error>

#include "runtime/base/printable_text.h"

namespace dorajit::cli {
namespace {

// errno of the first write to standard output that failed; 0: none did.
int output_error = 0;

void write_output(std::string_view text) {
  if (output_error != 0) return;
  errno = 0;
  const bool is_complete = std::fwrite(text.data(), 1, text.size(), stdout) == text.size();
  if (!is_complete || std::fflush(stdout) != 0) output_error = errno != 0 ? errno : EIO;
}

void write_message(std::string_view text) {
  const std::string shown = printable_text(text);
  std::fwrite(shown.data(), 1, shown.size(), stderr);
  std::fflush(stderr);
}

// Occupies those that are closed: otherwise a file that is opened later gets the number, and output
// is written into it. Writing to a closed standard output still fails.
void reserve_standard_streams() {
  for (const int stream : {STDIN_FILENO, STDOUT_FILENO, STDERR_FILENO}) {
    if (::fcntl(stream, F_GETFD) >= 0 || errno != EBADF) continue;
    // open() takes the lowest free number, which is the stream's. Standard output is opened for
    // reading, so that lost output is an error; lost messages on standard error are ignored.
    (void)!::open("/dev/null", stream == STDERR_FILENO ? O_WRONLY : O_RDONLY);
  }
}

// Closes standard output at the end of the program: an error if any write to it failed.
Status finish_output() {
  errno = 0;
  // Some file systems report a failed write only at the close.
  if (std::fclose(stdout) != 0 && output_error == 0) output_error = errno != 0 ? errno : EIO;
  if (output_error == 0) return {};
  return fail(StatusCode::kIoError,
              std::format("cannot write to standard output: {}; the output is incomplete",
                          std::generic_category().message(output_error)));
}

}  // namespace

void print(std::string_view text) { write_output(printable_text(text)); }

void print_bytes(std::string_view bytes) { write_output(bytes); }

void print_document(const Json& document) {
  // Paths and compiler logs may hold any bytes; a document is always UTF-8.
  print(document.dump(2, ' ', false, Json::error_handler_t::replace) + "\n");
}

Json result_document(std::string_view command, const Json& fields) {
  Json document = {{"command", command}, {"version", DORAJIT_VERSION}};
  document.update(fields);
  return document;
}

ExitCode print_result(bool json, std::string_view command, const Json& fields,
                      std::string_view text) {
  if (json) {
    print_document(result_document(command, fields));
  } else {
    print(text);
  }
  return ExitCode::kOk;
}

void print_error(const Error& error) {
  std::string text = std::format("dorajit: error: {}\n", error.message);
  if (!error.log.empty()) text += error.log.ends_with('\n') ? error.log : error.log + "\n";
  write_message(text);
}

void print_error(StatusCode code, std::string message) {
  print_error(Error{.code = code, .message = std::move(message), .log = {}});
}

void print_note(std::string_view text) { write_message(std::format("dorajit: {}\n", text)); }

bool output_is_lost() { return output_error != 0; }

Json to_json(const Error& error) {
  return {{"code", name(error.code)}, {"message", error.message}, {"log", error.log}};
}

int run_program(const std::function<ExitCode()>& run) {
  reserve_standard_streams();
  std::signal(SIGXFSZ, SIG_IGN);  // a write beyond the file size limit is an error, not the end
  std::signal(SIGPIPE, SIG_IGN);  // and so is one to a closed pipe or connection
  ExitCode code = ExitCode::kFailed;
  try {
    code = run();
  } catch (const std::exception& error) {
    print_error(StatusCode::kInternal, error.what());
  }
  if (const auto finished = finish_output(); !finished) {
    print_error(finished.error());
    if (code == ExitCode::kOk) code = ExitCode::kFailed;
  }
  return static_cast<int>(code);
}

}  // namespace dorajit::cli
