// The messages between clients and the daemon: one JSON object per line (docs/daemon_protocol.md).
#pragma once

#include <cstddef>
#include <optional>
#include <string>
#include <string_view>
#include <variant>

#include "kernel_templates/spaces.h"
#include "runtime/base/error.h"

namespace dorajit::autotune::protocol {

// Splits a stream of bytes into lines of bounded length. Stores at most one incomplete line and the
// bytes fed after it.
class LineSplitter {
 public:
  explicit LineSplitter(std::size_t max_bytes) : max_bytes_(max_bytes) {}

  void feed(std::string_view bytes) { buffer_.append(bytes); }

  // The next complete line without its newline, or nothing yet.
  std::optional<std::string> next();

  // Whether the incomplete line exceeds the maximum length.
  [[nodiscard]] bool is_too_long() const {
    return buffer_.size() - begin_ >= max_bytes_ &&
           buffer_.find('\n', begin_) >= begin_ + max_bytes_;
  }
  [[nodiscard]] bool has_begun() const { return begin_ < buffer_.size(); }

 private:
  std::size_t max_bytes_;
  std::string buffer_;
  std::size_t begin_ = 0;  // of the bytes that have not been taken
};

inline constexpr int kVersion = 1;
// Maximum length of a line to the daemon, including its newline. Answers may be longer.
inline constexpr std::size_t kMaxRequestBytes = std::size_t{4} << 10;
inline constexpr std::size_t kMaxAnswerBytes = std::size_t{4} << 20;

// The first line of either side. Both must have the same protocol version and the same release, so
// that they share kernels and tuner, and the same folder, so that winners are found.
struct Hello {
  int version = kVersion;
  std::string release;
  std::string tuning_dir;

  friend bool operator==(const Hello&, const Hello&) = default;
};

// The hello of this library; `tuning_dir` as the opener of the database names it.
Hello own_hello(const std::string& tuning_dir);

// Requests tuning of a problem on a device. Answered by Tuned or Failed, possibly much later.
struct TuneRequest {
  std::string problem;  // launch::to_text()
  std::string device;   // fingerprint
  kernels::SpaceKind space = kernels::SpaceKind::kSlim;
  double calls = 1;   // launches since the last request
  double gain = 0.2;  // share of its time that tuning is expected to save

  friend bool operator==(const TuneRequest&, const TuneRequest&) = default;
};

// Answered by Text.
struct StatusRequest {
  friend bool operator==(const StatusRequest&, const StatusRequest&) = default;
};

using Request = std::variant<Hello, TuneRequest, StatusRequest>;

// The winner is in the database.
struct Tuned {
  std::string problem;
  std::string device;
  std::string config{};  // for messages, like the times
  double median_ns = 0;
  double default_median_ns = 0;

  friend bool operator==(const Tuned&, const Tuned&) = default;
};

// The problem could not be tuned.
struct Failed {
  std::string problem;
  std::string device;
  std::string reason;

  friend bool operator==(const Failed&, const Failed&) = default;
};

// The reason why the daemon closes the connection; its last message.
struct Refused {
  std::string reason;

  friend bool operator==(const Refused&, const Refused&) = default;
};

// A JSON document.
struct Text {
  std::string text;

  friend bool operator==(const Text&, const Text&) = default;
};

using Answer = std::variant<Hello, Tuned, Failed, Refused, Text>;

// One line with its newline.
std::string to_line(const Request& request);
std::string to_line(const Answer& answer);

// Parses a line without its newline. kInvalidArgument describes what is wrong with it. Unknown
// members are ignored; texts longer than 1024 bytes are refused, except in Text.
Result<Request> parse_request(std::string_view line);
Result<Answer> parse_answer(std::string_view line);

}  // namespace dorajit::autotune::protocol
