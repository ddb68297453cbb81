#include "autotune/protocol/messages.h"

#include <filesystem>
#include <format>
#include <nlohmann/json.hpp>
#include <optional>
#include <system_error>
#include <utility>

namespace dorajit::autotune::protocol {
namespace {

using Json = nlohmann::ordered_json;

constexpr std::size_t kMostTextBytes = 1024;
constexpr int kMostDepth = 4;
constexpr double kMostCalls = 1e15;
constexpr double kMostNanoseconds = 1e18;

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

// Reads the members of one message. The first fault is kept.
class Members {
 public:
  explicit Members(const Json& object) : object_(object) {}

  std::string text(const char* name, std::size_t most = kMostTextBytes) {
    const auto found = object_.find(name);
    if (found == object_.end() || !found->is_string()) return fault(name, "is no text");
    const auto& text = found->get_ref<const std::string&>();
    if (text.size() > most) return fault(name, "is too long");
    return text;
  }

  double number(const char* name, double least, double most) {
    const auto found = object_.find(name);
    if (found == object_.end() || !found->is_number()) {
      fault(name, "is no number");
      return least;
    }
    const auto value = found->get<double>();
    if (!(value >= least && value <= most)) {
      fault(name, "is out of range");
      return least;
    }
    return value;
  }

  kernels::SpaceKind space(const char* name) {
    const std::string kind = text(name);
    if (kind == "comprehensive") return kernels::SpaceKind::kComprehensive;
    if (kind != "slim") fault(name, "is neither \"slim\" nor \"comprehensive\"");
    return kernels::SpaceKind::kSlim;
  }

  // `message`, unless something was wrong with it.
  template <class Message>
  Result<Message> finish(Message message) {
    if (!fault_.empty()) return fail(StatusCode::kInvalidArgument, fault_);
    return message;
  }

 private:
  std::string fault(const char* name, const char* what) {
    if (fault_.empty()) fault_ = std::format("member \"{}\" {}", name, what);
    return {};
  }

  const Json& object_;
  std::string fault_;
};

Hello read_hello(Members& members) {
  return {.version = static_cast<int>(members.number("protocol", 1, 1e6)),
          .release = members.text("release"),
          .tuning_dir = members.text("tuning_dir", 4096)};
}

// Without the recursion that a hostile line could drive deep.
Result<Json> parse_object(std::string_view line) {
  bool too_deep = false;
  const Json::parser_callback_t shallow = [&](int depth, Json::parse_event_t, Json&) {
    too_deep = too_deep || depth > kMostDepth;
    return !too_deep;
  };
  Json object = Json::parse(line, shallow, false);
  if (too_deep || !object.is_object()) {
    return fail(StatusCode::kInvalidArgument, "the line is no JSON object of a message");
  }
  return object;
}

std::unexpected<Error> unknown_type(const std::string& type) {
  return fail(StatusCode::kInvalidArgument,
              std::format("messages of type \"{}\" are not known", type.substr(0, 40)));
}

}  // namespace

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
               [](const StatusRequest&) { return Json{{"type", "status"}}; },
               [](const MetricsRequest&) { return Json{{"type", "metrics"}}; },
               [](const DrainRequest&) { return Json{{"type", "drain"}}; }},
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
  Members members(object);
  const std::string type = members.text("type");
  if (type == "hello") return members.finish<Request>(read_hello(members));
  if (type == "tune") {
    return members.finish<Request>(TuneRequest{.problem = members.text("problem"),
                                               .device = members.text("device"),
                                               .space = members.space("space"),
                                               .calls = members.number("calls", 0, kMostCalls),
                                               .gain = members.number("gain", 0, 1)});
  }
  if (type == "status") return StatusRequest{};
  if (type == "metrics") return MetricsRequest{};
  if (type == "drain") return DrainRequest{};
  return unknown_type(type);
}

Result<Answer> parse_answer(std::string_view line) {
  DORAJIT_ASSIGN(const Json object, parse_object(line));
  Members members(object);
  const std::string type = members.text("type");
  if (type == "hello") return members.finish<Answer>(read_hello(members));
  if (type == "tuned") {
    return members.finish<Answer>(
        Tuned{.problem = members.text("problem"),
              .device = members.text("device"),
              .config = members.text("config"),
              .median_ns = members.number("median_ns", 0, kMostNanoseconds),
              .default_median_ns = members.number("default_median_ns", 0, kMostNanoseconds)});
  }
  if (type == "failed") {
    return members.finish<Answer>(Failed{.problem = members.text("problem"),
                                         .device = members.text("device"),
                                         .reason = members.text("reason", 4096)});
  }
  if (type == "refused") return members.finish<Answer>(Refused{.reason = members.text("reason")});
  if (type == "text")
    return members.finish<Answer>(Text{.text = members.text("text", kMostAnswerBytes)});
  return unknown_type(type);
}

}  // namespace dorajit::autotune::protocol
