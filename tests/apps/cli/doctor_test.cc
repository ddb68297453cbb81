// doctor, and NVRTC of the Python environment that the program is installed in.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <string>

#include "cache/database/sqlite_connection.h"
#include "cache/database/tuning_store.h"
#include "tests/apps/cli/cli_sandbox.h"
#include "tests/cache/records/sample_records.h"

namespace dorajit::test {
namespace {

namespace fs = std::filesystem;
using testing::HasSubstr;
using testing::Not;

nlohmann::json finding(const nlohmann::json& findings, const std::string& subject) {
  for (const auto& one : findings) {
    if (one["subject"] == subject) return one;
  }
  ADD_FAILURE() << "nothing on " << subject << " in " << findings;
  return {};
}

using CliDoctor = CliTest;

TEST_F(CliDoctor, DevicesAreListedAndTheCpuIsLast) {
  const auto document = sandbox_.json("doctor");
  const auto& cpu = document["devices"].back();
  EXPECT_THAT(cpu, has({{"/id", "cpu"}, {"/condition", "ok"}}));
  EXPECT_GE(cpu["processors"], 1);
  EXPECT_GT(cpu["memory_bytes"], 0);
  EXPECT_THAT(cpu["fingerprint"], testing::StartsWith("cpu/"));
  const auto driver = finding(document["pieces"], "NVIDIA driver");
  EXPECT_EQ(driver["condition"] == "ok", document["devices"].size() > 1) << driver;
}

TEST_F(CliDoctor, ComposesOnTheCpu) {
  const auto document = sandbox_.json("doctor --device cpu");
  EXPECT_EQ(document["usable"], true);
  EXPECT_EQ(finding(document["devices"], "cpu")["condition"], "ok");
  EXPECT_EQ(finding(document["pieces"], "cache folder")["condition"], "ok");
  EXPECT_EQ(finding(document["pieces"], "tuning database")["condition"], "ok");
}

TEST_F(CliDoctor, BadRowsOfTheTuningDatabaseAreAWarning) {
  cache::TuningStore::open(sandbox_.cache_dir())->merge(cache::sample_trials(1, 2));
  const std::string database = sandbox_.database();
  {
    auto connection = cache::Connection::open(database, cache::Connection::Mode::kReadWrite);
    ASSERT_TRUE(connection);
    ASSERT_TRUE(connection->execute("UPDATE trials SET samples = samples + 1 WHERE id = 1"));
  }
  const auto pieces = sandbox_.json("doctor --device cpu")["pieces"];
  EXPECT_EQ(finding(pieces, "tuning database")["condition"], "warning");
  EXPECT_THAT(std::string(finding(pieces, "tuning database")["what"]),
              HasSubstr("1 bad row ignored"));
  EXPECT_EQ(sandbox_.run({"doctor", database}).exit_code, 1);
}

TEST_F(CliDoctor, UnknownVariablesAreFlagged) {
  sandbox_.set("DORAJIT_TUNNE", "off");
  sandbox_.set("DORAJIT_LOG", "error");
  const auto environment = sandbox_.json("doctor --device cpu")["environment"];
  EXPECT_EQ(finding(environment, "DORAJIT_TUNNE")["condition"], "warning");
  EXPECT_EQ(finding(environment, "DORAJIT_LOG")["condition"], "ok");
  EXPECT_EQ(finding(environment, "DORAJIT_LOG")["what"], "error");
}

TEST_F(CliDoctor, MissingPiecesComeWithAdvice) {
  sandbox_.set("DORAJIT_CXX", "none");
  sandbox_.set("DORAJIT_NVRTC", "/nowhere");
  sandbox_.set("DORAJIT_CACHE_DIR", "/dev/null/cache");
  const CliResult result = sandbox_.run("doctor --device cpu --json");
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

TEST(CliOwnEnvironment, WorldWritableFolderIsNotSearched) {
  CliSandbox sandbox;
  sandbox.set("DORAJIT_NVRTC", "");
  const fs::path environment = sandbox.file("environment");
  const std::string program = environment / "bin/dorajit";
  const fs::path library = environment / "nvidia/cu13/lib/libnvrtc.so.13";
  fs::create_directories(environment / "bin");
  fs::create_directories(library.parent_path());
  fs::copy_file(DORAJIT_CLI, program);
  fs::copy_file(DORAJIT_FAKE_NVRTC, library);
  const auto doctor = [&] {
    return sandbox.run_words({program, "doctor", "--device", "cpu", "--json"});
  };
  const std::string refusal = "warning: " + library.string() + " is not used";
  auto report = doctor();
  EXPECT_THAT(report.out, HasSubstr("at " + library.string()));
  EXPECT_THAT(report.err, Not(HasSubstr(refusal)));
  fs::permissions(environment, fs::perms::all | fs::perms::sticky_bit);
  report = doctor();
  EXPECT_THAT(report.out, Not(HasSubstr(library.string())));
  const std::size_t said = report.err.find(refusal);
  ASSERT_NE(said, std::string::npos) << report.err;
  EXPECT_THAT(report.err.substr(said), HasSubstr("set DORAJIT_NVRTC=" + library.string()));
  EXPECT_EQ(report.err.find(refusal, said + 1), std::string::npos) << "it is said once";
  fs::remove(library);
  EXPECT_THAT(doctor().err, Not(HasSubstr("is not used"))) << "nothing was passed over";
}

}  // namespace
}  // namespace dorajit::test
