// What this process has asked the daemon for, and who is to be told of the answers.
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

#include "autotune/service/client/daemon_connection.h"
#include "autotune/service/client/errands.h"
#include "autotune/service/client/own_thread.h"
#include "autotune/service/protocol/messages.h"
#include "kernel_templates/spaces.h"
#include "runtime/base/file_descriptor.h"
#include "runtime/device/device.h"
#include "runtime/launch/config_source.h"
#include "runtime/launch/problem.h"

namespace dorajit::autotune {

// Thread-safe. A thread of its own talks to the daemon, from the first request that one might
// answer; another tells the listener and the log, which may take their time. What a daemon did not
// answer before it went is asked again of the next. What waits to be sent when the object or the
// process ends is sent then, once, as the last that the thread does, in at most kLongestFarewell;
// also by a process that never destroys the object, but not by one that a signal or _exit() ends.
class DaemonRequests {
 public:
  // `folder` is that of the socket. Says hello already, so that by the first request the daemon may
  // have said whether it fits.
  DaemonRequests(std::string folder, protocol::Hello own);
  DaemonRequests(const DaemonRequests&) = delete;
  DaemonRequests& operator=(const DaemonRequests&) = delete;
  ~DaemonRequests();

  static constexpr std::chrono::milliseconds kLongestFarewell{20};

  // Ends the threads: nothing is sent or told any more. Not thread-safe.
  void close();

  // Counts launches; the daemon does first what is launched most.
  using Launches = std::shared_ptr<std::atomic<std::int64_t>>;

  // Tuning the problem is the daemon's business, who is asked once; launches of it are to be
  // counted until the winner arrives. Null: there is no daemon, or this is a child of the process
  // that talks to it. Waits for nothing. `gain` is the share of the problem's time that a winner
  // might save.
  Launches ask(const launch::Problem& problem, device::Device& device, kernels::SpaceKind space,
               double gain);

  // Told of each problem whose winner has arrived, from a thread of its own. Set before the first
  // ask(); not called any more once this is destroyed.
  void set_listener(launch::ConfigSource::Listener listener) { listener_ = std::move(listener); }

 private:
  using Key = std::pair<std::string, std::string>;  // problem and device, as the protocol has them
  struct Question {
    launch::Problem problem{};
    std::vector<device::Device*> devices{};  // of one fingerprint
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
  // Has the thread say farewell and end; the first deadline counts. Waits for nothing.
  void end(Moment deadline);
  void await_threads(Moment deadline);
  // Call these with mutex_ held.
  bool connect(Remarks& remarks);
  bool fits_so_far(Remarks& remarks);
  void pause_after(const DaemonConnection& lost, Remarks& remarks);

  // What the thread does.
  void converse();
  void talk();
  void wait();
  void bid_farewell();
  void exchange_news();
  void report_launches();
  void lose_connection();
  void settle(const protocol::Answer& answer);
  void have_said(Remarks remarks);
  void have_told(Question question);

  const std::string folder_;
  const protocol::Hello own_;
  launch::ConfigSource::Listener listener_;
  const FileDescriptor wake_;  // an eventfd
  std::atomic<bool> is_ending_ = false;
  const pid_t opener_;  // who has said hello

  // Nothing is waited for, logged or told with it held.
  mutable std::mutex mutex_;
  std::map<Key, Question> asked_;            // under mutex_
  std::vector<Unanswered> outbox_;           // under mutex_
  std::unique_ptr<DaemonConnection> fresh_;  // under mutex_: for the thread to take
  bool is_connected_ = false;                // under mutex_
  Moment try_after_{};                       // under mutex_
  Moment farewell_deadline_{};               // under mutex_

  std::unique_ptr<DaemonConnection> connection_;  // the thread's, as what follows
  std::map<Key, Unanswered> unanswered_;
  Moment next_report_{};

  OwnThread conversation_;
  Errands errands_;
};

}  // namespace dorajit::autotune
