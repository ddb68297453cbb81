#include "bindings/cli/output.h"

#include <cstdio>
#include <format>
#include <string>

namespace dorajit::cli {
namespace {

void write(std::FILE* stream, std::string_view text) {
  std::fwrite(text.data(), 1, text.size(), stream);
  std::fflush(stream);
}

}  // namespace

Json begin_document(std::string_view command) {
  return {{"command", command}, {"version", DORAJIT_VERSION}};
}

void print(std::string_view text) { write(stdout, text); }

void print_document(const Json& document) {
  // Paths and compiler logs may hold any bytes; a document is always UTF-8.
  print(document.dump(2, ' ', false, Json::error_handler_t::replace) + "\n");
}

void print_error(const Error& error) {
  std::string text = std::format("dorajit: error: {}\n", error.message);
  if (!error.log.empty()) text += error.log.ends_with('\n') ? error.log : error.log + "\n";
  write(stderr, text);
}

void print_note(std::string_view text) { write(stderr, std::format("dorajit: {}\n", text)); }

Json to_json(const Error& error) {
  return {{"code", name(error.code)}, {"message", error.message}, {"log", error.log}};
}

}  // namespace dorajit::cli
