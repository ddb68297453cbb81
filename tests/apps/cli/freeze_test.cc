// freeze
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <fstream>
#include <iterator>
#include <string>
#include <thread>

#include "cache/records/pins.h"
#include "kernel_templates/config_text.h"
#include "tests/apps/cli/cli_sandbox.h"

namespace dorajit::test {
namespace {

using testing::HasSubstr;

std::string read_file(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(file), {}};
}

class CliFreeze : public testing::Test {
 protected:
  CliFreeze() { sandbox_.set("DORAJIT_TUNE_SECONDS", "0.05"); }

  [[nodiscard]] std::string file(const std::string& name) const {
    return sandbox_.folder() + "/" + name;
  }
  std::vector<cache::Pin> entries(const std::string& path) {
    auto read = cache::read_pin_file(path);
    EXPECT_TRUE(read) << read.error().message;
    return read ? *read : std::vector<cache::Pin>();
  }
  void freeze(const std::string& path, const std::string& shapes) {
    const CliResult result = sandbox_.run(
        {"freeze", "--device", "cpu", "--type", "f32", "--shape", shapes, "--out", path});
    ASSERT_EQ(result.exit_code, 0) << result.err;
  }

  CliSandbox sandbox_;
};

TEST_F(CliFreeze, WithoutProblemsTheWinnersAreFrozen) {
  const CliResult nothing = sandbox_.run({"freeze", "--device", "cpu"});
  EXPECT_EQ(nothing.exit_code, 2);
  EXPECT_THAT(nothing.err, HasSubstr("no winner for cpu/"));
  ASSERT_EQ(
      sandbox_.run({"tune", "--shape", "4x64,4x96", "--type", "f32", "--device", "cpu"}).exit_code,
      0);
  const auto winners = sandbox_.run({"show", "--json"}).document()["winners"];
  const CliResult frozen =
      sandbox_.run({"freeze", "--device", "cpu", "--out", file("a.lock"), "--json"});
  ASSERT_EQ(frozen.exit_code, 0) << frozen.err;
  const auto found = entries(file("a.lock"));
  ASSERT_EQ(found.size(), 2U);
  for (std::size_t i = 0; i < found.size(); ++i) {
    EXPECT_EQ(winners[i]["problem"], found[i].problem);
    EXPECT_EQ(winners[i]["config"], kernels::to_text(found[i].config));
    EXPECT_EQ(frozen.document()["problems"][i]["source"], "user database");
    EXPECT_EQ(frozen.document()["problems"][i]["code"], found[i].code);
  }
  // Printed, it is the same, byte for byte; and so it is when it is done again.
  EXPECT_EQ(sandbox_.run({"freeze", "--device", "cpu"}).out, read_file(file("a.lock")));
}

TEST_F(CliFreeze, RecordedProblemsAreFrozenUntuned) {
  std::ofstream(file("problems.txt")) << "# of an application\n"
                                         "compose/f32,f32,f32,f32/v1/c64/r2\n"
                                         "compose/f32,f32,f32,f32/v1/c32/r2\n";
  const CliResult frozen = sandbox_.run({"freeze", "--device", "cpu", "--from",
                                         file("problems.txt"), "--out", file("a.lock"), "--json"});
  ASSERT_EQ(frozen.exit_code, 0) << frozen.err;
  EXPECT_EQ(frozen.document()["problems"][0]["source"], "default");
  EXPECT_EQ(entries(file("a.lock")).size(), 2U);
  EXPECT_EQ(sandbox_.run({"show", "--json"}).document()["winners"].size(), 0U);
}

TEST_F(CliFreeze, ComparesTheFilesOfRanks) {
  freeze(file("0.lock"), "4x64,4x96");
  freeze(file("1.lock"), "4x96,4x64");
  EXPECT_EQ(read_file(file("0.lock")), read_file(file("1.lock")));
  const CliResult same = sandbox_.run({"freeze", "--compare", file("0.lock"), file("1.lock")});
  EXPECT_EQ(same.exit_code, 0) << same.err;
  EXPECT_THAT(same.out, HasSubstr("the same: 2 problems run alike"));

  auto altered = entries(file("1.lock"));
  altered[0].compiler = "another 1.0";
  altered[0].code[0] = altered[0].code[0] == '0' ? '1' : '0';
  altered.pop_back();
  std::ofstream(file("2.lock")) << cache::to_pin_text(altered);
  const std::vector<std::string> compare = {"freeze", "--compare", file("0.lock"), file("1.lock"),
                                            file("2.lock")};
  const CliResult other = sandbox_.run(compare);
  EXPECT_EQ(other.exit_code, 1);
  EXPECT_THAT(other.out, HasSubstr("in " + file("0.lock") + ", another 1.0 in " + file("2.lock")));
  EXPECT_THAT(other.out, HasSubstr("  not in " + file("2.lock")));
  EXPECT_THAT(other.out, HasSubstr("not the same: 2 differences in 2 problems"));
  auto words = compare;
  words.emplace_back("--json");
  const auto document = sandbox_.run(words).document();
  EXPECT_EQ(document["same"], false);
  ASSERT_EQ(document["mismatches"].size(), 2U);
  EXPECT_EQ(document["mismatches"][0]["fields"].size(), 2U);
  EXPECT_EQ(document["mismatches"][0]["fields"][0]["field"], "compiler");
  EXPECT_EQ(document["mismatches"][1]["missing_in"], file("2.lock"));
}

TEST_F(CliFreeze, ChecksAMachineAgainstAFile) {
  freeze(file("a.lock"), "4x64");
  const std::vector<std::string> check = {"freeze", "--check", file("a.lock"), "--device", "cpu"};
  EXPECT_EQ(sandbox_.run(check).exit_code, 0);
  // Another compiler makes other code of the same config.
  sandbox_.set("DORAJIT_CXX", "clang++-19");
  const CliResult other = sandbox_.run(check);
  EXPECT_EQ(other.exit_code, 1) << other.err;
  EXPECT_THAT(other.out, HasSubstr("compiler: "));
  EXPECT_THAT(other.out, HasSubstr("in this machine"));

  auto elsewhere = entries(file("a.lock"));
  elsewhere[0].device = "cuda/another";
  std::ofstream(file("b.lock")) << cache::to_pin_text(elsewhere);
  const CliResult missing = sandbox_.run({"freeze", "--check", file("b.lock"), "--device", "cpu"});
  EXPECT_EQ(missing.exit_code, 1);
  EXPECT_THAT(missing.out, HasSubstr("not in this machine"));
}

TEST_F(CliFreeze, ConfigThatCannotRunIsADifference) {
  freeze(file("a.lock"), "4x64");
  auto larger = entries(file("a.lock"));
  larger[0].config.set(kernels::kWarps, static_cast<int>(std::thread::hardware_concurrency()) + 1);
  std::ofstream(file("b.lock")) << cache::to_pin_text(larger);
  const CliResult checked = sandbox_.run({"freeze", "--check", file("b.lock"), "--device", "cpu"});
  EXPECT_EQ(checked.exit_code, 1);
  EXPECT_THAT(checked.err, HasSubstr(larger[0].problem + ": its config "));
  EXPECT_THAT(checked.err, HasSubstr("workers are more than the"));
  EXPECT_THAT(checked.out, HasSubstr("not in this machine"));
}

TEST_F(CliFreeze, DoctorChecksTheLockFile) {
  freeze(file("a.lock"), "4x64,4x96");
  const auto finding = [&] {
    const auto document = sandbox_.run({"doctor", "--device", "cpu", "--json"}).document();
    for (const auto& piece : document["pieces"]) {
      if (piece["subject"] == "lock file") return piece;
    }
    return nlohmann::json();
  };
  EXPECT_TRUE(finding().is_null());
  sandbox_.set("DORAJIT_LOCKED", file("a.lock"));
  EXPECT_EQ(finding()["what"], file("a.lock") + ": 2 problems");
  EXPECT_EQ(finding()["condition"], "ok");
  sandbox_.set("DORAJIT_LOCKED", file("none.lock"));
  EXPECT_EQ(finding()["condition"], "broken");
}

TEST_F(CliFreeze, ExplainShowsTheLockFilesAnswer) {
  freeze(file("a.lock"), "4x64");
  sandbox_.set("DORAJIT_LOCKED", file("a.lock"));
  const auto explain = [&](const std::string& shape, bool as_json = false) {
    std::vector<std::string> words = {"explain", "--shape",  shape, "--type",
                                      "f32",     "--device", "cpu"};
    if (as_json) words.emplace_back("--json");
    return sandbox_.run(words);
  };
  const std::string config = kernels::to_text(entries(file("a.lock"))[0].config);
  EXPECT_THAT(explain("4x64").out, HasSubstr("lock file        -> " + config + "\n"));
  const auto held = explain("4x64", true).document()["problems"][0];
  EXPECT_EQ(held["source"], "locked");
  EXPECT_EQ(held["config"], config);
  EXPECT_EQ(held["tuned_by_first_call"], false);
  EXPECT_TRUE(held["lock_miss"].is_null());
  EXPECT_THAT(explain("4x96").out, HasSubstr(", as the lock file has nothing that can run\n"));
  sandbox_.set("DORAJIT_LOCKED_MISS", "fail");
  EXPECT_THAT(explain("4x96").out, HasSubstr("lock file        -> none: compose/"));
  EXPECT_THAT(std::string(explain("4x96", true).document()["problems"][0]["lock_miss"]),
              HasSubstr("it has no entry for this problem on cpu/"));
}

TEST_F(CliFreeze, InvalidOptionsAreRefused) {
  EXPECT_EQ(sandbox_.run({"freeze", "--compare", file("none")}).exit_code, 2);
  const CliResult none = sandbox_.run({"freeze", "--compare", file("none"), file("none")});
  EXPECT_EQ(none.exit_code, 1);
  EXPECT_THAT(none.err, HasSubstr("cannot use the lock file " + file("none")));
  EXPECT_EQ(sandbox_.run({"freeze", "--check", "x", "--out", "y"}).exit_code, 2);
  EXPECT_EQ(sandbox_.run({"freeze", "--shape", "4x64", "--device", "cpu", "--json"}).exit_code, 2);
  // The program itself is never held to a lock.
  sandbox_.set("DORAJIT_LOCKED", file("none"));
  EXPECT_EQ(sandbox_.run({"explain", "--shape", "4x64", "--device", "cpu"}).exit_code, 0);
}

}  // namespace
}  // namespace dorajit::test
