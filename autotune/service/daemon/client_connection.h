// The daemon's end of a connection to one client.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <string_view>

#include "autotune/service/daemon/job_queue.h"
#include "autotune/service/daemon/uv_handles.h"
#include "autotune/service/protocol/line_splitter.h"
#include "autotune/service/protocol/messages.h"

namespace dorajit::autotune {

// Checks that lines have a bounded length, are complete in time and are valid messages. Unread
// output is bounded, too.
class ClientConnection {
 public:
  struct Events {
    std::function<void(const protocol::Request&)> on_request;
    std::function<void()> on_end;  // the last event; the owner destroys the connection
  };
  ClientConnection(uv_loop_t* loop, Events events);

  uv_stream_t* stream() const { return reinterpret_cast<uv_stream_t*>(bytes_.handle()); }
  // Call when the stream is connected.
  void start();

  void send(const protocol::Answer& answer);
  // Sends the reason and ends the connection.
  void refuse(const std::string& reason);

  [[nodiscard]] bool has_greeted() const { return has_greeted_; }
  // Call when the client has sent a hello and matches.
  void greet();

 private:
  void take(std::string_view bytes);
  void end();

  ByteStream bytes_;
  Timer deadline_;  // of the greeting, then of an incomplete line
  protocol::LineSplitter lines_;
  Events events_;
  bool has_greeted_ = false;
  bool has_ended_ = false;
};

}  // namespace dorajit::autotune
