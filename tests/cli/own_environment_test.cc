// NVRTC of the Python environment that the program is installed in.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <string>

#include "cli_sandbox.h"

namespace dorajit::test {
namespace {

using testing::HasSubstr;
using testing::Not;
namespace fs = std::filesystem;

TEST(CliOwnEnvironment, IsNotSearchedWhereEverybodyCouldHavePutIt) {
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
    return sandbox.run_words({program, "doctor", "--device", "cpu", "--json"}).out;
  };
  EXPECT_THAT(doctor(), HasSubstr("at " + library.string()));
  fs::permissions(environment, fs::perms::all | fs::perms::sticky_bit);
  EXPECT_THAT(doctor(), Not(HasSubstr(library.string())));
}

}  // namespace
}  // namespace dorajit::test
