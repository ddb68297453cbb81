// The socket at which clients arrive.
#pragma once

#include <uv.h>

#include <functional>
#include <memory>
#include <string>

#include "autotune/service/daemon/uv_handles.h"
#include "runtime/base/error.h"

namespace dorajit::autotune {

// A name that it made itself goes with it.
class ListeningSocket {
 public:
  using OnArrival = std::function<void(uv_stream_t* listener)>;  // is to accept

  // Makes the socket of that folder, which is open (cache::held_path) for as long as the loop has
  // handles, in the place of one that is left over: call with the leader's lock held. A descriptor
  // that listens already (`inherited`, or -1) is taken instead.
  static Result<std::unique_ptr<ListeningSocket>> open(uv_loop_t* loop, const std::string& folder,
                                                       int inherited, OnArrival on_arrival);
  ListeningSocket(const ListeningSocket&) = delete;
  ListeningSocket& operator=(const ListeningSocket&) = delete;
  ~ListeningSocket();

 private:
  ListeningSocket(uv_loop_t* loop, OnArrival on_arrival);
  Status make(const std::string& path);

  UvHandle<uv_pipe_t> handle_;
  OnArrival on_arrival_;
  std::string own_path_;
};

}  // namespace dorajit::autotune
