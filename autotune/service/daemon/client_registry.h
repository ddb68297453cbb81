// All connected clients.
#pragma once

#include <uv.h>

#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "autotune/service/daemon/client_connection.h"
#include "autotune/service/daemon/job_queue.h"
#include "autotune/service/protocol/messages.h"

namespace dorajit::autotune {

// Accepts clients of this user that send a matching hello. A client may disconnect during a send:
// later messages to it are dropped.
class ClientRegistry {
 public:
  struct Events {
    std::function<void(ClientId, const protocol::Request&)> on_request;  // never a Hello
    std::function<void(ClientId)> on_leave;
  };
  ClientRegistry(uv_loop_t* loop, protocol::Hello own, Events events)
      : loop_(loop), own_(std::move(own)), events_(std::move(events)) {}
  ClientRegistry(const ClientRegistry&) = delete;
  ClientRegistry& operator=(const ClientRegistry&) = delete;

  // Accepts the new client of the listener.
  void accept(uv_stream_t* listener);

  void send(ClientId id, const protocol::Answer& answer);
  void refuse(ClientId id, const std::string& reason);

  // Destroys the clients that have disconnected. Must not be called within an event.
  void sweep() { leaving_.clear(); }
  // Destroys all clients. Must not be called within an event.
  void close() {
    clients_.clear();
    leaving_.clear();
  }

  [[nodiscard]] std::size_t size() const { return clients_.size(); }

 private:
  void take(ClientId id, const protocol::Request& request);
  void greet(ClientConnection& client, const protocol::Hello& hello);
  void drop(ClientId id);

  uv_loop_t* loop_;
  const protocol::Hello own_;
  const Events events_;
  std::map<ClientId, std::unique_ptr<ClientConnection>> clients_;
  std::vector<std::unique_ptr<ClientConnection>> leaving_;  // may still be executing a call
  ClientId next_id_ = 1;
};

}  // namespace dorajit::autotune
