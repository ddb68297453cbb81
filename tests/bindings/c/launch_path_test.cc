// A call whose problem is known allocates no memory. A CPU kernel runs on a limited number of
// threads.
#include <cstddef>
#include <filesystem>
#include <iterator>
#include <new>
#include <thread>

#include "runtime/device/cpu/cpu_device.h"
#include "tests/bindings/c/c_abi_fixture.h"

// From the sanitizers' runtime; absent in other builds. GCC ships no header for it.
// NOLINTNEXTLINE(readability-identifier-naming)
extern "C" [[gnu::weak]] int __sanitizer_install_malloc_and_free_hooks(
    void (*malloc_hook)(const volatile void*, std::size_t),
    void (*free_hook)(const volatile void*));

namespace dorajit::bindings {
namespace {

thread_local int allocations = 0;

// Whether allocations of this thread are counted from now on.
bool count_allocations() {
  if (&__sanitizer_install_malloc_and_free_hooks == nullptr) return false;
  static const int installed = __sanitizer_install_malloc_and_free_hooks(
      [](const volatile void*, std::size_t) { ++allocations; }, [](const volatile void*) {});
  allocations = 0;
  ::operator delete(::operator new(1));
  return installed != 0 && allocations == 1;
}

TEST_F(CAbiTest, KnownProblemsAreLaunchedWithoutAllocating) {
  const EngineHandle engine = make_engine();
  HostArray data(ElementType::kBfloat16, 24);
  HostArray gain(ElementType::kFloat32, 4);
  const Tensor lora(data.data(), ElementType::kBfloat16, {2, 3, 4}, {12, 4, 1});
  const Tensor columns(gain, {1, 4});
  ASSERT_EQ(compose(engine.get(), lora, lora, columns, 1, lora).message, "");
  if (!count_allocations()) GTEST_SKIP() << "counts allocations with AddressSanitizer's hooks";
  const dorajit_status status = dorajit_compose(engine.get(), nullptr, lora.get(), lora.get(),
                                                columns.get(), 1, lora.get(), nullptr);
  EXPECT_EQ(allocations, 1);
  EXPECT_EQ(status, DORAJIT_OK);
}

TEST_F(CAbiTest, KnownSumsAreLaunchedWithoutAllocating) {
  const EngineHandle engine = make_engine();
  HostArray data(ElementType::kFloat32, 1200);
  HostArray channels(ElementType::kFloat32, 4);
  HostArray sums(ElementType::kFloat32, 4);
  HostArray workspace(ElementType::kFloat64, 64);
  const Tensor matrix(data, {300, 4});
  const Tensor gain(channels, {4});
  const Tensor d_gain(sums, {4});
  const auto run = [&] {
    std::int64_t bytes = 0;
    const dorajit_status asked =
        dorajit_backward_workspace(matrix.get(), gain.get(), &bytes, nullptr);
    return asked != DORAJIT_OK
               ? asked
               : dorajit_backward(engine.get(), nullptr, matrix.get(), matrix.get(), gain.get(), 1,
                                  nullptr, nullptr, d_gain.get(), workspace.data(), bytes, nullptr);
  };
  ASSERT_EQ(run(), DORAJIT_OK);
  if (!count_allocations()) GTEST_SKIP() << "counts allocations with AddressSanitizer's hooks";
  const dorajit_status status = run();
  EXPECT_EQ(allocations, 1);
  EXPECT_EQ(status, DORAJIT_OK);
}

class CpuThreadsTest : public CAbiTest {
 protected:
  // The number of threads that the first launch of a large problem starts in this process.
  std::ptrdiff_t threads_started(std::int64_t cpu_threads) {
    dorajit_engine_options options{};
    options.struct_size = sizeof options;
    options.cpu_threads = cpu_threads;
    const EngineHandle engine = make_engine(&options);
    const std::ptrdiff_t before = threads();
    EXPECT_EQ(sample_.run(engine.get()).message, "");
    return threads() - before;
  }

  static std::ptrdiff_t threads() {
    const std::filesystem::directory_iterator tasks("/proc/self/task");
    return std::distance(begin(tasks), end(tasks));
  }

  SampleCompose sample_{512, 2048};  // filling it takes seconds under sanitizers
};

TEST_F(CpuThreadsTest, LimitCountsTheCallingThread) {
  // The thread sanitizer starts its own thread together with the first thread of a process.
  std::thread([] {}).join();
  const int processors = device::CpuDevice().info().traits.processors;
  EXPECT_EQ(threads_started(1), 0);
  EXPECT_EQ(threads_started(0), processors - 1);
  EXPECT_EQ(threads_started(1000), processors - 1);
}

TEST(CpuDevice, LimitedThreadsHaveAnotherDeviceFingerprint) {
  const device::CpuDevice one(1);
  EXPECT_EQ(one.info().traits.processors, 1);
  EXPECT_TRUE(one.info().fingerprint.ends_with("/1 threads")) << one.info().fingerprint;
  EXPECT_EQ(device::CpuDevice(1'000'000).info().fingerprint,
            device::CpuDevice().info().fingerprint);
}

}  // namespace
}  // namespace dorajit::bindings
