// This process's requests to the daemon, and their answers.
#pragma once

#include <pthread.h>
#include <sys/types.h>
#include <unistd.h>

#include <atomic>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "autotune/service/client/daemon_connection.h"
#include "autotune/service/protocol/messages.h"
#include "kernel_templates/spaces.h"
#include "runtime/base/file_descriptor.h"
#include "runtime/device/device.h"
#include "runtime/launch/config_source.h"
#include "runtime/launch/problem.h"

namespace dorajit::autotune {

// Thread-safe. From the first request on, a background thread talks to the daemon and calls the
// listener and the log, which may take long: requests are sent after that. Requests that a daemon
// did not answer before it ended are sent again to the next one. When the object or the process
// ends, the thread sends the remaining messages once, as its last action, within kMaxFlushTime;
// this also works if the process never destroys the object, but not if a signal or _exit() ends it.
class DaemonRequests {
 public:
  // `folder` is the folder of the socket. Sends the hello at once, so that the daemon may have
  // answered it by the first request.
  DaemonRequests(std::string folder, protocol::Hello own);
  DaemonRequests(const DaemonRequests&) = delete;
  DaemonRequests& operator=(const DaemonRequests&) = delete;
  ~DaemonRequests();

  static constexpr std::chrono::milliseconds kMaxFlushTime{20};

  // Ends the thread: nothing is sent, and the listener is not called, any more. Not thread-safe.
  void close();

  // Counts launches; the daemon tunes the most launched problems first.
  using Launches = std::shared_ptr<std::atomic<std::int64_t>>;

  // Requests, once, that the daemon tunes the problem. The caller counts launches in the result
  // until the winner arrives. Null if there is no daemon, or in a child of the process that talks
  // to it. Never blocks. `gain` is the share of the problem's time that a winner is expected to
  // save.
  Launches ask(const launch::Problem& problem, device::Device& device, kernels::SpaceKind space,
               double gain);

  // The listener is called for each problem whose winner has arrived, from a background thread. Set
  // before the first ask(); not called after the destructor.
  void set_listener(launch::ConfigSource::Listener listener) { listener_ = std::move(listener); }

 private:
  using Key = std::pair<std::string, std::string>;  // problem and device, as in the protocol
  struct Question {
    launch::Problem problem{};
    std::vector<device::Device*> devices{};  // with the same fingerprint
    Launches launches;
    protocol::TuneRequest request{};
    bool is_sent = false;      // to a daemon that may still answer it
    bool is_answered = false;  // kept, so that it is not asked again
  };
  using Moment = std::chrono::steady_clock::time_point;
  friend class LiveRequests;

  // Call while holding mutex_. False if the system cannot create a thread.
  bool start_thread();
  // Whether this process has started the thread.
  [[nodiscard]] bool has_thread() const { return thread_process_ == ::getpid(); }
  // Waits until the thread has ended or the deadline, if there is one, has passed. By one caller at
  // a time.
  void join(std::optional<Moment> deadline);
  void wake() const;
  // Makes the thread send the remaining messages and end; the first deadline counts. Never blocks.
  void end(Moment deadline);
  // Call these while holding mutex_.
  bool connect(Remarks& remarks);
  bool is_acceptable(Remarks& remarks);
  void pause_after(const DaemonConnection& lost, Remarks& remarks);

  // The thread's main function.
  void run_thread();
  void run_once();
  void wait();
  void send_remaining();
  void exchange_requests();
  void report_launches();
  void lose_connection();
  void handle_answer(const protocol::Answer& answer);
  // Whether the question waits for an answer; not any more after that. `answered` gets it.
  bool take_answered(const std::string& problem, const std::string& device, Question& answered);

  const std::string folder_;
  const protocol::Hello own_;
  launch::ConfigSource::Listener listener_;
  const FileDescriptor wake_;  // an eventfd
  std::atomic<bool> is_ending_ = false;
  const pid_t opener_;  // the process that sent the hello

  // While it is held: no waiting, no logging, no calls of the listener.
  mutable std::mutex mutex_;
  std::map<Key, Question> asked_;            // under mutex_
  std::size_t unanswered_ = 0;               // under mutex_: of asked_
  std::unique_ptr<DaemonConnection> fresh_;  // under mutex_: passed to the thread
  bool is_connected_ = false;                // under mutex_
  Moment try_after_{};                       // under mutex_
  Moment end_deadline_{};                    // under mutex_

  std::unique_ptr<DaemonConnection> connection_;  // this and the following: used only by the thread
  Moment next_report_{};

  // Not a std::thread, which a forked child, where it does not run, could not destroy.
  pthread_t thread_{};
  std::atomic<pid_t> thread_process_ = 0;  // the process that started it; 0: none
  bool is_joined_ = false;
};

}  // namespace dorajit::autotune
