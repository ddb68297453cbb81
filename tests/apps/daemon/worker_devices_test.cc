// Which of several GPUs of one model a worker gets.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>

#include "tests/apps/daemon/fake_nvml/gpus_in_use.h"
#include "tests/apps/daemon/running_daemon.h"

namespace dorajit::tests {
namespace {

using namespace autotune::protocol;  // NOLINT(google-build-using-namespace): what this is about
using testing::HasSubstr;

// Long enough for what follows to fall into the pause after it.
constexpr const char* kSaysItsGpu =
    "*/c666/*) echo \"works on $CUDA_VISIBLE_DEVICES\" >&2; sleep 0.2 ;;";

ScriptedDaemon daemon_of_a_machine_with_gpus() {
  autotune::WorkerRules rules = ScriptedDaemon::quick_rules();
  rules.busy_duty = 0.001;
  return ScriptedDaemon(kSaysItsGpu, rules, DORAJIT_FAKE_NVML);
}

void tune(PlainClient& client) {
  TuneRequest request = cpu_request(666);
  request.device = "cuda/NVIDIA H200/sm_90/132 SMs/61440 KiB L2/140 GiB";
  client.send(request);
  client.expect<Tuned>();
}

TEST(WorkerDevicesProcess, WorkerTakesTheLeastUsedGpu) {
  const GpusInUse gpus("93 3");
  const auto daemon = daemon_of_a_machine_with_gpus();
  PlainClient client(daemon);
  tune(client);
  EXPECT_THAT(daemon.log(), HasSubstr("works on GPU-4"));
}

TEST(WorkerDevicesProcess, WorkerMovesWhenOthersUseItsGpu) {
  const GpusInUse gpus("93 3");
  const auto daemon = daemon_of_a_machine_with_gpus();
  PlainClient client(daemon);
  tune(client);
  gpus.are_now("3 93");
  tune(client);
  EXPECT_THAT(daemon.log(), HasSubstr("works on GPU-1"));
  EXPECT_EQ(client.status()["workers_lost"], 0);
}

TEST(WorkerDevicesProcess, VisibleDevicesOfTheDaemonAreKept) {
  const GpusInUse gpus("93 3");
  setenv("CUDA_VISIBLE_DEVICES", "0", 1);
  const auto daemon = daemon_of_a_machine_with_gpus();
  PlainClient client(daemon);
  tune(client);
  EXPECT_THAT(daemon.log(), HasSubstr("works on 0"));
}

}  // namespace
}  // namespace dorajit::tests
