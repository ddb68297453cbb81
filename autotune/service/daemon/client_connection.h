// One client of the daemon, as long as it is connected.
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

// Sees to it that lines are of bounded length, come to an end in time and are messages. What the
// client has not read is bounded too.
class ClientConnection {
 public:
  struct Events {
    std::function<void(const protocol::Request&)> on_request;
    std::function<void()> on_end;  // the last one; the connection is to be destroyed
  };
  ClientConnection(uv_loop_t* loop, Events events);

  uv_stream_t* stream() const { return reinterpret_cast<uv_stream_t*>(bytes_.handle()); }
  // Once the stream is connected.
  void start();

  void send(const protocol::Answer& answer);
  // Says why, and ends the connection.
  void refuse(const std::string& reason);

  [[nodiscard]] bool has_greeted() const { return has_greeted_; }
  // The client has said hello and is known to fit.
  void greet();

 private:
  void take(std::string_view bytes);
  void end();

  ByteStream bytes_;
  Timer deadline_;  // of the greeting, then of a line that has begun
  protocol::LineSplitter lines_;
  Events events_;
  bool has_greeted_ = false;
  bool has_ended_ = false;
};

}  // namespace dorajit::autotune
