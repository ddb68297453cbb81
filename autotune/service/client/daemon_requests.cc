#include "autotune/service/client/daemon_requests.h"

#include <poll.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <csignal>
#include <cstdlib>
#include <format>
#include <set>

#include "runtime/base/file_descriptor.h"
#include "runtime/base/fork_guard.h"
#include "runtime/base/log.h"

namespace dorajit::autotune {
namespace {

using std::chrono::steady_clock;

constexpr std::size_t kMaxQuestions = 10'000;
constexpr std::chrono::seconds kPauseBetweenAttempts{2};
constexpr int kReportIntervalMs = 1000;
// A daemon that does not match will probably stay for some time.
constexpr std::chrono::seconds kPauseAfterRefusal{60};

}  // namespace

// All objects of the process, for its exit.
class LiveRequests {
 public:
  explicit LiveRequests(const LiveRequests* /*lost*/) {}
  LiveRequests(LiveRequests&&) noexcept {}  // only moved before use

  static void add(DaemonRequests* requests) {
    const ForkGuard work(dorajit::Work::kPreparing);
    LiveRequests& live = current(of_process);
    const std::scoped_lock lock(live.mutex_);
    live.all_.insert(requests);
    // Registered late: handlers run in reverse order of registration, so this one runs while
    // everything that the thread uses still exists.
    if (!std::exchange(live.awaits_exit_, true)) std::atexit(end_all);
  }

  static void remove(DaemonRequests* requests) {
    const ForkGuard work(dorajit::Work::kPreparing);
    LiveRequests& live = current(of_process);
    const std::scoped_lock lock(live.mutex_);
    live.all_.erase(requests);
  }

 private:
  // At process exit. All objects share one deadline.
  static void end_all() {
    LiveRequests* const live = of_process.find();
    if (live == nullptr) return;
    const auto deadline = steady_clock::now() + DaemonRequests::kMaxFlushTime;
    const std::scoped_lock lock(live->mutex_);
    for (DaemonRequests* requests : live->all_) requests->end(deadline);
    // A thread that still runs during exit would use destroyed objects.
    for (DaemonRequests* requests : live->all_) requests->join(deadline);
  }

  static constinit ForkSafe<LiveRequests, dorajit::Work::kPreparing> of_process;

  std::mutex mutex_;
  std::set<DaemonRequests*> all_;  // under mutex_
  bool awaits_exit_ = false;       // under mutex_
};

constinit ForkSafe<LiveRequests, dorajit::Work::kPreparing> LiveRequests::of_process;

DaemonRequests::DaemonRequests(std::string folder, protocol::Hello own)
    : folder_(std::move(folder)),
      own_(std::move(own)),
      wake_(::eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK)),
      opener_(::getpid()) {
  Remarks remarks;
  fresh_ = DaemonConnection::open(folder_, own_, remarks);
  (void)is_acceptable(remarks);
  say(remarks);
  LiveRequests::add(this);
}

DaemonRequests::~DaemonRequests() {
  LiveRequests::remove(this);
  close();
}

void DaemonRequests::close() {
  end(steady_clock::now() + kMaxFlushTime);
  join(std::nullopt);
}

bool DaemonRequests::start_thread() {
  // The signals are for the application's threads.
  sigset_t all;
  sigset_t before;
  ::sigfillset(&all);
  ::pthread_sigmask(SIG_SETMASK, &all, &before);
  const auto work = [](void* requests) -> void* {
    static_cast<DaemonRequests*>(requests)->run_thread();
    return nullptr;
  };
  const int error = ::pthread_create(&thread_, nullptr, work, this);
  ::pthread_sigmask(SIG_SETMASK, &before, nullptr);
  if (error == 0) thread_process_ = ::getpid();
  return error == 0;
}

void DaemonRequests::join(std::optional<Moment> deadline) {
  if (!has_thread() || is_joined_) return;
  if (!deadline) {
    is_joined_ = ::pthread_join(thread_, nullptr) == 0;
    return;
  }
  const auto until = std::chrono::system_clock::now() + (*deadline - steady_clock::now());
  const auto seconds = std::chrono::floor<std::chrono::seconds>(until);
  const timespec time{.tv_sec = seconds.time_since_epoch().count(),
                      .tv_nsec = std::chrono::nanoseconds(until - seconds).count()};
  is_joined_ = ::pthread_timedjoin_np(thread_, nullptr, &time) == 0;
}

void DaemonRequests::end(Moment deadline) {
  // A child that inherited the object has no threads, and the mutex may never be released.
  if (!has_thread()) return;
  {
    const std::scoped_lock lock(mutex_);
    if (is_ending_) return;
    end_deadline_ = deadline;
    is_ending_ = true;
  }
  wake();
}

void DaemonRequests::wake() const {
  const std::uint64_t one = 1;
  (void)!::write(wake_.get(), &one, sizeof one);
}

DaemonRequests::Launches DaemonRequests::ask(const launch::Problem& problem, device::Device& device,
                                             kernels::SpaceKind space, double gain) {
  // Checked first: in a child, the mutex may be held by a thread that does not exist.
  if (thread_process_ != 0 && !has_thread()) return nullptr;
  Key key(to_text(problem), device.info().fingerprint);
  auto launches = std::make_shared<std::atomic<std::int64_t>>(0);
  Remarks remarks;
  const ScopeExit said([&] { say(remarks); });
  {
    const std::scoped_lock lock(mutex_);
    if (const auto found = asked_.find(key); found != asked_.end()) {
      auto& devices = found->second.devices;
      if (std::ranges::find(devices, &device) == devices.end()) devices.push_back(&device);
      return found->second.launches;
    }
    if (asked_.size() >= kMaxQuestions || (!is_connected_ && !connect(remarks))) return nullptr;
    protocol::TuneRequest request{
        .problem = key.first, .device = key.second, .space = space, .gain = gain};
    asked_.emplace(std::move(key), Question{.problem = problem,
                                            .devices = {&device},
                                            .launches = launches,
                                            .request = std::move(request)});
    ++unanswered_;
  }
  wake();
  return launches;
}

bool DaemonRequests::connect(Remarks& remarks) {
  if (opener_ != ::getpid()) fresh_.reset();  // it belongs to the parent
  if (!is_acceptable(remarks)) {
    const Moment now = steady_clock::now();
    if (now < try_after_ || !wake_) return false;
    try_after_ = now + kPauseBetweenAttempts;
    fresh_ = DaemonConnection::open(folder_, own_, remarks);
    if (fresh_ == nullptr) return false;
  }
  if (!has_thread() && !start_thread()) return false;
  is_connected_ = true;
  return true;
}

// Whether there is a new connection that the daemon has not refused.
bool DaemonRequests::is_acceptable(Remarks& remarks) {
  if (fresh_ == nullptr) return false;
  std::vector<protocol::Answer> none;
  if (fresh_->serve(none)) return true;
  if (!fresh_->refusal().empty()) pause_after(*fresh_, remarks);
  fresh_.reset();
  return false;
}

void DaemonRequests::pause_after(const DaemonConnection& lost, Remarks& remarks) {
  const std::string& refusal = lost.refusal();
  if (!refusal.empty()) {
    remarks.push_back(
        {.level = LogLevel::kInfo,
         .key = "daemon " + refusal,
         .text = std::format("the daemon in {} cannot be used: {}", folder_, refusal)});
  }
  const bool fits = lost.has_greeted() || refusal.empty();
  try_after_ = steady_clock::now() + (fits ? kPauseBetweenAttempts : kPauseAfterRefusal);
}

void DaemonRequests::run_thread() {
  while (!is_ending_) {
    run_once();
    wait();
  }
  send_remaining();
}

// Sends new requests and receives answers.
void DaemonRequests::run_once() {
  exchange_requests();
  report_launches();
  std::vector<protocol::Answer> answers;
  if (connection_ != nullptr && !connection_->serve(answers)) lose_connection();
  for (const protocol::Answer& answer : answers) handle_answer(answer);
}

// Sends the remaining messages if the daemon accepts them.
void DaemonRequests::send_remaining() {
  exchange_requests();
  next_report_ = {};
  report_launches();
  Moment deadline;
  {
    const std::scoped_lock lock(mutex_);
    deadline = end_deadline_;
  }
  std::vector<protocol::Answer> unheard;
  while (connection_ != nullptr && connection_->serve(unheard) && connection_->has_unsent()) {
    const int left = milliseconds_until(deadline);
    if (left == 0) return;
    pollfd writable{.fd = connection_->socket(), .events = POLLOUT, .revents = 0};
    (void)::poll(&writable, 1, left);
  }
}

void DaemonRequests::exchange_requests() {
  Remarks remarks;
  const ScopeExit said([&] { say(remarks); });
  const std::scoped_lock lock(mutex_);
  if (!is_connected_ && unanswered_ > 0) connect(remarks);
  const bool is_fresh = fresh_ != nullptr;
  if (is_fresh) connection_ = std::move(fresh_);
  if (connection_ == nullptr) return;
  for (auto& [key, question] : asked_) {
    if (question.is_answered || (question.is_sent && !is_fresh)) continue;
    connection_->ask(question.request);
    question.is_sent = true;
  }
}

void DaemonRequests::report_launches() {
  const Moment now = steady_clock::now();
  if (connection_ == nullptr || now < next_report_) return;
  next_report_ = now + std::chrono::milliseconds(kReportIntervalMs);
  const std::scoped_lock lock(mutex_);
  for (const auto& [key, question] : asked_) {
    if (question.is_answered) continue;
    protocol::TuneRequest request = question.request;
    request.calls = static_cast<double>(question.launches->exchange(0));
    if (request.calls > 0) connection_->ask(request);
  }
}

void DaemonRequests::wait() {
  std::array<pollfd, 2> wanted{};
  wanted[0] = {.fd = wake_.get(), .events = POLLIN, .revents = 0};
  wanted[1] = {.fd = -1, .events = 0, .revents = 0};  // ignored by poll()
  int poll_timeout_ms = -1;
  {
    const std::scoped_lock lock(mutex_);
    if (connection_ != nullptr) {
      wanted[1].fd = connection_->socket();
      wanted[1].events = connection_->wanted_events();
      poll_timeout_ms = connection_->poll_timeout_ms();
      if (poll_timeout_ms < 0 && unanswered_ > 0) {
        poll_timeout_ms = kReportIntervalMs;
      }
    } else if (unanswered_ > 0) {
      poll_timeout_ms = milliseconds_until(try_after_);
    }
  }
  (void)::poll(wanted.data(), wanted.size(), poll_timeout_ms);
  std::uint64_t count = 0;
  (void)!::read(wake_.get(), &count, sizeof count);
}

void DaemonRequests::lose_connection() {
  Remarks remarks;
  {
    const std::scoped_lock lock(mutex_);
    pause_after(*connection_, remarks);
    is_connected_ = false;
  }
  connection_.reset();
  say(remarks);
}

bool DaemonRequests::take_answered(const std::string& problem, const std::string& device,
                                   Question& answered) {
  const std::scoped_lock lock(mutex_);
  const auto found = asked_.find({problem, device});
  if (found == asked_.end() || std::exchange(found->second.is_answered, true)) return false;
  --unanswered_;
  answered = found->second;
  return true;
}

// Calls the listener if the winner has arrived.
void DaemonRequests::handle_answer(const protocol::Answer& answer) {
  Question question;
  if (const auto* failed = std::get_if<protocol::Failed>(&answer)) {
    if (!take_answered(failed->problem, failed->device, question)) return;
    return log(LogLevel::kInfo,
               std::format("the daemon does not tune {}: {}", failed->problem, failed->reason));
  }
  const auto* tuned = std::get_if<protocol::Tuned>(&answer);
  if (tuned == nullptr || !take_answered(tuned->problem, tuned->device, question)) return;
  for (device::Device* device : question.devices) {
    if (listener_ && !is_ending_) listener_(question.problem, *device);
  }
}

}  // namespace dorajit::autotune
