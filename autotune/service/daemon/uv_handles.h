// libuv handles with owners. A handle's memory must live until its close callback has run, so each
// is given to the loop when its owner goes.
#pragma once

#include <uv.h>

#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "runtime/base/error.h"

namespace dorajit::autotune {

// What libuv's code means, with what was attempted.
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

  // Once one of uv_..._init() has been called on it.
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

// Calls back once after a while, or again and again.
class Timer {
 public:
  Timer(uv_loop_t* loop, std::function<void()> ring);
  void start(std::uint64_t milliseconds, std::uint64_t repeat_milliseconds = 0);
  void stop();

 private:
  UvHandle<uv_timer_t> handle_;
  std::function<void()> ring_;
};

// A pipe or Unix socket: bytes in, bytes out, the latter bounded. Callbacks may destroy the stream.
class ByteStream {
 public:
  struct Events {
    std::function<void(std::string_view)> on_bytes;
    std::function<void()> on_end;  // the other end closed it, or it failed
  };
  ByteStream(uv_loop_t* loop, std::size_t most_unsent_bytes);

  uv_pipe_t* handle() const { return handle_.get(); }
  Status start_reading(Events events);
  // False where the other end does not read: too much waits for it already.
  bool write(std::string bytes);

 private:
  UvHandle<uv_pipe_t> handle_;
  std::size_t most_unsent_bytes_;
  Events events_;
  std::vector<char> buffer_;
};

}  // namespace dorajit::autotune
