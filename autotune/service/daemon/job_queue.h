// The queue of problems to tune, the clients that wait for them, and the running jobs. Pure: uses
// neither clocks nor processes.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "kernel_templates/spaces.h"

namespace dorajit::autotune {

struct Job {
  std::string problem;
  std::string device;  // fingerprint
  kernels::SpaceKind space = kernels::SpaceKind::kSlim;

  friend auto operator<=>(const Job&, const Job&) = default;
};

using ClientId = std::uint64_t;

// One job per problem, device and space, regardless of the number of requests. The job with the
// greatest benefit runs first; among equals, the oldest.
class JobQueue {
 public:
  struct Limits {
    std::size_t jobs = 10'000;    // waiting or running
    std::size_t waits = 100'000;  // of all clients for all jobs
    int attempts = 4;  // maximum per job; each failed attempt may cost a worker and a config
  };
  explicit JobQueue(Limits limits) : limits_(limits) {}
  JobQueue() : JobQueue(Limits{}) {}

  // For a known job, adds to its benefit. False if the queue is full.
  bool offer(const Job& job, double benefit, ClientId waiter);

  // The best job for the device and space; it is now running.
  std::optional<Job> take(const std::string& device, kernels::SpaceKind space);

  // The job has ended, with or without success: returns the clients that wait for it. Empty for an
  // unknown job.
  std::vector<ClientId> finish(const Job& job);

  // The worker of the job is gone. True: the job waits again. False: it has no attempts left; call
  // finish().
  bool give_back(const Job& job);

  // The client is gone. Its jobs stay: their winners serve later clients.
  void forget(ClientId waiter);

  // The devices and spaces with waiting jobs.
  [[nodiscard]] std::set<std::pair<std::string, kernels::SpaceKind>> wanted() const;

  struct Entry {
    Job job;
    double benefit = 0;
    std::size_t waiters = 0;
    bool is_running = false;
  };
  // Running jobs first, then the others in the order in which they would be taken.
  [[nodiscard]] std::vector<Entry> entries() const;
  [[nodiscard]] std::size_t size() const { return jobs_.size(); }

 private:
  struct State {
    double benefit = 0;
    std::uint64_t number = 0;  // order of arrival
    int lost_attempts = 0;
    bool is_running = false;
    std::set<ClientId> waiters{};
  };
  using Ranked = std::pair<const Job*, const State*>;
  static bool has_priority_over(const Ranked& a, const Ranked& b);

  Limits limits_;
  std::map<Job, State> jobs_;
  std::size_t waits_ = 0;
  std::uint64_t next_number_ = 0;
};

}  // namespace dorajit::autotune
