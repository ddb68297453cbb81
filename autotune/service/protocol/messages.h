// What clients and the daemon say to each other: one JSON object a line (docs/daemon_protocol.md).
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <variant>

#include "kernel_templates/spaces.h"
#include "runtime/base/error.h"

namespace dorajit::autotune::protocol {

inline constexpr int kVersion = 1;
// Of a line to the daemon, with its end. Answers may be longer.
inline constexpr std::size_t kMaxRequestBytes = std::size_t{4} << 10;
inline constexpr std::size_t kMaxAnswerBytes = std::size_t{4} << 20;

// The first line of either side. They must agree on the version of the protocol and on the release,
// whose kernels and tuner they share, and for winners to be found, on the folder.
struct Hello {
  int version = kVersion;
  std::string release;
  std::string tuning_dir;

  friend bool operator==(const Hello&, const Hello&) = default;
};

// Of this library; `tuning_dir` as whoever opened the database names it.
Hello own_hello(const std::string& tuning_dir);

// Asks that a problem be tuned on a device. Answered by Tuned or Failed, at once or much later.
struct TuneRequest {
  std::string problem;  // launch::to_text()
  std::string device;   // fingerprint
  kernels::SpaceKind space = kernels::SpaceKind::kSlim;
  double calls = 1;   // how often it was launched since it was last asked for
  double gain = 0.2;  // share of its time that tuning is expected to save

  friend bool operator==(const TuneRequest&, const TuneRequest&) = default;
};

// Asks for one document: Text.
struct StatusRequest {
  friend bool operator==(const StatusRequest&, const StatusRequest&) = default;
};
struct MetricsRequest {
  friend bool operator==(const MetricsRequest&, const MetricsRequest&) = default;
};
// Asks the daemon to finish what is being tuned and to end. Answered by Text.
struct DrainRequest {
  friend bool operator==(const DrainRequest&, const DrainRequest&) = default;
};

using Request = std::variant<Hello, TuneRequest, StatusRequest, MetricsRequest, DrainRequest>;

// The winner is in the database.
struct Tuned {
  std::string problem;
  std::string device;
  std::string config{};  // for people, as are the times
  double median_ns = 0;
  double default_median_ns = 0;

  friend bool operator==(const Tuned&, const Tuned&) = default;
};

// There will be no winner.
struct Failed {
  std::string problem;
  std::string device;
  std::string reason;

  friend bool operator==(const Failed&, const Failed&) = default;
};

// The daemon closes the connection after it.
struct Refused {
  std::string reason;

  friend bool operator==(const Refused&, const Refused&) = default;
};

// A JSON document, or the Prometheus text format.
struct Text {
  std::string text;

  friend bool operator==(const Text&, const Text&) = default;
};

using Answer = std::variant<Hello, Tuned, Failed, Refused, Text>;

// One line with its end.
std::string to_line(const Request& request);
std::string to_line(const Answer& answer);

// Of a line without its end. kInvalidArgument says what is wrong with it. Members that are not
// known are passed over; texts longer than 1024 bytes are refused, but for the one of Text.
Result<Request> parse_request(std::string_view line);
Result<Answer> parse_answer(std::string_view line);

}  // namespace dorajit::autotune::protocol
