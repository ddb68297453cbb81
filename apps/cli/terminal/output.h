// What commands print: text or JSON on standard output, messages on standard error.
#pragma once

#include <nlohmann/json.hpp>
#include <string_view>

#include "apps/cli/terminal/exit_code.h"
#include "runtime/base/error.h"

namespace dorajit::cli {

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

// Closes standard output at the end of the program: an error if any write to it failed.
Status finish_output();

Json to_json(const Error& error);

}  // namespace dorajit::cli
