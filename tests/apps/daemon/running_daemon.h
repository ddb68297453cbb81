// A daemon with folders of its own, and a client that says what it likes.
#pragma once

#include <sys/types.h>

#include <chrono>
#include <cstdint>
#include <functional>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "autotune/service/daemon/worker_supervisor.h"
#include "autotune/service/protocol/messages.h"
#include "runtime/base/file_descriptor.h"
#include "runtime/launch/problem.h"

namespace dorajit::tests {

// In a folder with a short name, as a socket's path must be short. Ended with the object.
class RunningDaemon {
 public:
  virtual ~RunningDaemon();
  RunningDaemon(const RunningDaemon&) = delete;
  RunningDaemon& operator=(const RunningDaemon&) = delete;

  // Again, after wait().
  void start();
  // Its exit code, or 128 + signal.
  int wait();
  void signal(int number) const;
  [[nodiscard]] pid_t pid() const { return pid_; }

  [[nodiscard]] const std::string& folder() const { return folder_; }
  [[nodiscard]] std::string cache_dir() const { return folder_ + "/cache"; }
  [[nodiscard]] std::string socket_folder() const { return folder_ + "/run"; }
  [[nodiscard]] autotune::protocol::Hello hello() const;
  [[nodiscard]] std::string log() const;

 protected:
  RunningDaemon();
  // In the child; does not return.
  virtual void run() const = 0;

 private:
  std::string folder_;
  pid_t pid_ = -1;
};

// The program.
class RealDaemon final : public RunningDaemon {
 public:
  explicit RealDaemon(std::vector<std::string> arguments = {}, bool starts = true)
      : arguments_(std::move(arguments)) {
    if (starts) start();
  }
  // For the daemon and its workers.
  void set(const std::string& variable, const std::string& value) {
    variables_.emplace_back(variable, value);
  }
  // Gives it a cache folder on a file system of that size, which the test does not see.
  void set_disk(const std::string& size) { disk_ = size; }
  // Starts it without the descriptors 0, 1 and 2.
  void close_streams() { has_streams_ = false; }
  [[nodiscard]] std::vector<std::string> command() const;

 private:
  void run() const override;

  std::vector<std::string> arguments_;
  std::string disk_;
  bool has_streams_ = true;
  std::vector<std::pair<std::string, std::string>> variables_;
};

// The real daemon's loop over workers that are a shell script, which is given each request as
// $line. A request for 600 columns and more is for the script's `case` to spoil; others are
// answered as tuned.
class ScriptedDaemon final : public RunningDaemon {
 public:
  explicit ScriptedDaemon(std::string spoils = "", autotune::WorkerRules rules = quick_rules(),
                          std::string nvml_library = "");
  static autotune::WorkerRules quick_rules();

 private:
  void run() const override;

  autotune::WorkerRules rules_;
  std::string nvml_library_;  // empty: no device is ever busy
};

// Blocking, with a time limit of minutes on whatever it waits for.
class PlainClient {
 public:
  // Connects, waiting for the daemon to listen.
  explicit PlainClient(const std::string& socket_folder);
  // The same, and says hello.
  explicit PlainClient(const RunningDaemon& daemon);

  // False when the daemon has closed the connection.
  bool send(const std::string& bytes);
  bool send(const autotune::protocol::Request& request) { return send(to_line(request)); }
  // Nothing when the daemon has closed the connection.
  std::optional<autotune::protocol::Answer> receive();
  // The same, which must be of that kind.
  template <class Message>
  Message expect() {
    const auto answer = receive();
    if (answer && std::holds_alternative<Message>(*answer)) return std::get<Message>(*answer);
    complain(answer);
    return {};
  }
  // The daemon's answer to a status request.
  nlohmann::json status();

 private:
  static void complain(const std::optional<autotune::protocol::Answer>& answer);

  FileDescriptor socket_;
  autotune::protocol::LineSplitter lines_{autotune::protocol::kMaxAnswerBytes};
};

// Until it is true, for minutes at most.
bool becomes_true(const std::function<bool()>& condition);

// A problem of the CPU.
launch::Problem cpu_problem(std::int64_t cols);
autotune::protocol::TuneRequest cpu_request(std::int64_t cols);

// The fingerprint of the CPU device.
std::string cpu_fingerprint();

}  // namespace dorajit::tests
