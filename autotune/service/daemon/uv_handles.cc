#include "autotune/service/daemon/uv_handles.h"

#include <sys/stat.h>
#include <unistd.h>

#include <cstdint>
#include <format>
#include <memory>
#include <utility>

#include "autotune/service/protocol/socket_path.h"
#include "cache/files/directories.h"

namespace dorajit::autotune {
namespace {

constexpr std::size_t kReadBytes = std::size_t{16} << 10;

// The memory that one write needs until libuv has finished it.
struct PendingWrite {
  uv_write_t request{};
  std::string bytes;
};

constexpr int kBacklog = 1024;

}  // namespace

std::unexpected<Error> uv_failure(std::string_view attempt, int code) {
  return fail(StatusCode::kIoError,
              std::format("{}: {} ({})", attempt, uv_strerror(code), uv_err_name(code)));
}

ByteStream::ByteStream(uv_loop_t* loop, std::size_t max_unsent_bytes)
    : max_unsent_bytes_(max_unsent_bytes), buffer_(kReadBytes) {
  uv_pipe_init(loop, handle_.get(), 0);
  handle_.mark_open();
  handle_->data = this;
}

Status ByteStream::start_reading(Events events) {
  events_ = std::move(events);
  const auto allocate = [](uv_handle_t* handle, std::size_t, uv_buf_t* buffer) {
    auto& bytes = static_cast<ByteStream*>(handle->data)->buffer_;
    *buffer = uv_buf_init(bytes.data(), static_cast<unsigned>(bytes.size()));
  };
  const auto take = [](uv_stream_t* stream, ssize_t count, const uv_buf_t* buffer) {
    if (count == 0) return;
    auto* self = static_cast<ByteStream*>(stream->data);
    // A copy, because the callback may destroy the stream and with it the function.
    if (count < 0) {
      const auto on_end = self->events_.on_end;
      uv_read_stop(stream);
      return on_end();
    }
    const auto on_bytes = self->events_.on_bytes;
    const std::string bytes(buffer->base, static_cast<std::size_t>(count));
    on_bytes(bytes);
  };
  const int code = uv_read_start(reinterpret_cast<uv_stream_t*>(handle()), allocate, take);
  if (code != 0) return uv_failure("reading from a pipe", code);
  return {};
}

bool ByteStream::write(std::string bytes) {
  auto* stream = reinterpret_cast<uv_stream_t*>(handle());
  if (uv_stream_get_write_queue_size(stream) + bytes.size() > max_unsent_bytes_) return false;
  auto pending = std::make_unique<PendingWrite>();
  pending->bytes = std::move(bytes);
  pending->request.data = pending.get();
  const uv_buf_t buffer =
      uv_buf_init(pending->bytes.data(), static_cast<unsigned>(pending->bytes.size()));
  const auto done = [](uv_write_t* request, int) {
    delete static_cast<PendingWrite*>(request->data);
  };
  if (uv_write(&pending->request, stream, &buffer, 1, done) != 0) return false;
  static_cast<void>(pending.release());  // freed in `done`
  return true;
}

ListeningSocket::ListeningSocket(uv_loop_t* loop, OnArrival on_arrival)
    : on_arrival_(std::move(on_arrival)) {
  uv_pipe_init(loop, handle_.get(), 0);
  handle_.mark_open();
  handle_->data = this;
}

ListeningSocket::~ListeningSocket() {
  if (!own_path_.empty()) ::unlink(own_path_.c_str());
}

Status ListeningSocket::make(const std::string& path) {
  ::unlink(path.c_str());
  if (const int code = uv_pipe_bind(handle_.get(), path.c_str()); code != 0) {
    return uv_failure("creating the socket " + cache::shown_path(path), code);
  }
  own_path_ = path;
  ::chmod(path.c_str(), S_IRUSR | S_IWUSR);
  struct stat made{};
  ::lstat(path.c_str(), &made);
  device_ = made.st_dev;
  inode_ = made.st_ino;
  return {};
}

bool ListeningSocket::is_at(const std::string& path) const {
  struct stat found{};
  return own_path_.empty() ||
         (::lstat(path.c_str(), &found) == 0 && found.st_dev == device_ && found.st_ino == inode_);
}

Result<std::unique_ptr<ListeningSocket>> ListeningSocket::open(uv_loop_t* loop,
                                                               const std::string& folder,
                                                               int inherited,
                                                               OnArrival on_arrival) {
  std::unique_ptr<ListeningSocket> socket(new ListeningSocket(loop, std::move(on_arrival)));
  if (inherited < 0) {
    DORAJIT_TRY(socket->make(protocol::socket_path(folder)));
  } else if (const int code = uv_pipe_open(socket->handle_.get(), inherited); code != 0) {
    return uv_failure("using the inherited socket", code);
  }
  const auto arrived = [](uv_stream_t* stream, int status) {
    if (status == 0) static_cast<ListeningSocket*>(stream->data)->on_arrival_(stream);
  };
  const int code =
      uv_listen(reinterpret_cast<uv_stream_t*>(socket->handle_.get()), kBacklog, arrived);
  if (code != 0) return uv_failure("listening in " + cache::shown_path(folder), code);
  return socket;
}

}  // namespace dorajit::autotune
