#include "autotune/service/daemon/listening_socket.h"

#include <sys/stat.h>
#include <unistd.h>

#include <utility>

#include "autotune/service/protocol/socket_path.h"
#include "cache/files/file_error.h"

namespace dorajit::autotune {
namespace {

constexpr int kBacklog = 1024;

}  // namespace

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
