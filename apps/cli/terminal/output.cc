#include "apps/cli/terminal/output.h"

#include <cerrno>
#include <cstdio>
#include <format>
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

Status finish_output() {
  errno = 0;
  // Some file systems report a failed write only at the close.
  if (std::fclose(stdout) != 0 && output_error == 0) output_error = errno != 0 ? errno : EIO;
  if (output_error == 0) return {};
  return fail(StatusCode::kIoError,
              std::format("cannot write to standard output: {}; the output is incomplete",
                          std::generic_category().message(output_error)));
}

Json to_json(const Error& error) {
  return {{"code", name(error.code)}, {"message", error.message}, {"log", error.log}};
}

}  // namespace dorajit::cli
