// This process's requests to the daemon, and their answers.
#pragma once

#include <sys/types.h>

#include <atomic>
#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
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

// A thread whose owner can safely be destroyed in a forked child. start(), await() and join() must
// be called by one thread at a time, the other functions by any.
class OwnThread {
 public:
  OwnThread() = default;
  OwnThread(const OwnThread&) = delete;
  OwnThread& operator=(const OwnThread&) = delete;
  // In the process that started the thread, call join() first.
  ~OwnThread();

  // Call once. The thread receives no signals, because they are for the application's threads.
  // False if the system cannot create a thread.
  bool start(std::function<void()> work);

  // Whether this process has started the thread.
  [[nodiscard]] bool is_here() const;
  // Whether a parent of this process has started it, so that it does not exist here.
  [[nodiscard]] bool is_of_a_parent() const;

  // Waits until the thread has ended or the deadline has passed.
  void await(std::chrono::steady_clock::time_point deadline);
  // Does nothing if this process has not started the thread.
  void join();

 private:
  // A child must not destroy these: its thread cannot be joined or detached, and destroying a
  // condition variable waits for its waiters.
  struct Shared {
    std::thread thread;
    std::mutex mutex;
    std::condition_variable ended;
    bool has_ended = false;  // under mutex
  };

  std::atomic<pid_t> process_ = 0;  // the process that started it; 0: not started
  std::unique_ptr<Shared> shared_ = std::make_unique<Shared>();
};

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
  };
  struct Unanswered {
    protocol::TuneRequest request;
    Launches launches;
  };
  using Moment = std::chrono::steady_clock::time_point;
  friend class LiveRequests;

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

  const std::string folder_;
  const protocol::Hello own_;
  launch::ConfigSource::Listener listener_;
  const FileDescriptor wake_;  // an eventfd
  std::atomic<bool> is_ending_ = false;
  const pid_t opener_;  // the process that sent the hello

  // While it is held: no waiting, no logging, no calls of the listener.
  mutable std::mutex mutex_;
  std::map<Key, Question> asked_;            // under mutex_
  std::vector<Unanswered> outbox_;           // under mutex_
  std::unique_ptr<DaemonConnection> fresh_;  // under mutex_: passed to the thread
  bool is_connected_ = false;                // under mutex_
  Moment try_after_{};                       // under mutex_
  Moment end_deadline_{};                    // under mutex_

  std::unique_ptr<DaemonConnection> connection_;  // this and the following: used only by the thread
  std::map<Key, Unanswered> unanswered_;
  Moment next_report_{};

  OwnThread thread_;
};

}  // namespace dorajit::autotune
