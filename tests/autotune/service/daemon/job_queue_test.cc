#include "autotune/service/daemon/job_queue.h"

#include <gtest/gtest.h>

namespace dorajit::autotune {
namespace {

constexpr auto kSlim = kernels::SpaceKind::kSlim;

Job job(const std::string& problem, const std::string& device = "gpu") {
  return {.problem = problem, .device = device, .space = kSlim};
}

std::string take(JobQueue& queue, const std::string& device = "gpu") {
  const auto taken = queue.take(device, kSlim);
  return taken ? taken->problem : "none";
}

TEST(JobQueue, JobsAreTakenByBenefitThenByArrival) {
  JobQueue queue;
  EXPECT_TRUE(queue.offer(job("c"), 1, 1));
  EXPECT_TRUE(queue.offer(job("a"), 1, 1));
  EXPECT_TRUE(queue.offer(job("b"), 2, 1));
  EXPECT_EQ(take(queue), "b");
  EXPECT_EQ(take(queue), "c");
  EXPECT_EQ(take(queue), "a");
  EXPECT_EQ(take(queue), "none");
}

TEST(JobQueue, RepeatedRequestAddsItsBenefitAndItsClient) {
  JobQueue queue;
  queue.offer(job("a"), 3, 1);
  for (const ClientId waiter : {1U, 2U, 3U, 3U}) queue.offer(job("b"), 1, waiter);
  EXPECT_EQ(queue.size(), 2U);
  EXPECT_EQ(take(queue), "b");
  queue.offer(job("b"), 1, 4);  // while the job is running
  EXPECT_EQ(take(queue), "a");
  EXPECT_EQ(queue.finish(job("b")), (std::vector<ClientId>{1, 2, 3, 4}));
  EXPECT_TRUE(queue.finish(job("b")).empty());
}

TEST(JobQueue, DevicesAndSpacesHaveSeparateQueues) {
  JobQueue queue;
  queue.offer(job("a", "one"), 1, 1);
  queue.offer(job("b", "two"), 9, 1);
  EXPECT_EQ(queue.wanted().size(), 2U);
  EXPECT_EQ(take(queue, "one"), "a");
  EXPECT_EQ(queue.wanted().size(), 1U);
  EXPECT_FALSE(queue.take("two", kernels::SpaceKind::kComprehensive));
  EXPECT_EQ(take(queue, "two"), "b");
}

TEST(JobQueue, JobIsDroppedAfterTooManyLostWorkers) {
  JobQueue queue({.jobs = 10, .attempts = 2});
  queue.offer(job("a"), 1, 7);
  EXPECT_EQ(take(queue), "a");
  EXPECT_TRUE(queue.give_back(job("a")));
  EXPECT_EQ(take(queue), "a");
  EXPECT_FALSE(queue.give_back(job("a")));
  EXPECT_EQ(queue.finish(job("a")), std::vector<ClientId>{7});
  EXPECT_EQ(queue.size(), 0U);
}

TEST(JobQueue, FullQueueAcceptsOnlyKnownJobs) {
  JobQueue queue({.jobs = 2, .attempts = 2});
  EXPECT_TRUE(queue.offer(job("a"), 1, 1));
  EXPECT_TRUE(queue.offer(job("b"), 1, 1));
  EXPECT_FALSE(queue.offer(job("c"), 1, 1));
  EXPECT_TRUE(queue.offer(job("a"), 1, 2));
}

TEST(JobQueue, JobOfADisconnectedClientStays) {
  JobQueue queue;
  queue.offer(job("a"), 1, 1);
  queue.forget(1);
  EXPECT_EQ(queue.entries().front().waiters, 0U);
  EXPECT_EQ(take(queue), "a");
  EXPECT_TRUE(queue.finish(job("a")).empty());
}

}  // namespace
}  // namespace dorajit::autotune
