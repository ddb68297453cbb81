// The listening socket of the daemon.
#pragma once

#include <sys/types.h>
#include <uv.h>

#include <functional>
#include <memory>
#include <string>

#include "autotune/service/daemon/uv_handles.h"
#include "runtime/base/error.h"

namespace dorajit::autotune {

// Deletes the socket's name if it created it.
class ListeningSocket {
 public:
  using OnArrival = std::function<void(uv_stream_t* listener)>;  // must accept the connection

  // Creates the socket in that folder, which must stay open (cache::held_path) while the loop has
  // handles, and replaces a left-over socket: call while holding the leader's lock. If `inherited`
  // is a listening descriptor (not -1), uses that instead.
  static Result<std::unique_ptr<ListeningSocket>> open(uv_loop_t* loop, const std::string& folder,
                                                       int inherited, OnArrival on_arrival);
  ListeningSocket(const ListeningSocket&) = delete;
  ListeningSocket& operator=(const ListeningSocket&) = delete;
  ~ListeningSocket();

  // Whether the socket that it created still has that name; true for an inherited one.
  [[nodiscard]] bool is_at(const std::string& path) const;

 private:
  ListeningSocket(uv_loop_t* loop, OnArrival on_arrival);
  Status make(const std::string& path);

  UvHandle<uv_pipe_t> handle_;
  OnArrival on_arrival_;
  std::string own_path_;
  dev_t device_ = 0;  // of the socket with that name
  ino_t inode_ = 0;
};

}  // namespace dorajit::autotune
