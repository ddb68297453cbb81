#include "autotune/service/protocol/messages.h"

#include <filesystem>
#include <format>
#include <nlohmann/json.hpp>
#include <system_error>

#include "runtime/base/json_text.h"

namespace dorajit::autotune::protocol {
namespace {

using Json = JsonFields::Json;

constexpr std::size_t kMaxTextBytes = 1024;
constexpr double kMaxCalls = 1e15;
constexpr double kMaxNanoseconds = 1e18;

template <class... Ts>
struct Overload : Ts... {
  using Ts::operator()...;
};

std::string line_of(const Json& object) {
  return object.dump(-1, ' ', false, Json::error_handler_t::replace) + "\n";
}

Json json_of(const Hello& hello) {
  return {{"type", "hello"},
          {"protocol", hello.version},
          {"release", hello.release},
          {"tuning_dir", hello.tuning_dir}};
}

kernels::SpaceKind read_space(JsonFields& fields) {
  const std::string kind = fields.text("space", kMaxTextBytes);
  if (kind == "comprehensive") return kernels::SpaceKind::kComprehensive;
  if (kind != "slim") fields.refuse("space", "is neither \"slim\" nor \"comprehensive\"");
  return kernels::SpaceKind::kSlim;
}

// `message`, or the fault of its fields.
template <class Message>
Result<Message> checked(const JsonFields& fields, Message message) {
  if (fields.fault().empty()) return message;
  return fail(StatusCode::kInvalidArgument, "member " + fields.fault());
}

Hello read_hello(JsonFields& fields) {
  return {.version = static_cast<int>(fields.number("protocol", 1, 1e6)),
          .release = fields.text("release", kMaxTextBytes),
          .tuning_dir = fields.text("tuning_dir", 4096)};
}

Result<Json> parse_object(std::string_view line) {
  auto object = parse_json(line);
  if (object && object->is_object()) return object;
  return fail(StatusCode::kInvalidArgument, "the line is not a JSON object of a message");
}

std::unexpected<Error> unknown_type(const std::string& type) {
  return fail(StatusCode::kInvalidArgument,
              std::format("unknown message type \"{}\"", type.substr(0, 40)));
}

}  // namespace

std::optional<std::string> LineSplitter::next() {
  if (is_too_long()) return std::nullopt;
  const std::size_t end = buffer_.find('\n', begin_);
  if (end == std::string::npos) {
    buffer_.erase(0, begin_);
    begin_ = 0;
    return std::nullopt;
  }
  std::string line = buffer_.substr(begin_, end - begin_);
  begin_ = end + 1;
  return line;
}

Hello own_hello(const std::string& tuning_dir) {
  std::error_code error;
  const auto place = std::filesystem::weakly_canonical(tuning_dir, error);
  return {.release = DORAJIT_VERSION, .tuning_dir = error ? tuning_dir : place.string()};
}

std::string to_line(const Request& request) {
  return line_of(std::visit(
      Overload{[](const Hello& hello) { return json_of(hello); },
               [](const TuneRequest& tune) {
                 const bool is_slim = tune.space == kernels::SpaceKind::kSlim;
                 return Json{{"type", "tune"},        {"problem", tune.problem},
                             {"device", tune.device}, {"space", is_slim ? "slim" : "comprehensive"},
                             {"calls", tune.calls},   {"gain", tune.gain}};
               },
               [](const StatusRequest&) { return Json{{"type", "status"}}; }},
      request));
}

std::string to_line(const Answer& answer) {
  return line_of(std::visit(
      Overload{[](const Hello& hello) { return json_of(hello); },
               [](const Tuned& tuned) {
                 return Json{{"type", "tuned"},
                             {"problem", tuned.problem},
                             {"device", tuned.device},
                             {"config", tuned.config},
                             {"median_ns", tuned.median_ns},
                             {"default_median_ns", tuned.default_median_ns}};
               },
               [](const Failed& failed) {
                 return Json{{"type", "failed"},
                             {"problem", failed.problem},
                             {"device", failed.device},
                             {"reason", failed.reason}};
               },
               [](const Refused& refused) {
                 return Json{{"type", "refused"}, {"reason", refused.reason}};
               },
               [](const Text& text) { return Json{{"type", "text"}, {"text", text.text}}; }},
      answer));
}

Result<Request> parse_request(std::string_view line) {
  DORAJIT_ASSIGN(const Json object, parse_object(line));
  JsonFields fields(object);
  const std::string type = fields.text("type", kMaxTextBytes);
  if (type == "hello") return checked<Request>(fields, read_hello(fields));
  if (type == "tune") {
    return checked<Request>(fields, TuneRequest{.problem = fields.text("problem", kMaxTextBytes),
                                                .device = fields.text("device", kMaxTextBytes),
                                                .space = read_space(fields),
                                                .calls = fields.number("calls", 0, kMaxCalls),
                                                .gain = fields.number("gain", 0, 1)});
  }
  if (type == "status") return StatusRequest{};
  return unknown_type(type);
}

Result<Answer> parse_answer(std::string_view line) {
  DORAJIT_ASSIGN(const Json object, parse_object(line));
  JsonFields fields(object);
  const std::string type = fields.text("type", kMaxTextBytes);
  if (type == "hello") return checked<Answer>(fields, read_hello(fields));
  if (type == "tuned") {
    return checked<Answer>(
        fields, Tuned{.problem = fields.text("problem", kMaxTextBytes),
                      .device = fields.text("device", kMaxTextBytes),
                      .config = fields.text("config", kMaxTextBytes),
                      .median_ns = fields.number("median_ns", 0, kMaxNanoseconds),
                      .default_median_ns = fields.number("default_median_ns", 0, kMaxNanoseconds)});
  }
  if (type == "failed") {
    return checked<Answer>(fields, Failed{.problem = fields.text("problem", kMaxTextBytes),
                                          .device = fields.text("device", kMaxTextBytes),
                                          .reason = fields.text("reason", 4096)});
  }
  if (type == "refused")
    return checked<Answer>(fields, Refused{.reason = fields.text("reason", kMaxTextBytes)});
  if (type == "text")
    return checked<Answer>(fields, Text{.text = fields.text("text", kMaxAnswerBytes)});
  return unknown_type(type);
}

}  // namespace dorajit::autotune::protocol
