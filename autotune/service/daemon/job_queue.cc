#include "autotune/service/daemon/job_queue.h"

#include <algorithm>

namespace dorajit::autotune {

bool JobQueue::has_priority_over(const Ranked& a, const Ranked& b) {
  if (a.second->is_running != b.second->is_running) return a.second->is_running;
  if (a.second->benefit != b.second->benefit) return a.second->benefit > b.second->benefit;
  return a.second->number < b.second->number;
}

bool JobQueue::offer(const Job& job, double benefit, ClientId waiter) {
  if (waits_ >= limits_.waits) return false;
  auto found = jobs_.find(job);
  if (found == jobs_.end()) {
    if (jobs_.size() >= limits_.jobs) return false;
    found = jobs_.emplace(job, State{.number = next_number_++}).first;
  }
  found->second.benefit += benefit;
  if (found->second.waiters.insert(waiter).second) ++waits_;
  return true;
}

std::optional<Job> JobQueue::take(const std::string& device, kernels::SpaceKind space) {
  auto best = jobs_.end();
  for (auto entry = jobs_.begin(); entry != jobs_.end(); ++entry) {
    if (entry->second.is_running || entry->first.device != device || entry->first.space != space) {
      continue;
    }
    if (best == jobs_.end() ||
        has_priority_over({&entry->first, &entry->second}, {&best->first, &best->second})) {
      best = entry;
    }
  }
  if (best == jobs_.end()) return std::nullopt;
  best->second.is_running = true;
  return best->first;
}

std::vector<ClientId> JobQueue::finish(const Job& job) {
  const auto node = jobs_.extract(job);
  if (!node) return {};
  const auto& waiters = node.mapped().waiters;
  waits_ -= waiters.size();
  return {waiters.begin(), waiters.end()};
}

bool JobQueue::give_back(const Job& job) {
  const auto found = jobs_.find(job);
  if (found == jobs_.end()) return true;
  found->second.is_running = false;
  return ++found->second.lost_attempts < limits_.attempts;
}

void JobQueue::forget(ClientId waiter) {
  for (auto& [job, state] : jobs_) waits_ -= state.waiters.erase(waiter);
}

std::set<std::pair<std::string, kernels::SpaceKind>> JobQueue::wanted() const {
  std::set<std::pair<std::string, kernels::SpaceKind>> found;
  for (const auto& [job, state] : jobs_) {
    if (!state.is_running) found.emplace(job.device, job.space);
  }
  return found;
}

std::vector<JobQueue::Entry> JobQueue::entries() const {
  std::vector<Ranked> ranked;
  for (const auto& [job, state] : jobs_) ranked.emplace_back(&job, &state);
  std::ranges::sort(ranked, has_priority_over);
  std::vector<Entry> entries;
  for (const auto& [job, state] : ranked) {
    entries.push_back({.job = *job,
                       .benefit = state->benefit,
                       .waiters = state->waiters.size(),
                       .is_running = state->is_running});
  }
  return entries;
}

}  // namespace dorajit::autotune
