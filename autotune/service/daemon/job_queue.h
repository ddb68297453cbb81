// What is to be tuned next, who waits for it, and what is in hand. Pure: knows no clock and no
// process.
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

// One job a problem, device and space, however many ask for it. The job of the greatest benefit
// goes first; of equals, the one that was asked for first.
class JobQueue {
 public:
  struct Limits {
    std::size_t jobs = 10'000;    // waiting or in hand
    std::size_t waits = 100'000;  // of all waiters for all jobs
    int attempts = 4;             // to tune a job, each of which may cost a worker and a config
  };
  explicit JobQueue(Limits limits) : limits_(limits) {}
  JobQueue() : JobQueue(Limits{}) {}

  // Adds the benefit to that of a job that is known already. False when the queue is full.
  bool offer(const Job& job, double benefit, ClientId waiter);

  // The best job for the device and space, which is in hand from now on.
  std::optional<Job> take(const std::string& device, kernels::SpaceKind space);

  // The job is over, well or ill: who waited for it. Empty for a job that is not known.
  std::vector<ClientId> finish(const Job& job);

  // Who had it in hand is gone. True: the job waits again. False: that was too often; finish() is
  // due.
  bool give_back(const Job& job);

  // The waiter is gone. Its jobs stay: their winners serve whoever comes next.
  void forget(ClientId waiter);

  // Devices and spaces that have waiting jobs.
  [[nodiscard]] std::set<std::pair<std::string, kernels::SpaceKind>> wanted() const;

  struct Entry {
    Job job;
    double benefit = 0;
    std::size_t waiters = 0;
    bool is_in_hand = false;
  };
  // Those in hand, then the others in the order in which they would be taken.
  [[nodiscard]] std::vector<Entry> entries() const;
  [[nodiscard]] std::size_t size() const { return jobs_.size(); }

 private:
  struct State {
    double benefit = 0;
    std::uint64_t number = 0;  // in the order of arrival
    int lost_attempts = 0;
    bool is_in_hand = false;
    std::set<ClientId> waiters{};
  };
  using Ranked = std::pair<const Job*, const State*>;
  static bool goes_before(const Ranked& a, const Ranked& b);

  Limits limits_;
  std::map<Job, State> jobs_;
  std::size_t waits_ = 0;
  std::uint64_t next_number_ = 0;
};

}  // namespace dorajit::autotune
