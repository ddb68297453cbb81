#include "autotune/service/client/daemon_connection.h"

#include <poll.h>
#include <sys/socket.h>
#include <sys/un.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>
#include <format>
#include <utility>

#include "autotune/service/protocol/socket_path.h"
#include "cache/files/directories.h"

namespace dorajit::autotune {
namespace {

using std::chrono::steady_clock;

constexpr std::chrono::seconds kHelloTimeout{5};
constexpr std::chrono::seconds kStatusTimeout{10};
constexpr int kMaxReads = 64;  // of 4 KiB each, per call

}  // namespace

void say(const Remarks& remarks) {
  for (const auto& [level, key, text] : remarks) log_once(level, key, text);
}

int milliseconds_until(steady_clock::time_point moment) {
  const auto left = std::chrono::ceil<std::chrono::milliseconds>(moment - steady_clock::now());
  return static_cast<int>(std::max<std::int64_t>(left.count(), 0));
}

std::unique_ptr<DaemonConnection> DaemonConnection::open(const std::string& folder,
                                                         protocol::Hello own, Remarks& remarks) {
  // If another user owns the folder, it could link to any socket of this user.
  const auto opened = cache::open_own_directory(folder, cache::FilePlace::kDaemonFolder);
  if (!opened) {
    remarks.push_back({.level = LogLevel::kInfo,
                       .key = folder,
                       .text = "the daemon is not used: " + opened.error().message});
    return nullptr;
  }
  if (!*opened) return nullptr;
  const std::string path = protocol::socket_path(cache::held_path(**opened));
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  std::memcpy(address.sun_path, path.c_str(), path.size() + 1);
  FileDescriptor socket(::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
  if (!socket) return nullptr;
  // A daemon with a full backlog (EAGAIN) counts as no daemon.
  if (::connect(socket.get(), reinterpret_cast<const sockaddr*>(&address), sizeof address) != 0) {
    return nullptr;
  }
  if (!protocol::is_peer_this_user(socket.get())) {
    remarks.push_back(
        {.level = LogLevel::kWarning,
         .key = folder,
         .text = std::format("another user's process listens in {} and is not used", folder)});
    return nullptr;
  }
  return std::unique_ptr<DaemonConnection>(new DaemonConnection(std::move(socket), std::move(own)));
}

DaemonConnection::DaemonConnection(FileDescriptor socket, protocol::Hello own)
    : socket_(std::move(socket)),
      own_(std::move(own)),
      greeting_deadline_(steady_clock::now() + kHelloTimeout),
      unsent_(to_line(protocol::Request(own_))) {}

short DaemonConnection::wanted_events() const {
  return static_cast<short>(unsent_.empty() ? POLLIN : POLLIN | POLLOUT);
}

int DaemonConnection::poll_timeout_ms() const {
  return has_greeted_ ? -1 : milliseconds_until(greeting_deadline_);
}

bool DaemonConnection::send() {
  std::size_t sent = 0;
  while (sent < unsent_.size()) {
    const ssize_t count =
        ::send(socket_.get(), unsent_.data() + sent, unsent_.size() - sent, MSG_NOSIGNAL);
    if (count < 0 && errno == EINTR) continue;
    if (count < 0 && errno != EAGAIN) return false;
    if (count < 0) break;
    sent += static_cast<std::size_t>(count);
  }
  unsent_.erase(0, sent);
  return true;
}

bool DaemonConnection::take_hello(const protocol::Hello& hello) {
  if (has_greeted_) return false;
  has_greeted_ = hello == own_;
  if (has_greeted_) return true;
  refusal_ = std::format("it has dorajit {} and stores its winners in {}", hello.release,
                         hello.tuning_dir);
  return false;
}

bool DaemonConnection::take(const std::string& line, std::vector<protocol::Answer>& answers) {
  auto answer = protocol::parse_answer(line);
  if (!answer) return false;
  if (const auto* hello = std::get_if<protocol::Hello>(&*answer)) return take_hello(*hello);
  if (const auto* refused = std::get_if<protocol::Refused>(&*answer)) {
    refusal_ = refused->reason;
    return false;
  }
  if (!has_greeted_) return false;
  answers.push_back(*std::move(answer));
  return true;
}

bool DaemonConnection::serve(std::vector<protocol::Answer>& answers) {
  // Messages that the daemon sent before it closed the connection count, so a send error is handled
  // last.
  const bool was_sent = send();
  std::array<char, 4096> bytes{};
  for (int i = 0; i < kMaxReads; ++i) {
    const ssize_t got = ::recv(socket_.get(), bytes.data(), bytes.size(), 0);
    if (got < 0 && errno == EINTR) continue;
    if (got < 0 && errno == EAGAIN) break;
    if (got <= 0) return false;
    lines_.feed({bytes.data(), static_cast<std::size_t>(got)});
    while (const auto line = lines_.next()) {
      if (!take(*line, answers)) return false;
    }
    if (lines_.is_too_long()) return false;
  }
  return was_sent && (has_greeted_ || steady_clock::now() < greeting_deadline_);
}

Result<std::string> ask_status(const std::string& folder, const protocol::Hello& own) {
  DORAJIT_TRY(protocol::check_socket_path(protocol::socket_path(folder)));
  Remarks remarks;
  const auto connection = DaemonConnection::open(folder, own, remarks);
  say(remarks);
  if (connection == nullptr) {
    return fail(
        StatusCode::kIoError,
        std::format("no daemon listens in {}; start one with `dorajit daemon start`", folder));
  }
  connection->ask(protocol::StatusRequest{});
  const auto deadline = steady_clock::now() + kStatusTimeout;
  std::vector<protocol::Answer> answers;
  for (bool is_of_use = true; is_of_use && milliseconds_until(deadline) > 0;) {
    is_of_use = connection->serve(answers);
    for (protocol::Answer& answer : answers) {
      if (auto* text = std::get_if<protocol::Text>(&answer)) return std::move(text->text);
    }
    answers.clear();
    pollfd wanted{.fd = connection->socket(), .events = connection->wanted_events(), .revents = 0};
    if (is_of_use) (void)::poll(&wanted, 1, milliseconds_until(deadline));
  }
  if (!connection->refusal().empty()) {
    return fail(StatusCode::kIoError,
                std::format("the daemon in {} does not answer: {}", folder, connection->refusal()));
  }
  return fail(StatusCode::kIoError, std::format("the daemon in {} does not answer", folder));
}

}  // namespace dorajit::autotune
