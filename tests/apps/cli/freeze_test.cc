// freeze
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <fstream>
#include <string>
#include <thread>

#include "cache/records/pins.h"
#include "kernel_templates/config.h"
#include "tests/apps/cli/cli_sandbox.h"

namespace dorajit::test {
namespace {

using testing::HasSubstr;

class CliFreeze : public CliTest {
 protected:
  CliFreeze() { sandbox_.set("DORAJIT_TUNE_SECONDS", "0.05"); }

  std::vector<cache::Pin> entries(const std::string& path) {
    auto read = cache::read_pin_file(path);
    EXPECT_TRUE(read) << read.error().message;
    return read ? *read : std::vector<cache::Pin>();
  }
  void freeze(const std::string& path, const std::string& shapes) {
    sandbox_.succeed(
        {"freeze", "--device", "cpu", "--type", "f32", "--shape", shapes, "--out", path});
  }
};

TEST_F(CliFreeze, WithoutProblemsTheWinnersAreFrozen) {
  EXPECT_THAT(sandbox_.run("freeze --device cpu"), fails(2, "no winner for cpu/"));
  sandbox_.succeed("tune --shape 4x64,4x96 --type f32 --device cpu");
  const auto winners = sandbox_.json("show")["winners"];
  const auto frozen = sandbox_.json({"freeze", "--device", "cpu", "--out", file("a.lock")});
  const auto found = entries(file("a.lock"));
  ASSERT_EQ(found.size(), 2U);
  for (std::size_t i = 0; i < found.size(); ++i) {
    EXPECT_EQ(winners[i]["problem"], found[i].problem);
    EXPECT_EQ(winners[i]["config"], kernels::to_text(found[i].config));
    EXPECT_EQ(frozen["problems"][i]["source"], "user database");
    EXPECT_EQ(frozen["problems"][i]["code"], found[i].code);
  }
  // Printed, it is the same, byte for byte; and so it is when it is done again.
  EXPECT_EQ(sandbox_.run("freeze --device cpu").out, read_file(file("a.lock")));
}

TEST_F(CliFreeze, RecordedProblemsAreFrozenUntuned) {
  const std::string problems = sandbox_.write("problems.txt",
                                              "# of an application\n"
                                              "compose/f32,f32,f32,f32/v1/c64/r2\n"
                                              "compose/f32,f32,f32,f32/v1/c32/r2\n");
  const auto frozen =
      sandbox_.json({"freeze", "--device", "cpu", "--from", problems, "--out", file("a.lock")});
  EXPECT_EQ(frozen["problems"][0]["source"], "default");
  EXPECT_EQ(entries(file("a.lock")).size(), 2U);
  EXPECT_EQ(sandbox_.json("show")["winners"].size(), 0U);
}

TEST_F(CliFreeze, ComparesTheFilesOfRanks) {
  freeze(file("0.lock"), "4x64,4x96");
  freeze(file("1.lock"), "4x96,4x64");
  EXPECT_EQ(read_file(file("0.lock")), read_file(file("1.lock")));
  const CliResult same = sandbox_.succeed({"freeze", "--compare", file("0.lock"), file("1.lock")});
  EXPECT_THAT(same.out, HasSubstr("the same: 2 problems run alike"));

  auto altered = entries(file("1.lock"));
  altered[0].compiler = "another 1.0";
  altered[0].code[0] = altered[0].code[0] == '0' ? '1' : '0';
  altered.pop_back();
  std::ofstream(file("2.lock")) << cache::to_pin_text(altered);
  const Words compare = {"freeze", "--compare", file("0.lock"), file("1.lock"), file("2.lock")};
  const CliResult other = sandbox_.run(compare);
  EXPECT_EQ(other.exit_code, 1);
  EXPECT_THAT(other.out, HasSubstr("in " + file("0.lock") + ", another 1.0 in " + file("2.lock")));
  EXPECT_THAT(other.out, HasSubstr("  not in " + file("2.lock")));
  EXPECT_THAT(other.out, HasSubstr("not the same: 2 differences in 2 problems"));
  const auto document = sandbox_.run(with(compare, {"--json"})).document();
  EXPECT_EQ(document["same"], false);
  ASSERT_EQ(document["mismatches"].size(), 2U);
  EXPECT_EQ(document["mismatches"][0]["fields"].size(), 2U);
  EXPECT_THAT(document, has({{"/mismatches/0/fields/0/field", "compiler"},
                             {"/mismatches/1/missing_in", file("2.lock")}}));
}

TEST_F(CliFreeze, ChecksAMachineAgainstAFile) {
  freeze(file("a.lock"), "4x64");
  const Words check = {"freeze", "--check", file("a.lock"), "--device", "cpu"};
  sandbox_.succeed(check);
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
  EXPECT_THAT(checked, fails(1, larger[0].problem + ": its config "));
  EXPECT_THAT(checked.err, HasSubstr("workers are more than the"));
  EXPECT_THAT(checked.out, HasSubstr("not in this machine"));
}

TEST_F(CliFreeze, DoctorChecksTheLockFile) {
  freeze(file("a.lock"), "4x64,4x96");
  const auto finding = [&] {
    const auto document = sandbox_.json("doctor --device cpu");
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
  const auto explain = [&](const std::string& shape) {
    return with("explain --type f32 --device cpu", {"--shape", shape});
  };
  const std::string config = kernels::to_text(entries(file("a.lock"))[0].config);
  EXPECT_THAT(sandbox_.run(explain("4x64")).out, HasSubstr("lock file        -> " + config + "\n"));
  const auto held = sandbox_.json(explain("4x64"))["problems"][0];
  EXPECT_THAT(held,
              has({{"/source", "locked"}, {"/config", config}, {"/tuned_by_first_call", false}}));
  EXPECT_TRUE(held["lock_miss"].is_null());
  EXPECT_THAT(sandbox_.run(explain("4x96")).out,
              HasSubstr(", as the lock file has nothing that can run\n"));
  sandbox_.set("DORAJIT_LOCKED_MISS", "fail");
  EXPECT_THAT(sandbox_.run(explain("4x96")).out, HasSubstr("lock file        -> none: compose/"));
  EXPECT_THAT(std::string(sandbox_.json(explain("4x96"))["problems"][0]["lock_miss"]),
              HasSubstr("it has no entry for this problem on cpu/"));
}

TEST_F(CliFreeze, MissingLockFileIsReported) {
  const CliResult none = sandbox_.run({"freeze", "--compare", file("none"), file("none")});
  EXPECT_THAT(none, fails(1, "cannot use the lock file " + file("none")));
  // The program itself is never held to a lock.
  sandbox_.set("DORAJIT_LOCKED", file("none"));
  sandbox_.succeed("explain --shape 4x64 --device cpu");
}

}  // namespace
}  // namespace dorajit::test
