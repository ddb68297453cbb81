// The client's end of a connection to the daemon.
#pragma once

#include <chrono>
#include <memory>
#include <string>
#include <vector>

#include "autotune/service/protocol/messages.h"
#include "runtime/base/error.h"
#include "runtime/base/file_descriptor.h"
#include "runtime/base/log.h"

namespace dorajit::autotune {

// A message that is logged once per process. The caller logs it where logging may take time: not
// under a lock, and not between messages to the daemon.
struct Remark {
  LogLevel level = LogLevel::kInfo;
  std::string key;
  std::string text;
};
using Remarks = std::vector<Remark>;

void say(const Remarks& remarks);

// For poll(): rounded up, 0 for a moment that has passed.
int milliseconds_until(std::chrono::steady_clock::time_point moment);

// Never blocks; poll socket() for wanted_events() between calls. Not thread-safe. Whatever the
// other side sends or does, the worst effect is the end of the connection.
class DaemonConnection {
 public:
  // Null if no process of this user listens in that folder, or if others may write the folder; adds
  // the reason to `remarks` if it should be logged.
  static std::unique_ptr<DaemonConnection> open(const std::string& folder, protocol::Hello own,
                                                Remarks& remarks);

  // Sent with the next serve(). The hello is sent first automatically.
  void ask(const protocol::Request& request) { unsent_ += to_line(request); }

  // Sends and receives as much as possible, and adds the messages after the daemon's hello to
  // `answers`. False once the connection has ended.
  bool serve(std::vector<protocol::Answer>& answers);

  [[nodiscard]] int socket() const { return socket_.get(); }
  [[nodiscard]] short wanted_events() const;
  // How long to wait for the socket, in milliseconds: until the deadline of the daemon's hello,
  // afterwards without limit (-1).
  [[nodiscard]] int poll_timeout_ms() const;

  // Whether a request has not been sent completely.
  [[nodiscard]] bool has_unsent() const { return !unsent_.empty(); }
  // Whether the daemon has sent a hello with matching versions and folder.
  [[nodiscard]] bool has_greeted() const { return has_greeted_; }
  // The reason why the daemon refused this process; may be empty.
  [[nodiscard]] const std::string& refusal() const { return refusal_; }

 private:
  DaemonConnection(FileDescriptor socket, protocol::Hello own);
  bool send();
  bool take(const std::string& line, std::vector<protocol::Answer>& answers);
  bool take_hello(const protocol::Hello& hello);

  FileDescriptor socket_;
  const protocol::Hello own_;
  const std::chrono::steady_clock::time_point greeting_deadline_;
  std::string unsent_;
  protocol::LineSplitter lines_{protocol::kMaxAnswerBytes};
  std::string refusal_;
  bool has_greeted_ = false;
};

// The daemon's answer to a status request. kIoError if no
// daemon listens in the folder, if it does not match `own`, or if it does not answer in time.
Result<std::string> ask_status(const std::string& folder, const protocol::Hello& own);

}  // namespace dorajit::autotune
