// pin and forget
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <string>
#include <vector>

#include "cache/records/pins.h"
#include "tests/apps/cli/cli_sandbox.h"

namespace dorajit::test {
namespace {

using testing::HasSubstr;

constexpr const char* kProblem = "compose/f32,f32,f32,f32/v1/c64/r2";
constexpr const char* kConfig = "b64-w1-r1-v1-u1-c0";

class CliPin : public CliTest {
 protected:
  CliPin() { sandbox_.set("DORAJIT_TUNE_SECONDS", "0.05"); }

  // A command of one problem.
  [[nodiscard]] CliResult run(const std::string& command, const Words& more = {}) const {
    return sandbox_.run(
        with({command, "--shape", "4x64", "--type", "f32", "--device", "cpu"}, more));
  }
  [[nodiscard]] nlohmann::json problem(const std::string& command) const {
    const CliResult result = run(command, {"--json"});
    EXPECT_EQ(result.exit_code, 0) << result.err;
    return result.document()["problems"][0];
  }
  [[nodiscard]] std::string pins() const { return sandbox_.cache_dir() + "/pins.jsonl"; }
};

TEST_F(CliPin, PinnedConfigRunsUntilItIsRemoved) {
  ASSERT_EQ(run("tune").exit_code, 0);
  const CliResult pinned = run("pin", {"--config", kConfig});
  ASSERT_EQ(pinned.exit_code, 0) << pinned.err;
  EXPECT_EQ(pinned.out, std::string(kProblem) + ": pinned to " + kConfig + "\n");
  for (const std::string command : {"tune", "explain"}) {
    EXPECT_EQ(problem(command)["source"], "pinned") << command;
    EXPECT_EQ(problem(command)["config"], kConfig) << command;
  }
  EXPECT_THAT(run("explain").out, HasSubstr(std::string("pinned           -> ") + kConfig + "\n"));
  EXPECT_EQ(problem("explain")["tuned_by_first_call"], false);

  EXPECT_THAT(run("pin", {"--remove"}).out, HasSubstr("not pinned any more"));
  EXPECT_THAT(run("pin", {"--remove"}).out, HasSubstr("was not pinned"));
  EXPECT_EQ(problem("explain")["source"], "user database");
}

TEST_F(CliPin, UntunedProblemIsNotTunedWhilePinned) {
  ASSERT_EQ(run("pin", {"--config", kConfig}).exit_code, 0);
  const CliResult tuned = run("tune");
  EXPECT_EQ(tuned.exit_code, 0) << tuned.err;
  EXPECT_THAT(tuned.out, HasSubstr(std::string("pinned to ") + kConfig));
  EXPECT_EQ(sandbox_.json("show")["winners"].size(), 0U);
  ASSERT_EQ(run("tune", {"--force"}).exit_code, 0);
  EXPECT_EQ(sandbox_.json("show")["winners"].size(), 1U);
  EXPECT_EQ(problem("explain")["source"], "pinned");
}

TEST_F(CliPin, LaterPinReplacesTheEarlierOne) {
  ASSERT_EQ(run("pin", {"--config", kConfig}).exit_code, 0);
  ASSERT_EQ(run("pin", {"--config", "b128-w1-r1-v1-u1-c0"}).exit_code, 0);
  const auto shown = sandbox_.json("show")["pins"];
  ASSERT_EQ(shown.size(), 1U);
  EXPECT_THAT(shown, has({{"/0/problem", kProblem}, {"/0/config", "b128-w1-r1-v1-u1-c0"}}));
  EXPECT_THAT(sandbox_.run("show").out, HasSubstr("b128-w1-r1-v1-u1-c0"));
  // The pins are a lock file, with which a machine can be compared.
  sandbox_.succeed({"freeze", "--check", pins(), "--device", "cpu"});
}

TEST_F(CliPin, ConfigThatCannotRunIsRefused) {
  const std::vector<std::pair<std::string, std::string>> cases = {
      {"fast", "--config fast is not a config"},
      {"b64-w4096-r1-v1-u1-c0", "4096 workers are more than the"}};
  for (const auto& [config, message] : cases) {
    EXPECT_THAT(run("pin", {"--config", config}), fails(kUsage, message)) << config;
  }
  sandbox_.set("DORAJIT_CXX", "none");
  EXPECT_EQ(run("pin", {"--config", kConfig}).exit_code, 3);
  EXPECT_TRUE(sandbox_.json("show")["pins"].empty());
}

TEST_F(CliPin, PinThatHasBecomeInvalidIsNotUsed) {
  ASSERT_EQ(run("pin", {"--config", kConfig}).exit_code, 0);
  auto entries = cache::read_pin_file(pins());
  ASSERT_TRUE(entries);
  (*entries)[0].config.set(kernels::kWarps, 4096);
  std::ofstream(pins()) << cache::to_pin_text(*entries);
  const CliResult explained = run("explain", {"--json"});
  const auto found = explained.document()["problems"][0];
  EXPECT_THAT(found, has({{"/source", "default"},
                          {"/sources/0/source", "pinned"},
                          {"/sources/0/answers", false}}));
  EXPECT_THAT(explained.err, HasSubstr("is not used: its config"));
}

TEST_F(CliPin, DamagedPinsAreReportedAndIgnored) {
  ASSERT_EQ(run("pin", {"--config", kConfig}).exit_code, 0);
  std::ofstream(pins(), std::ios::app) << "{}\n";
  const CliResult explained = run("explain", {"--json"});
  EXPECT_EQ(explained.exit_code, 0);
  EXPECT_EQ(explained.document()["problems"][0]["source"], "default");
  EXPECT_THAT(explained.err, HasSubstr("cannot use the pinned configs in " + pins()));
  for (const std::string command : {"--remove", "--config=b64-w1-r1-v1-u1-c0"}) {
    EXPECT_THAT(run("pin", {command}), fails(kFailed, "delete the file"));
  }
}

TEST_F(CliPin, UnwritableFolderFails) {
  sandbox_.set("DORAJIT_CACHE_DIR", "/dev/null/cache");
  EXPECT_THAT(run("pin", {"--config", kConfig}), fails(kFailed, "set DORAJIT_CACHE_DIR"));
}

TEST_F(CliPin, ForgottenProblemIsTunedAnewAndOthersStay) {
  sandbox_.succeed("tune --shape 4x64,4x96 --type f32 --device cpu");
  const CliResult forgotten = run("forget", {"--json"});
  ASSERT_EQ(forgotten.exit_code, 0) << forgotten.err;
  const auto rows = forgotten.document()["forgotten"];
  ASSERT_EQ(rows.size(), 1U);
  EXPECT_THAT(rows, has({{"/0/problem", kProblem}, {"/0/winners", 1}}));
  EXPECT_GT(rows[0]["trials"], 1);
  const auto winners = sandbox_.json("show")["winners"];
  ASSERT_EQ(winners.size(), 1U);
  EXPECT_EQ(winners[0]["problem"], "compose/f32,f32,f32,f32/v1/c96/r2");
  EXPECT_THAT(run("forget").out, HasSubstr("has nothing of that"));
  EXPECT_EQ(problem("tune")["source"], "tuned");
}

TEST_F(CliPin, ForgetFiltersByDevice) {
  ASSERT_EQ(run("tune").exit_code, 0);
  const auto forget = [&](const std::string& device) {
    const auto result =
        sandbox_.json({"forget", "--shape", "4x64", "--type", "f32", "--device", device});
    return result["forgotten"].size();
  };
  EXPECT_EQ(forget("H200"), 0U);
  EXPECT_EQ(forget("threads"), 1U);
}

TEST_F(CliPin, ForgetSaysThatAShippedWinnerRuns) {
  ASSERT_EQ(run("tune").exit_code, 0);
  const std::string shipped = sandbox_.file("shipped");
  std::filesystem::create_directory(shipped);
  sandbox_.succeed({"export", "--ship", "--out", shipped + "/here.db"});
  sandbox_.set("DORAJIT_DATABASES", shipped);
  EXPECT_THAT(run("forget").out, HasSubstr("its shipped winner runs now"));
  EXPECT_EQ(problem("explain")["source"], "shipped database");
}

TEST_F(CliPin, ShowFiltersByProblem) {
  sandbox_.succeed("tune --shape 4x64,4x96 --type f32 --device cpu");
  EXPECT_EQ(sandbox_.json("show")["winners"].size(), 2U);
  const CliResult shown = run("show", {"--json"});
  ASSERT_EQ(shown.document()["winners"].size(), 1U) << shown.err;
  EXPECT_EQ(shown.document()["winners"][0]["problem"], kProblem);
}

}  // namespace
}  // namespace dorajit::test
