// devices and doctor
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/apps/cli/cli_sandbox.h"

namespace dorajit::test {
namespace {

using testing::HasSubstr;
using testing::IsEmpty;

nlohmann::json finding(const nlohmann::json& findings, const std::string& subject) {
  for (const auto& one : findings) {
    if (one["subject"] == subject) return one;
  }
  ADD_FAILURE() << "nothing on " << subject << " in " << findings;
  return {};
}

TEST(CliDevices, CpuIsAlwaysListed) {
  const CliResult result = CliSandbox().run({"devices", "--json"});
  ASSERT_EQ(result.exit_code, 0) << result.err;
  const auto document = result.document();
  const auto& cpu = document["devices"].back();
  EXPECT_EQ(cpu["id"], "cpu");
  EXPECT_GE(cpu["processors"], 1);
  EXPECT_GT(cpu["memory_bytes"], 0);
  EXPECT_THAT(cpu["fingerprint"], testing::StartsWith("cpu/"));
  EXPECT_EQ(document["cuda"]["available"], document["devices"].size() > 1);
  EXPECT_EQ(document["cuda"]["reason"] == "", document["devices"].size() > 1);
}

TEST(CliDevices, TableSaysWhyThereIsNoGpu) {
  const CliSandbox sandbox;
  const bool has_gpu = sandbox.run({"devices", "--json"}).document()["cuda"]["available"];
  const CliResult result = sandbox.run({"devices"});
  EXPECT_EQ(result.exit_code, 0);
  EXPECT_THAT(result.err, IsEmpty());
  EXPECT_EQ(result.out.contains("no CUDA device: "), !has_gpu);
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
