#include "autotune/service/daemon/client_registry.h"

#include <chrono>
#include <format>
#include <string_view>
#include <utility>
#include <variant>

#include "autotune/service/daemon/uv_handles.h"
#include "autotune/service/protocol/messages.h"
#include "autotune/service/protocol/socket_path.h"

namespace dorajit::autotune {
namespace {

using std::chrono::steady_clock;

constexpr std::size_t kMaxClients = 1024;
constexpr std::size_t kMaxUnsentBytes = std::size_t{1} << 20;
constexpr std::chrono::seconds kHelloTimeout{5};
constexpr std::chrono::seconds kLineTimeout{5};

}  // namespace

// The daemon's end of a connection to one client.
class ClientRegistry::Connection {
 public:
  Connection(ClientRegistry& registry, ClientId id)
      : registry_(registry), id_(id), bytes_(registry.loop_, kMaxUnsentBytes) {}

  uv_stream_t* stream() const { return reinterpret_cast<uv_stream_t*>(bytes_.handle()); }

  // Call when the stream is connected.
  void start() {
    const Status reading = bytes_.start_reading(
        {.on_bytes = [this](std::string_view bytes) { take(bytes); }, .on_end = [this] { end(); }});
    if (!reading) end();
  }

  void send(const protocol::Answer& answer) {
    // A client that does not read its answers is disconnected.
    if (!has_ended_ && !bytes_.write(to_line(answer))) end();
  }

  void refuse(const std::string& reason) {
    send(protocol::Refused{reason.substr(0, 500)});
    end();
  }

  void check_deadline() {
    if (steady_clock::now() < deadline_) return;
    refuse(has_greeted_ ? "a line was not complete in time" : "no hello arrived in time");
  }

 private:
  void take(std::string_view bytes) {
    if (has_ended_) return;
    const bool had_begun = lines_.has_begun();
    lines_.feed(bytes);
    bool is_new_line = !had_begun;
    while (const auto line = lines_.next()) {
      is_new_line = true;
      const auto request = protocol::parse_request(*line);
      if (!request) return refuse(request.error().message);
      handle(*request);
      if (has_ended_) return;
    }
    if (lines_.is_too_long()) return refuse("a line is longer than 4096 bytes");
    if (!has_greeted_) return;
    if (!lines_.has_begun()) {
      deadline_ = steady_clock::time_point::max();
    } else if (is_new_line) {
      deadline_ = steady_clock::now() + kLineTimeout;
    }
  }

  void handle(const protocol::Request& request) {
    const auto* hello = std::get_if<protocol::Hello>(&request);
    if (hello == nullptr && has_greeted_) return registry_.events_.on_request(id_, request);
    if (hello == nullptr) return refuse("the first line must be a hello");
    if (has_greeted_) return refuse("a second hello");
    const protocol::Hello& own = registry_.own_;
    if (hello->version != own.version || hello->release != own.release) {
      return refuse(
          std::format("the daemon has dorajit {} (protocol {})", own.release, own.version));
    }
    has_greeted_ = true;
    deadline_ = steady_clock::time_point::max();
    send(own);
  }

  void end() {
    if (std::exchange(has_ended_, true)) return;
    const auto own = registry_.clients_.find(id_);
    registry_.leaving_.push_back(std::move(own->second));
    registry_.clients_.erase(own);
    registry_.events_.on_leave(id_);
  }

  ClientRegistry& registry_;
  const ClientId id_;
  ByteStream bytes_;
  // Of the greeting, then of an incomplete line.
  steady_clock::time_point deadline_ = steady_clock::now() + kHelloTimeout;
  protocol::LineSplitter lines_{protocol::kMaxRequestBytes};
  bool has_greeted_ = false;
  bool has_ended_ = false;
};

ClientRegistry::ClientRegistry(uv_loop_t* loop, protocol::Hello own, Events events)
    : loop_(loop), own_(std::move(own)), events_(std::move(events)) {}

ClientRegistry::~ClientRegistry() = default;

void ClientRegistry::accept(uv_stream_t* listener) {
  const ClientId id = next_id_++;
  auto connection = std::make_unique<Connection>(*this, id);
  if (uv_accept(listener, connection->stream()) != 0) return;
  uv_os_fd_t socket = -1;
  uv_fileno(reinterpret_cast<uv_handle_t*>(connection->stream()), &socket);
  Connection& client = *connection;
  clients_.emplace(id, std::move(connection));
  if (!protocol::is_peer_this_user(socket))
    return client.refuse("the daemon belongs to another user");
  if (clients_.size() > kMaxClients) return client.refuse("too many clients are connected");
  client.start();
}

void ClientRegistry::send(ClientId id, const protocol::Answer& answer) {
  if (const auto found = clients_.find(id); found != clients_.end()) found->second->send(answer);
}

void ClientRegistry::refuse(ClientId id, const std::string& reason) {
  if (const auto found = clients_.find(id); found != clients_.end()) found->second->refuse(reason);
}

void ClientRegistry::sweep() {
  leaving_.clear();
  for (auto one = clients_.begin(); one != clients_.end();) (one++)->second->check_deadline();
}

void ClientRegistry::close() {
  clients_.clear();
  leaving_.clear();
}

}  // namespace dorajit::autotune
