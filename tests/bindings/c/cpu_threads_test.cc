// The limit of the number of threads that run a CPU kernel.
#include <filesystem>
#include <iterator>
#include <thread>

#include "runtime/device/cpu/cpu_device.h"
#include "tests/bindings/c/c_abi_fixture.h"

namespace dorajit::bindings {
namespace {

class CpuThreadsTest : public CAbiTest {
 protected:
  // The number of threads that the first launch of a large problem starts in this process.
  std::ptrdiff_t threads_started(std::int64_t cpu_threads) {
    dorajit_engine_options options{};
    options.struct_size = sizeof options;
    options.cpu_threads = cpu_threads;
    const EngineHandle engine = make_engine(&options);
    SampleCompose sample(512, 2048);
    const std::ptrdiff_t before = threads();
    EXPECT_EQ(sample.run(engine.get()).message, "");
    return threads() - before;
  }

  static std::ptrdiff_t threads() {
    const std::filesystem::directory_iterator tasks("/proc/self/task");
    return std::distance(begin(tasks), end(tasks));
  }
};

TEST_F(CpuThreadsTest, LimitCountsTheCallingThread) {
  // The thread sanitizer starts its own thread together with the first thread of a process.
  std::thread([] {}).join();
  const int processors = device::CpuDevice().info().traits.processors;
  EXPECT_EQ(threads_started(1), 0);
  EXPECT_EQ(threads_started(0), processors - 1);
  EXPECT_EQ(threads_started(1000), processors - 1);
}

TEST_F(CpuThreadsTest, LimitedThreadsHaveAnotherDeviceFingerprint) {
  const device::CpuDevice one(1);
  EXPECT_EQ(one.info().traits.processors, 1);
  EXPECT_TRUE(one.info().fingerprint.ends_with("/1 threads")) << one.info().fingerprint;
  EXPECT_EQ(device::CpuDevice(1'000'000).info().fingerprint,
            device::CpuDevice().info().fingerprint);
}

}  // namespace
}  // namespace dorajit::bindings
