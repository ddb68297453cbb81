// A missing compiler, driver or cache folder costs speed or gives a clear status; no call fails
// that can be served without it.
#include <filesystem>
#include <fstream>

#include "tests/bindings/c/c_abi_fixture.h"

namespace dorajit::bindings {
namespace {

namespace fs = std::filesystem;

class DegradedMachineTest : public CAbiTest {
 protected:
  std::string make_script(const std::string& body) {
    std::string path = folder() + "/compiler";
    std::ofstream(path) << "#!/bin/sh\n" << body;
    fs::permissions(path, fs::perms::owner_all);
    return path;
  }

  SampleCompose call_{1, 8};
};

TEST_F(DegradedMachineTest, MissingCompilerUsesBuiltInKernels) {
  const EngineHandle engine = make_engine();
  call_.expect_right(engine.get());
  const dorajit_statistics statistics = statistics_of(engine.get());
  EXPECT_GT(statistics.builtin_kernels, 0);
  EXPECT_EQ(statistics.compilations, 0);
  EXPECT_EQ(statistics.launches, 1);
}

TEST_F(DegradedMachineTest, FailingCompilerWarnsOnce) {
  set_variable("DORAJIT_LOG", "warning");
  set_variable("DORAJIT_CXX", make_script("test \"$1\" = --version && echo broken 1.0 && exit 0\n"
                                          "echo no space left >&2\nexit 1\n"));
  const LogCapture log;
  const EngineHandle engine = make_engine();
  call_.expect_right(engine.get());
  call_.expect_right(engine.get());
  HostArray narrow(ElementType::kFloat16, 8);
  EXPECT_EQ(compose(engine.get(), {call_.lora, {8}}, {call_.base, {8}}, {call_.gain, {8}}, 2,
                    {narrow, {8}})
                .message,
            "");
  EXPECT_EQ(statistics_of(engine.get()).builtin_kernels, 2);
  ASSERT_EQ(log.lines().size(), 1U) << log.text();
  EXPECT_EQ(log.lines()[0].level, DORAJIT_LOG_WARNING);
  EXPECT_NE(log.lines()[0].message.find(folder()), std::string::npos) << log.text();
}

TEST_F(DegradedMachineTest, FileInPlaceOfCacheFolderWarnsOnce) {
  const std::string file = folder() + "/file";
  std::ofstream(file) << "not a folder";
  set_variable("DORAJIT_CACHE_DIR", file + "/cache");
  tune_at_first_use();
  set_variable("DORAJIT_LOG", "warning");
  const LogCapture log;
  const EngineHandle first = make_engine();
  call_.expect_right(first.get());
  const EngineHandle second = make_engine();
  call_.expect_right(second.get());
  ASSERT_EQ(log.lines().size(), 1U) << log.text();
  EXPECT_EQ(log.lines()[0].level, DORAJIT_LOG_WARNING);
  EXPECT_NE(log.lines()[0].message.find(file), std::string::npos) << log.text();
}

TEST_F(DegradedMachineTest, CudaTensorsWithoutDriverAreRefused) {
  if (fs::exists("/dev/nvidiactl")) GTEST_SKIP() << "this machine has an NVIDIA driver";
  const EngineHandle engine = make_engine();
  Tensor lora(call_.lora, {8});
  Tensor base(call_.base, {8});
  Tensor gain(call_.gain, {8});
  Tensor out(call_.out, {8});
  for (Tensor* tensor : {&lora, &base, &gain, &out}) (*tensor)->device = {kDLCUDA, 0};
  const std::vector<std::byte> before = call_.out.bytes();
  Outcome outcome = compose(engine.get(), lora, base, gain, 2, out);
  EXPECT_EQ(outcome.status, DORAJIT_NO_DRIVER) << outcome.message;
  EXPECT_EQ(call_.out.bytes(), before);
  for (Tensor* tensor : {&lora, &base, &gain, &out}) (*tensor)->device = {kDLCUDAManaged, 0};
  outcome = compose(engine.get(), lora, base, gain, 2, out);
  EXPECT_EQ(outcome.status, DORAJIT_NO_DRIVER) << outcome.message;
  call_.expect_right(engine.get());
}

TEST_F(DegradedMachineTest, NegativeCudaDevicesAreRefused) {
  const EngineHandle engine = make_engine();
  Tensor lora(call_.lora, {8});
  Tensor gain(call_.gain, {8});
  Tensor out(call_.out, {8});
  for (Tensor* tensor : {&lora, &gain, &out}) (*tensor)->device = {kDLCUDA, -1};
  EXPECT_EQ(compose(engine.get(), lora, lora, gain, 2, out).status, DORAJIT_INVALID_ARGUMENT);
}

}  // namespace
}  // namespace dorajit::bindings
