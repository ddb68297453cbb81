// doctor
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "cache/database/sqlite_connection.h"
#include "cache/database/tuning_store.h"
#include "tests/apps/cli/cli_sandbox.h"
#include "tests/cache/records/sample_records.h"

namespace dorajit::test {
namespace {

using testing::HasSubstr;

nlohmann::json finding(const nlohmann::json& findings, const std::string& subject) {
  for (const auto& one : findings) {
    if (one["subject"] == subject) return one;
  }
  ADD_FAILURE() << "nothing on " << subject << " in " << findings;
  return {};
}

TEST(CliDoctor, DevicesAreListedAndTheCpuIsLast) {
  const CliResult result = CliSandbox().run({"doctor", "--json"});
  ASSERT_EQ(result.exit_code, 0) << result.err;
  const auto document = result.document();
  const auto& cpu = document["devices"].back();
  EXPECT_EQ(cpu["id"], "cpu");
  EXPECT_EQ(cpu["condition"], "ok");
  EXPECT_GE(cpu["processors"], 1);
  EXPECT_GT(cpu["memory_bytes"], 0);
  EXPECT_THAT(cpu["fingerprint"], testing::StartsWith("cpu/"));
  const auto driver = finding(document["pieces"], "NVIDIA driver");
  EXPECT_EQ(driver["condition"] == "ok", document["devices"].size() > 1) << driver;
}

TEST(CliDoctor, ComposesOnTheCpu) {
  const CliResult result = CliSandbox().run({"doctor", "--device", "cpu", "--json"});
  ASSERT_EQ(result.exit_code, 0) << result.err;
  const auto document = result.document();
  EXPECT_EQ(document["usable"], true);
  EXPECT_EQ(finding(document["devices"], "cpu")["condition"], "ok");
  EXPECT_EQ(finding(document["pieces"], "cache folder")["condition"], "ok");
  EXPECT_EQ(finding(document["pieces"], "tuning database")["condition"], "ok");
}

TEST(CliDoctor, BadRowsOfTheTuningDatabaseAreAWarning) {
  const CliSandbox sandbox;
  cache::TuningStore::open(sandbox.cache_dir())->merge(cache::sample_trials(1, 2));
  const std::string database = sandbox.cache_dir() + "/tuning.db";
  {
    auto connection = cache::Connection::open(database, cache::Connection::Mode::kReadWrite);
    ASSERT_TRUE(connection);
    ASSERT_TRUE(connection->execute("UPDATE trials SET samples = samples + 1 WHERE id = 1"));
  }
  const auto pieces = sandbox.run({"doctor", "--device", "cpu", "--json"}).document()["pieces"];
  EXPECT_EQ(finding(pieces, "tuning database")["condition"], "warning");
  EXPECT_THAT(std::string(finding(pieces, "tuning database")["what"]),
              HasSubstr("1 bad row ignored"));
  EXPECT_EQ(sandbox.run({"doctor", database}).exit_code, 1);
}

TEST(CliDoctor, UnknownVariablesAreFlagged) {
  CliSandbox sandbox;
  sandbox.set("DORAJIT_TUNNE", "off");
  sandbox.set("DORAJIT_LOG", "error");
  const auto environment =
      sandbox.run({"doctor", "--device", "cpu", "--json"}).document()["environment"];
  EXPECT_EQ(finding(environment, "DORAJIT_TUNNE")["condition"], "warning");
  EXPECT_EQ(finding(environment, "DORAJIT_LOG")["condition"], "ok");
  EXPECT_EQ(finding(environment, "DORAJIT_LOG")["what"], "error");
}

TEST(CliDoctor, MissingPiecesComeWithAdvice) {
  CliSandbox sandbox;
  sandbox.set("DORAJIT_CXX", "none");
  sandbox.set("DORAJIT_NVRTC", "/nowhere");
  sandbox.set("DORAJIT_CACHE_DIR", "/dev/null/cache");
  const CliResult result = sandbox.run({"doctor", "--device", "cpu", "--json"});
  EXPECT_EQ(result.exit_code, 0) << "the library's own kernels serve";
  const auto pieces = result.document()["pieces"];
  EXPECT_EQ(finding(pieces, "NVRTC")["condition"], "broken");
  EXPECT_THAT(finding(pieces, "NVRTC")["what"].get<std::string>(),
              HasSubstr("pip install nvidia-cuda-nvrtc"));
  EXPECT_EQ(finding(pieces, "host compiler")["condition"], "warning");
  EXPECT_EQ(finding(pieces, "cache folder")["condition"], "warning");
  EXPECT_THAT(finding(pieces, "cache folder")["what"].get<std::string>(),
              HasSubstr("DORAJIT_CACHE_DIR"));
}

}  // namespace
}  // namespace dorajit::test
