// Owners of libuv handles. A handle's memory must exist until its close callback has run, so the
// owner's destructor passes it to the loop.
#pragma once

#include <sys/types.h>
#include <uv.h>

#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "runtime/base/error.h"

namespace dorajit::autotune {

// An error with libuv's description of the code and the attempted action.
std::unexpected<Error> uv_failure(std::string_view attempt, int code);

template <class Handle>
class UvHandle {
 public:
  UvHandle() : handle_(new Handle{}) { handle_->data = nullptr; }
  UvHandle(const UvHandle&) = delete;
  UvHandle& operator=(const UvHandle&) = delete;
  ~UvHandle() { close(); }

  Handle* get() const { return handle_; }
  Handle* operator->() const { return handle_; }

  // Call after uv_..._init() succeeded.
  void mark_open() { is_open_ = true; }
  void close() {
    if (handle_ == nullptr) return;
    auto* base = reinterpret_cast<uv_handle_t*>(handle_);
    if (!is_open_) {
      delete handle_;
    } else {
      uv_close(base, [](uv_handle_t* closed) { delete reinterpret_cast<Handle*>(closed); });
    }
    handle_ = nullptr;
  }

 private:
  Handle* handle_;
  bool is_open_ = false;
};

// A pipe or Unix socket with bounded output. Callbacks may destroy the stream.
class ByteStream {
 public:
  struct Events {
    std::function<void(std::string_view)> on_bytes;
    std::function<void()> on_end;  // the other end closed it, or it failed
  };
  ByteStream(uv_loop_t* loop, std::size_t max_unsent_bytes);

  uv_pipe_t* handle() const { return handle_.get(); }
  Status start_reading(Events events);
  // False if the other end does not read: too much output is pending.
  bool write(std::string bytes);

 private:
  UvHandle<uv_pipe_t> handle_;
  std::size_t max_unsent_bytes_;
  Events events_;
  std::vector<char> buffer_;
};

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
