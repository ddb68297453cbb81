#include <gtest/gtest.h>

#include "cache/database/tuning_store.h"
#include "tests/cache/records/sample_records.h"
#include "tests/fakes/temporary_directory.h"

namespace dorajit::cache {
namespace {

constexpr int kTrialsEach = 4;

void fill(TuningStore& store) {
  for (const int problem : {1, 2}) {
    store.record(sample_trials(problem, kTrialsEach), sample_winner(problem));
  }
}

TEST(TuningStoreForget, ProblemIsForgottenInTheStoreAndOnDisk) {
  const TemporaryDirectory directory;
  const auto store = TuningStore::open(directory.path());
  fill(*store);
  const auto counts = store->forget(kDevice, sample_problem(1));
  ASSERT_TRUE(counts);
  EXPECT_EQ(counts->trials, kTrialsEach);
  EXPECT_EQ(counts->winners, 1);
  const auto reopened = TuningStore::open(directory.path());
  for (TuningStore* one : {store.get(), reopened.get()}) {
    EXPECT_FALSE(one->find_winner(kDevice, sample_problem(1)));
    EXPECT_TRUE(one->trials(kDevice, sample_problem(1)).empty());
    EXPECT_TRUE(one->find_winner(kDevice, sample_problem(2)));
    EXPECT_EQ(one->trials().size(), std::size_t{kTrialsEach});
    EXPECT_EQ(one->winners().size(), 1U);
  }
  EXPECT_EQ(store->forget(kDevice, sample_problem(1))->trials, 0);
  EXPECT_EQ(store->forget("another device", sample_problem(2))->trials, 0);
}

TEST(TuningStoreForget, EmptyTextForgetsEverything) {
  const TemporaryDirectory directory;
  const auto store = TuningStore::open(directory.path());
  fill(*store);
  EXPECT_EQ(store->forget("", "")->trials, 2 * kTrialsEach);
  EXPECT_EQ(TuningStore::open(directory.path())->trial_count(), 0);
  fill(*store);
  EXPECT_EQ(TuningStore::open(directory.path())->trial_count(), 2 * kTrialsEach)
      << "it is recorded again";
}

TEST(TuningStoreForget, WithoutADatabaseNothingIsForgotten) {
  const auto store = TuningStore::open("");
  fill(*store);
  EXPECT_FALSE(store->forget(kDevice, sample_problem(1)));
  EXPECT_TRUE(store->find_winner(kDevice, sample_problem(1)));
}

}  // namespace
}  // namespace dorajit::cache
