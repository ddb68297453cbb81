// tune --shard
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <fstream>
#include <random>
#include <set>
#include <string>

#include "tests/apps/cli/cli_sandbox.h"

namespace dorajit::test {
namespace {

using testing::IsEmpty;

constexpr int kShards = 3;

Words small_problems() {
  Words problems;
  for (const char* cols : {"64", "96", "128", "160", "192", "224", "256"}) {
    problems.push_back(std::string("compose/f32,f32,f32,f32/v1/c") + cols + "/r2");
  }
  return problems;
}

void write_lines(const std::string& path, const Words& lines) {
  std::ofstream file(path);
  for (const std::string& line : lines) file << line << '\n';
}

// Each machine has a file, cache and order of its own, and names some problems twice.
TEST(CliShardProcess, MergedPartsAreTheWhole) {
  const Words problems = small_problems();
  std::array<CliSandbox, kShards> machines;
  std::array<pid_t, kShards> processes{};
  std::mt19937 random(7);
  for (std::size_t i = 0; i < kShards; ++i) {
    auto lines = problems;
    lines.insert(lines.end(), problems.begin(), problems.begin() + static_cast<std::ptrdiff_t>(i));
    std::ranges::shuffle(lines, random);
    write_lines(machines[i].file("problems.txt"), lines);
    processes[i] = machines[i].start({"tune", "--from", machines[i].file("problems.txt"), "--shard",
                                      std::to_string(i + 1) + "/3", "--device", "cpu"});
  }
  for (const pid_t process : processes) EXPECT_EQ(wait_for(process), 0);

  std::multiset<std::string> tuned;
  const std::string all = machines[0].file("all.jsonl");
  Words merge = {"export", "--out", all};
  for (const CliSandbox& machine : machines) {
    const auto shown = machine.json("show");
    EXPECT_GE(shown["winners"].size(), 2) << "parts are as long as each other but for one";
    for (const auto& winner : shown["winners"]) tuned.insert(winner["problem"]);
    merge.insert(merge.end(), {"--from", machine.file("trials.jsonl")});
    machine.succeed({"export", "--out", merge.back()});
  }
  EXPECT_EQ(Words(tuned.begin(), tuned.end()), [&] {
    auto sorted = problems;
    std::ranges::sort(sorted);
    return sorted;
  }()) << "every problem once";

  merge.emplace_back("--json");
  const auto merged = machines[0].json(merge);
  EXPECT_EQ(merged["winners"], problems.size()) << "as one process tunes them all";
  const CliSandbox whole;
  whole.succeed({"import", all});
  write_lines(whole.file("problems.txt"), problems);
  const auto known = whole.json({"tune", "--from", whole.file("problems.txt"), "--device", "cpu"});
  EXPECT_EQ(known["statistics"]["tuned_problems"], 0);
  for (const auto& problem : known["problems"]) {
    EXPECT_EQ(problem["source"], "user database") << problem;
  }
}

TEST(CliShard, SplitsListedShapesToo) {
  const CliSandbox sandbox;
  const CliResult result =
      sandbox.run("tune --shape 4x64,4x96 --shard 3/3 --type f32 --device cpu --json");
  EXPECT_EQ(result.exit_code, 0) << "a part may be empty: " << result.err;
  EXPECT_THAT(result.document()["problems"], IsEmpty());
  EXPECT_THAT(result.document(), has({{"/shard/index", 3}, {"/shard/problems_in_all", 2}}));
}

TEST(CliShard, InvalidPartsAreRefused) {
  const CliSandbox sandbox;
  for (const char* shard : {"0/3", "4/3", "x", "1", "1/", "/3", "-1/3", "1/3x", "1/99999999999"}) {
    EXPECT_THAT(sandbox.run({"tune", "--shape", "4x64", "--device", "cpu", "--shard", shard}),
                fails(2, std::string("--shard ") + shard + " is not of the form I/N"))
        << shard;
  }
}

}  // namespace
}  // namespace dorajit::test
