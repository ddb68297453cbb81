// What commands print: text or JSON on standard output, messages on standard error.
#pragma once

#include <nlohmann/json.hpp>
#include <string_view>

#include "apps/cli/terminal/exit_code.h"
#include "runtime/base/error.h"

namespace dorajit::cli {

// Keeps the order in which fields were added.
using Json = nlohmann::ordered_json;

// A command's document, begun: the command's name and the version of the program.
Json begin_document(std::string_view command);

// Lines of text. What could command a terminal is shown as an escape (printable_text()).
void print(std::string_view text);
// What is read by programs, as it is.
void print_bytes(std::string_view bytes);
void print_document(const Json& document);

// "dorajit: error: ..." and the log, if there is one.
void print_error(const Error& error);
// "dorajit: ..."
void print_note(std::string_view text);

// Whether what was printed has not all got to standard output. For commands that print on and on.
bool output_is_lost();

// Closes standard output, at the end of the program: an error if not all that was printed got
// there.
Status finish_output();

Json to_json(const Error& error);

}  // namespace dorajit::cli
