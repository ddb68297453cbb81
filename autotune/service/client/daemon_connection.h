// One connection to the daemon, from the side of the client.
#pragma once

#include <chrono>
#include <memory>
#include <string>
#include <vector>

#include "autotune/service/protocol/line_splitter.h"
#include "autotune/service/protocol/messages.h"
#include "runtime/base/file_descriptor.h"
#include "runtime/base/log.h"

namespace dorajit::autotune {

// What a person should hear; with a key, once in a process. Who takes it says it where saying may
// take its time: not under a lock, nor between what the daemon is told.
struct Remark {
  LogLevel level = LogLevel::kInfo;
  std::string key;
  std::string text;
};
using Remarks = std::vector<Remark>;

void say(const Remarks& remarks);

// Waits for nothing; poll socket() for wanted_events() between calls. Not thread-safe. Nothing that
// the other side is, does or sends can do more harm than to end the connection.
class DaemonConnection {
 public:
  // Null where no process of this user listens in that folder, or others may write the folder. Adds
  // to `remarks` what should not go unsaid of that.
  static std::unique_ptr<DaemonConnection> open(const std::string& folder, protocol::Hello own,
                                                Remarks& remarks);

  // Sent with the next serve(). The hello goes first by itself.
  void ask(const protocol::Request& request) { unsent_ += to_line(request); }

  // Sends and receives what it can, and adds to `answers` what came after the daemon's hello.
  // False once the connection is of no use any more.
  bool serve(std::vector<protocol::Answer>& answers);

  [[nodiscard]] int socket() const { return socket_.get(); }
  [[nodiscard]] short wanted_events() const;
  // How long to wait for the socket: to the daemon's deadline to say hello, afterwards for ever
  // (-1).
  [[nodiscard]] int patience_ms() const;

  // Whether something that was asked has not been sent yet.
  [[nodiscard]] bool has_unsent() const { return !unsent_.empty(); }
  // Whether the daemon has said that it fits.
  [[nodiscard]] bool has_greeted() const { return has_greeted_; }
  // What it said instead of serving this process; may be empty.
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

}  // namespace dorajit::autotune
