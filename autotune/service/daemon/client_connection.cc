#include "autotune/service/daemon/client_connection.h"

#include <utility>

namespace dorajit::autotune {
namespace {

constexpr std::size_t kMaxUnsentBytes = std::size_t{1} << 20;
constexpr std::uint64_t kHelloTimeoutMs = 5'000;
constexpr std::uint64_t kLineTimeoutMs = 5'000;

}  // namespace

ClientConnection::ClientConnection(uv_loop_t* loop, Events events)
    : bytes_(loop, kMaxUnsentBytes),
      deadline_(
          loop,
          [this] {
            refuse(has_greeted_ ? "a line was not complete in time" : "no hello arrived in time");
          }),
      lines_(protocol::kMaxRequestBytes),
      events_(std::move(events)) {}

void ClientConnection::start() {
  deadline_.start(kHelloTimeoutMs);
  const Status reading = bytes_.start_reading(
      {.on_bytes = [this](std::string_view bytes) { take(bytes); }, .on_end = [this] { end(); }});
  if (!reading) end();
}

void ClientConnection::greet() {
  has_greeted_ = true;
  deadline_.stop();
}

void ClientConnection::take(std::string_view bytes) {
  if (has_ended_) return;
  const bool had_begun = lines_.has_begun();
  lines_.feed(bytes);
  while (const auto line = lines_.next()) {
    const auto request = protocol::parse_request(*line);
    if (!request) return refuse(request.error().message);
    events_.on_request(*request);
    if (has_ended_) return;
  }
  if (lines_.is_too_long()) return refuse("a line is longer than 4096 bytes");
  if (!has_greeted_) return;
  if (!lines_.has_begun()) {
    deadline_.stop();
  } else if (!had_begun) {
    deadline_.start(kLineTimeoutMs);
  }
}

void ClientConnection::send(const protocol::Answer& answer) {
  // A client that does not read its answers is disconnected.
  if (!has_ended_ && !bytes_.write(to_line(answer))) end();
}

void ClientConnection::refuse(const std::string& reason) {
  send(protocol::Refused{reason.substr(0, 500)});
  end();
}

void ClientConnection::end() {
  if (has_ended_) return;
  has_ended_ = true;
  deadline_.stop();
  const auto on_end = events_.on_end;  // the call destroys this object
  on_end();
}

}  // namespace dorajit::autotune
