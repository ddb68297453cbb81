// This process's requests to the daemon, and their answers.
#pragma once

#include <sys/types.h>

#include <atomic>
#include <chrono>
#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <utility>
#include <vector>

#include "autotune/service/client/background_tasks.h"
#include "autotune/service/client/daemon_connection.h"
#include "autotune/service/protocol/messages.h"
#include "kernel_templates/spaces.h"
#include "runtime/base/file_descriptor.h"
#include "runtime/device/device.h"
#include "runtime/launch/config_source.h"
#include "runtime/launch/problem.h"

namespace dorajit::autotune {

// Thread-safe. A background thread talks to the daemon, from the first request on; a second one
// calls the listener and the log, which may take long. Requests that a daemon did not answer before
// it ended are sent again to the next one. When the object or the process ends, the thread sends
// the remaining messages once, as its last action, within kMaxFlushTime; this also works if the
// process never destroys the object, but not if a signal or _exit() ends it.
class DaemonRequests {
 public:
  // `folder` is the folder of the socket. Sends the hello at once, so that the daemon may have
  // answered it by the first request.
  DaemonRequests(std::string folder, protocol::Hello own);
  DaemonRequests(const DaemonRequests&) = delete;
  DaemonRequests& operator=(const DaemonRequests&) = delete;
  ~DaemonRequests();

  static constexpr std::chrono::milliseconds kMaxFlushTime{20};

  // Ends the threads: nothing is sent, and the listener is not called, any more. Not thread-safe.
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

  bool start_threads();
  void wake() const;
  // Makes the thread send the remaining messages and end; the first deadline counts. Never blocks.
  void end(Moment deadline);
  void await_threads(Moment deadline);
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
  void post_remarks(Remarks remarks);
  void post_notification(Question question);

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
  BackgroundTasks background_;
};

}  // namespace dorajit::autotune
