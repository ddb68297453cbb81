// Owners of libuv handles. A handle's memory must exist until its close callback has run, so the
// owner's destructor passes it to the loop.
#pragma once

#include <uv.h>

#include <functional>
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

// Calls back once after a delay, or periodically.
class Timer {
 public:
  Timer(uv_loop_t* loop, std::function<void()> ring);
  void start(std::uint64_t milliseconds, std::uint64_t repeat_milliseconds = 0);
  void stop();

 private:
  UvHandle<uv_timer_t> handle_;
  std::function<void()> ring_;
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

}  // namespace dorajit::autotune
