// Compilers: on this machine, for any machine.
#include <gtest/gtest.h>
#include <stdlib.h>

#include <filesystem>
#include <format>
#include <fstream>
#include <iterator>
#include <thread>

#include "kernel_templates/spaces.h"
#include "kernel_templates/template.h"
#include "kernel_templates/templates/streaming_configs.h"
#include "runtime/compile/compiler.h"
#include "runtime/compile/host_compiler.h"
#include "runtime/compile/nvrtc_compiler.h"
#include "runtime/compile/nvrtc_program.h"
#include "runtime/compile/subprocess.h"
#include "tests/fakes/memory_artifact_store.h"
#include "tests/fakes/results.h"
#include "tests/fakes/scoped_environment.h"
#include "tests/fakes/temporary_directory.h"
#include "tests/variants.h"

namespace dorajit::compile {
namespace {

using enum kernels::ElementType;
using kernels::DeviceKind;
using tests::error_of;
using tests::MemoryArtifactStore;
using tests::ScopedEnvironment;
using tests::value_of;

const Target kCpuTarget{.kind = DeviceKind::kCpu, .arch = "native"};
constexpr std::chrono::milliseconds kLong{60'000};
constexpr std::chrono::milliseconds kShort{100};

CompileRequest cpu_request() {
  return {.variant = tests::float_compose(),
          .config = kernels::builtin_cpu_config(tests::float_compose()),
          .target = kCpuTarget};
}

class TemporaryFolder : public cache::TemporaryDirectory {
 public:
  std::string script(const std::string& name, const std::string& body) const {
    cache::write_file(file(name), "#!/bin/sh\n" + body + "\n");
    std::filesystem::permissions(file(name), std::filesystem::perms::owner_all);
    return file(name);
  }
};

TEST(Subprocess, ReturnsOutputAndExitCode) {
  const auto run = run_process({"sh", "-c", "echo out; echo err >&2; exit 7"}, kLong);
  ASSERT_TRUE(run);
  EXPECT_EQ(run->exit_code, 7);
  EXPECT_EQ(run->output, "out\nerr\n");
}

TEST(Subprocess, ProgramThatCannotRunIsNamed) {
  const Error error = error_of(run_process({"/nonexistent/compiler"}, kLong));
  EXPECT_NE(error.message.find("/nonexistent/compiler"), std::string::npos);
}

TEST(Subprocess, HangingProgramIsKilled) {
  EXPECT_FALSE(run_process({"sleep", "infinity"}, kShort));
}

TEST(Subprocess, HangingProcessIsKilledAlthoughItClosedItsOutput) {
  EXPECT_FALSE(run_process({"sh", "-c", "exec >/dev/null 2>&1; sleep infinity"}, kShort));
}

TEST(Subprocess, ProcessThatOutlivesTheProgramAndHoldsItsOutputDoesNotDelayTheResult) {
  const auto run = run_process({"sh", "-c", "sleep infinity & echo made; exit 3"}, kLong);
  ASSERT_TRUE(run) << run.error().message;
  EXPECT_EQ(run->exit_code, 3);
  EXPECT_EQ(run->output, "made\n");
}

TEST(Subprocess, TimeoutKillsTheProcessesThatTheProgramStarted) {
  const auto run = run_process({"sh", "-c", "sleep infinity & echo $!; wait"}, kShort);
  ASSERT_FALSE(run);
  const int grandchild = std::stoi(run.error().log);
  const auto is_running = [&] {
    std::ifstream status(std::format("/proc/{}/stat", grandchild));
    const std::string text(std::istreambuf_iterator<char>(status), {});
    return !text.empty() && !text.contains(") Z ");
  };
  const auto deadline = std::chrono::steady_clock::now() + std::chrono::seconds(30);
  while (is_running() && std::chrono::steady_clock::now() < deadline) {
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
  EXPECT_FALSE(is_running());
}

TEST(Subprocess, OutputOfAProcessIsBounded) {
  const auto run = run_process({"sh", "-c", "echo first; head -c 4000000 /dev/zero"}, kLong);
  ASSERT_TRUE(run) << run.error().message;
  EXPECT_EQ(run->output.size(), kMaxOutputBytes);
  EXPECT_TRUE(run->output.starts_with("first\n"));
}

TEST(Subprocess, ProcessThatWritesForeverIsKilled) {
  const Error error = error_of(run_process({"yes"}, kShort));
  EXPECT_EQ(error.log.size(), kMaxOutputBytes);
}

TEST(Subprocess, FilesOfAProcessAreBounded) {
  TemporaryFolder folder;
  const std::string file = folder.script("written", "");
  const auto run = run_process(
      {"sh", "-c",
       std::format("while [ $(ulimit -f) = unlimited ]; do :; done; truncate -s {} {} || exit 5",
                   kMaxWrittenBytes + 1, file)},
      kLong);
  ASSERT_TRUE(run) << run.error().message;
  EXPECT_NE(run->exit_code, 0);
  EXPECT_LE(std::filesystem::file_size(file), kMaxWrittenBytes);
}

TEST(HostCompiler, CompilesASharedObject) {
  HostCompiler compiler("", nullptr);
  const Artifact artifact = value_of(compiler.compile(cpu_request()));
  EXPECT_TRUE(
      artifact.code.starts_with("\x7f"
                                "ELF"));
}

TEST(HostCompiler, WorksWithoutPathInTheEnvironment) {
  const ScopedEnvironment environment{"PATH"};
  HostCompiler compiler("", nullptr);
  EXPECT_NE(value_of(compiler.compile(cpu_request())).code, "");
}

TEST(HostCompiler, LeavesNoTemporaryFiles) {
  const ScopedEnvironment environment{"TMPDIR"};
  const TemporaryFolder folder;
  setenv("TMPDIR", folder.path().c_str(), 1);
  HostCompiler compiler("", nullptr);
  ASSERT_TRUE(compiler.compile(cpu_request()));
  EXPECT_TRUE(std::filesystem::is_empty(folder.path()));
}

TEST(HostCompiler, CompileErrorContainsTheCompleteLog) {
  TemporaryFolder folder;
  HostCompiler compiler(folder.script("broken-c++", "echo it is broken; exit 3"), nullptr);
  const Error error = error_of(compiler.compile(cpu_request()));
  EXPECT_EQ(error.code, StatusCode::kCompileError);
  EXPECT_EQ(error.log, "it is broken\n");
}

TEST(HostCompiler, MissingCompilerIsNamed) {
  HostCompiler compiler("/nonexistent/c++", nullptr);
  const Error error = error_of(compiler.compile(cpu_request()));
  EXPECT_EQ(error.code, StatusCode::kNoCompiler);
  EXPECT_NE(error.message.find("/nonexistent/c++"), std::string::npos);
}

TEST(HostCompiler, InvalidConfigFailsTheAssertionOfItsTemplate) {
  CompileRequest request = cpu_request();
  request.config.set(kernels::kVectorWidth, 3);
  HostCompiler compiler("", nullptr);
  const Error error = error_of(compiler.compile(request));
  EXPECT_NE(error.log.find("CPU configs have vector_width 1"), std::string::npos);
}

TEST(HostCompiler, IdentityIsStoredUntilTheFileChanges) {
  TemporaryFolder folder;
  MemoryArtifactStore notes;
  const std::string file = folder.script("c++", "echo compiler 1");
  EXPECT_EQ(*HostCompiler(file, &notes).identity(), "compiler 1");
  folder.script("c++", "echo compiler 2, the next");
  EXPECT_EQ(*HostCompiler(file, &notes).identity(), "compiler 2, the next");
}

TEST(ArtifactKey, DependsOnEveryInputOfTheCompilation) {
  const CompileRequest request = cpu_request();
  const std::string key = artifact_key(request, "-O3", "c++ 1");
  EXPECT_EQ(key, artifact_key(request, "-O3", "c++ 1"));
  EXPECT_NE(key, artifact_key(request, "-O2", "c++ 1"));
  EXPECT_NE(key, artifact_key(request, "-O3", "c++ 2"));
  CompileRequest other = request;
  other.config.set(kernels::kColumnsOfProgram, 64);
  EXPECT_NE(key, artifact_key(other, "-O3", "c++ 1"));
  other = request;
  other.variant.types[0] = kFloat16;
  EXPECT_NE(key, artifact_key(other, "-O3", "c++ 1"));
  other = request;
  other.target.arch = "another";
  EXPECT_NE(key, artifact_key(other, "-O3", "c++ 1"));
}

TEST(NvrtcLibrary, MissingLibraryErrorNamesThePackageToInstall) {
  NvrtcCompiler compiler("/nonexistent/folder/libnvrtc.so", nullptr);
  const Error error = error_of(compiler.identity());
  EXPECT_EQ(error.code, StatusCode::kNoCompiler);
  EXPECT_NE(error.message.find("pip install nvidia-cuda-nvrtc"), std::string::npos);
  EXPECT_NE(error.message.find("/nonexistent/folder"), std::string::npos);
}

TEST(NvrtcLibrary, LibraryWithoutNvrtcFunctionsIsReportedAsTooOld) {
  NvrtcCompiler compiler("libm.so.6", nullptr);
  const Error error = error_of(compiler.identity());
  EXPECT_EQ(error.code, StatusCode::kNoCompiler);
  EXPECT_NE(error.message.find("too old"), std::string::npos);
}

TEST(ResourceReport, IsParsedFromThePtxasLog) {
  const ResourceUsage usage = parse_resource_report(
      "ptxas info    : Function properties for dorajit_kernel\n"
      "    8 bytes stack frame, 12 bytes spill stores, 16 bytes spill loads\n"
      "ptxas info    : Used 42 registers, used 1 barriers, 400 bytes smem\n");
  EXPECT_EQ(usage, (ResourceUsage{.registers = 42,
                                  .shared_bytes = 400,
                                  .stack_bytes = 8,
                                  .spill_store_bytes = 12,
                                  .spill_load_bytes = 16}));
  EXPECT_EQ(parse_resource_report(""), ResourceUsage{});
}

TEST(CompilerLog, FirstErrorsHaveTheirTemplateArguments) {
  constexpr std::string_view kLog =
      "k.cu(1): warning #177-D: variable \"x\" was declared but never referenced\n"
      "\n"
      "k.cu(3): error: identifier \"y\" is undefined\n"
      "    y = 1;\n"
      "    ^\n"
      "          detected during instantiation of \"void k<BLOCK>() [with BLOCK=128]\" \n"
      "\n"
      "k.cu(4): error: expected a \";\"\n"
      "\n"
      "k.cu(5): error: a third one\n";
  EXPECT_EQ(first_error_line(kLog), "k.cu(3): error: identifier \"y\" is undefined");
  EXPECT_EQ(first_errors(kLog),
            "k.cu(3): error: identifier \"y\" is undefined [with BLOCK=128]; "
            "k.cu(4): error: expected a \";\"");
  EXPECT_EQ(first_errors("ptxas info    : 0 bytes gmem; no errors: 0"), "");
  EXPECT_EQ(first_errors("error\nptxas f.ptx, line 9; error   : Unexpected instruction\n"),
            "ptxas f.ptx, line 9; error   : Unexpected instruction");
  EXPECT_EQ(first_errors("ptxas fatal   : Unresolved extern function 'f'\n"),
            "ptxas fatal   : Unresolved extern function 'f'");
  EXPECT_EQ(first_errors(std::string(5000, 'x') + "error: " + "[with").size(), 400U);
}

class Nvrtc : public testing::Test {
 protected:
  void SetUp() override {
    const char* hint = getenv("DORAJIT_NVRTC");
    compiler_ = std::make_unique<NvrtcCompiler>(hint != nullptr ? hint : "", nullptr);
    if (const auto identity = compiler_->identity(); !identity) {
      GTEST_SKIP() << "no NVRTC here: " << identity.error().message;
    }
  }

  std::unique_ptr<NvrtcCompiler> compiler_;
};

TEST_F(Nvrtc, HasANameAndABuildNumber) {
  const std::string identity = *compiler_->identity();
  EXPECT_TRUE(identity.starts_with("NVRTC 1")) << identity;
  EXPECT_NE(identity.find("CL-"), std::string::npos) << identity;
}

TEST_F(Nvrtc, InvalidConfigFailsTheAssertionOfItsTemplate) {
  const Error error = error_of(compiler_->compile({.variant = tests::float_compose(),
                                                   .config = kernels::as_config({100, 4, 1, 4, 1}),
                                                   .target = {DeviceKind::kCuda, "sm_90"}}));
  EXPECT_EQ(error.code, StatusCode::kCompileError);
  EXPECT_NE(error.log.find("block_size must be a multiple"), std::string::npos) << error.log;
}

TEST_F(Nvrtc, ArchitectureNewerThanNvrtcGetsPtx) {
  const auto artifact = compiler_->compile(
      {.variant = tests::float_compose(),
       .config = kernels::default_config(tests::float_compose(), {.kind = DeviceKind::kCuda}, 4),
       .target = {DeviceKind::kCuda, "sm_999"}});
  ASSERT_TRUE(artifact) << artifact.error().message;
  EXPECT_NE(artifact->code.find(".target sm_"), std::string::npos);
}

TEST_F(Nvrtc, UnsupportedOldArchitectureIsNamed) {
  for (const char* arch : {"sm_50", "pentium"}) {
    const auto artifact =
        compiler_->compile({.variant = tests::float_compose(),
                            .config = kernels::builtin_cpu_config(tests::float_compose()),
                            .target = {DeviceKind::kCuda, arch}});
    ASSERT_FALSE(artifact);
    EXPECT_EQ(artifact.error().code, StatusCode::kUnsupported);
    EXPECT_NE(artifact.error().message.find(arch), std::string::npos);
  }
}

}  // namespace
}  // namespace dorajit::compile
