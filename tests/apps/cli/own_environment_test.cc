// NVRTC of the Python environment that the program is installed in.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <string>

#include "tests/apps/cli/cli_sandbox.h"

namespace dorajit::test {
namespace {

using testing::HasSubstr;
using testing::Not;
namespace fs = std::filesystem;

TEST(CliOwnEnvironment, WorldWritableFolderIsNotSearched) {
  CliSandbox sandbox;
  sandbox.set("DORAJIT_NVRTC", "");
  const fs::path environment = sandbox.folder() + "/environment";
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
