#include "autotune/service/daemon/client_registry.h"

#include <format>
#include <utility>
#include <variant>

#include "autotune/service/protocol/socket_path.h"

namespace dorajit::autotune {
namespace {

constexpr std::size_t kMaxClients = 1024;

}  // namespace

void ClientRegistry::accept(uv_stream_t* listener) {
  const ClientId id = next_id_++;
  auto connection = std::make_unique<ClientConnection>(
      loop_, ClientConnection::Events{
                 .on_request = [this, id](const protocol::Request& r) { take(id, r); },
                 .on_end = [this, id] { drop(id); }});
  if (uv_accept(listener, connection->stream()) != 0) return;
  uv_os_fd_t socket = -1;
  uv_fileno(reinterpret_cast<uv_handle_t*>(connection->stream()), &socket);
  ClientConnection& client = *connection;
  clients_.emplace(id, std::move(connection));
  if (!protocol::is_peer_this_user(socket))
    return client.refuse("the daemon belongs to another user");
  if (clients_.size() > kMaxClients) return client.refuse("too many clients are connected");
  client.start();
}

void ClientRegistry::take(ClientId id, const protocol::Request& request) {
  const auto found = clients_.find(id);
  if (found == clients_.end()) return;
  ClientConnection& client = *found->second;
  if (const auto* hello = std::get_if<protocol::Hello>(&request)) return greet(client, *hello);
  if (!client.has_greeted()) return client.refuse("the first line must be a hello");
  events_.on_request(id, request);
}

void ClientRegistry::greet(ClientConnection& client, const protocol::Hello& hello) {
  if (client.has_greeted()) return client.refuse("a second hello");
  if (hello.version != own_.version || hello.release != own_.release) {
    return client.refuse(
        std::format("the daemon has dorajit {} (protocol {})", own_.release, own_.version));
  }
  client.greet();
  client.send(own_);
}

void ClientRegistry::send(ClientId id, const protocol::Answer& answer) {
  const auto found = clients_.find(id);
  if (found != clients_.end()) found->second->send(answer);
}

void ClientRegistry::refuse(ClientId id, const std::string& reason) {
  const auto found = clients_.find(id);
  if (found != clients_.end()) found->second->refuse(reason);
}

void ClientRegistry::drop(ClientId id) {
  const auto found = clients_.find(id);
  if (found == clients_.end()) return;
  leaving_.push_back(std::move(found->second));
  clients_.erase(found);
  events_.on_leave(id);
}

}  // namespace dorajit::autotune
