// All connected clients.
#pragma once

#include <uv.h>

#include <cstddef>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "autotune/service/daemon/job_queue.h"
#include "autotune/service/protocol/messages.h"

namespace dorajit::autotune {

// Accepts clients of this user that send a matching hello. A client may disconnect during a send:
// later messages to it are dropped. Checks that lines have a bounded length, are complete in time
// and are valid messages. Unread output is bounded, too.
class ClientRegistry {
 public:
  struct Events {
    std::function<void(ClientId, const protocol::Request&)> on_request;  // never a Hello
    std::function<void(ClientId)> on_leave;
  };
  ClientRegistry(uv_loop_t* loop, protocol::Hello own, Events events);
  ClientRegistry(const ClientRegistry&) = delete;
  ClientRegistry& operator=(const ClientRegistry&) = delete;
  ~ClientRegistry();

  // Accepts the new client of the listener.
  void accept(uv_stream_t* listener);

  void send(ClientId id, const protocol::Answer& answer);
  // Sends the reason and ends the connection.
  void refuse(ClientId id, const std::string& reason);

  // Destroys the clients that have disconnected, and ends the connections of those that are too
  // late. Call it several times a second, but not within an event.
  void sweep();
  // Destroys all clients. Must not be called within an event.
  void close();

  [[nodiscard]] std::size_t size() const { return clients_.size(); }

 private:
  class Connection;

  uv_loop_t* loop_;
  const protocol::Hello own_;
  const Events events_;
  std::map<ClientId, std::unique_ptr<Connection>> clients_;
  std::vector<std::unique_ptr<Connection>> leaving_;  // may still be executing a call
  ClientId next_id_ = 1;
};

}  // namespace dorajit::autotune
