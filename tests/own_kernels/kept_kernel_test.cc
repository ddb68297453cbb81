// Own kernels that another process has used, found by the name that its results have.
#include <gmock/gmock.h>

#include <cstdio>
#include <filesystem>
#include <format>
#include <fstream>
#include <string>

#include "autotune/engine_factory.h"
#include "kernel_templates/registry.h"
#include "own_kernels/kernel.h"
#include "runtime/base/artifact_store.h"
#include "runtime/launch/problem.h"
#include "tests/fakes/child_process.h"
#include "tests/fakes/memory_artifact_store.h"
#include "tests/fakes/results.h"
#include "tests/own_kernels/fake_gpu.h"

namespace dorajit::tests {
namespace {

class KeptKernelTest : public OwnKernelTest {
 protected:
  KeptKernelTest() { set_variable("DORAJIT_TUNE", "off"); }
  ~KeptKernelTest() override { kernels::set_operation_source(nullptr); }

  // A kernel that this process never makes itself.
  static Json unknown_here(const std::string& name) { return with(swiglu(), {{"/name", name}}); }

  // The problem that a process of its own has launched a kernel for.
  std::string problem_of_another_process(const Json& json) {
    const std::string path = folder() + "/problem";
    const int status = cache::run_in_child([&] {
      const auto engine = make_engine();
      const auto* const kernel = create(json);
      SwigluCall call(1000);
      CHILD_CHECK(call.run(engine.get(), kernel).status == DORAJIT_OK);
      std::ofstream(path) << first_plan(engine.get()).problem;
      return 0;
    });
    EXPECT_EQ(status, 0);
    std::string problem;
    std::ifstream(path) >> problem;
    return problem;
  }

  [[nodiscard]] Settings settings() const {
    Settings settings;
    settings.cache_dir = cache_dir();
    return settings;
  }
};

TEST_F(KeptKernelTest, ProblemOfAnotherProcessIsReadByItsText) {
  set_variable("DORAJIT_CACHE_DIR", cache_dir());
  const std::string problem = problem_of_another_process(unknown_here("kept_elsewhere"));
  EXPECT_THAT(problem, testing::StartsWith("kept_elsewhere@"));
  EXPECT_FALSE(launch::parse_problem(problem));
  autotune::serve_kept_kernels(settings());
  const auto parsed = tests::value_of(launch::parse_problem(problem));
  EXPECT_EQ(to_text(parsed), problem);
  EXPECT_EQ(parsed.variant.operation->operands.size(), 3U);
}

// As the daemon has it tuned: by a process that is told no more than the problem.
TEST_F(KeptKernelTest, WorkerOfTheDaemonTunesTheProblemOfAnotherProcess) {
  set_variable("DORAJIT_CACHE_DIR", cache_dir());
  const Json json = with(unknown_here("kept_for_a_worker"), {{"/arguments/2/1", "inout"}});
  // its fake driver writes nothing
  const std::string problem = problem_of_another_process(json);
  const Json request = {{"type", "tune"},
                        {"problem", problem},
                        {"device", "cuda/Fake GPU/sm_90/4 SMs/64 KiB L2/8 GiB"},
                        {"space", "slim"},
                        {"calls", 1},
                        {"gain", 0.2}};
  const std::string drivers = std::filesystem::path(DORAJIT_FAKE_CUDA).parent_path().string();
  const std::string command =
      std::format("echo '{}' | LD_LIBRARY_PATH='{}' DORAJIT_TUNE_SECONDS=0.3 '{}' --worker",
                  request.dump(), drivers, DORAJITD);
  FILE* const worker = ::popen(command.c_str(), "r");
  ASSERT_NE(worker, nullptr);
  std::string answer;
  for (int c = std::fgetc(worker); c != EOF; c = std::fgetc(worker)) {
    answer.push_back(static_cast<char>(c));
  }
  EXPECT_EQ(::pclose(worker), 0);
  EXPECT_THAT(answer, testing::HasSubstr("\"type\":\"tuned\""));
  EXPECT_THAT(answer, testing::HasSubstr(problem));
}

TEST_F(KeptKernelTest, DescriptionOfAnotherKernelIsNotTakenForIt) {
  const auto store = std::make_shared<MemoryArtifactStore>();
  const std::string name = "impostor@000000000000";
  keep_description(*store, name, unknown_here("impostor").dump());
  own_kernels::serve_kept_kernels(store);
  EXPECT_EQ(kernels::find_operation(name), nullptr);
  EXPECT_EQ(kernels::find_operation("nobody@000000000000"), nullptr);
  EXPECT_EQ(kernels::find_operation("nobody"), nullptr);
}

TEST_F(KeptKernelTest, DamagedDescriptionIsNoKernel) {
  const auto store = std::make_shared<MemoryArtifactStore>();
  keep_description(*store, "damaged@000000000000", "{\"name\": ");
  own_kernels::serve_kept_kernels(store);
  EXPECT_EQ(kernels::find_operation("damaged@000000000000"), nullptr);
}

}  // namespace
}  // namespace dorajit::tests
