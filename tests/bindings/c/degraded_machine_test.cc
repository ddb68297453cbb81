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
  DegradedMachineTest() {
    lora_.fill(1, 0.5, 8);
    base_.fill(2, 0.25, 8);
    gain_.fill(0.5, 0.125, 8);
  }

  void expect_composes(dorajit_engine* engine) {
    out_.poison();
    const Outcome outcome =
        compose(engine, {lora_, {8}}, {base_, {8}}, {gain_, {8}}, 2, {out_, {8}});
    ASSERT_EQ(outcome.status, DORAJIT_OK) << outcome.message;
    for (std::size_t i = 0; i < 8; ++i) {
      ASSERT_EQ(out_.get(i), plain_compose(lora_.get(i), base_.get(i), gain_.get(i), 2));
    }
  }

  std::string make_script(const std::string& body) {
    std::string path = folder() + "/compiler";
    std::ofstream(path) << "#!/bin/sh\n" << body;
    fs::permissions(path, fs::perms::owner_all);
    return path;
  }

  HostArray lora_{ElementType::kFloat32, 8};
  HostArray base_{ElementType::kFloat32, 8};
  HostArray gain_{ElementType::kFloat32, 8};
  HostArray out_{ElementType::kFloat32, 8};
};

TEST_F(DegradedMachineTest, MissingCompilerUsesBuiltInKernels) {
  const EngineHandle engine = make_engine();
  expect_composes(engine.get());
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
  expect_composes(engine.get());
  expect_composes(engine.get());
  HostArray narrow(ElementType::kFloat16, 8);
  EXPECT_EQ(
      compose(engine.get(), {lora_, {8}}, {base_, {8}}, {gain_, {8}}, 2, {narrow, {8}}).message,
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
  set_variable("DORAJIT_CXX", std::nullopt);
  set_variable("DORAJIT_TUNE", "first_use");
  set_variable("DORAJIT_TUNE_SECONDS", "0.1");
  set_variable("DORAJIT_LOG", "warning");
  const LogCapture log;
  const EngineHandle first = make_engine();
  expect_composes(first.get());
  const EngineHandle second = make_engine();
  expect_composes(second.get());
  ASSERT_EQ(log.lines().size(), 1U) << log.text();
  EXPECT_EQ(log.lines()[0].level, DORAJIT_LOG_WARNING);
  EXPECT_NE(log.lines()[0].message.find(file), std::string::npos) << log.text();
}

TEST_F(DegradedMachineTest, CudaTensorsWithoutDriverAreRefused) {
  if (fs::exists("/dev/nvidiactl")) GTEST_SKIP() << "this machine has an NVIDIA driver";
  const EngineHandle engine = make_engine();
  Tensor lora(lora_, {8});
  Tensor base(base_, {8});
  Tensor gain(gain_, {8});
  Tensor out(out_, {8});
  for (Tensor* tensor : {&lora, &base, &gain, &out}) (*tensor)->device = {kDLCUDA, 0};
  const std::vector<std::byte> before = out_.bytes();
  Outcome outcome = compose(engine.get(), lora, base, gain, 2, out);
  EXPECT_EQ(outcome.status, DORAJIT_NO_DRIVER) << outcome.message;
  EXPECT_EQ(out_.bytes(), before);
  for (Tensor* tensor : {&lora, &base, &gain, &out}) (*tensor)->device = {kDLCUDAManaged, 0};
  outcome = compose(engine.get(), lora, base, gain, 2, out);
  EXPECT_EQ(outcome.status, DORAJIT_NO_DRIVER) << outcome.message;
  expect_composes(engine.get());
}

TEST_F(DegradedMachineTest, NegativeCudaDevicesAreRefused) {
  const EngineHandle engine = make_engine();
  Tensor lora(lora_, {8});
  Tensor gain(gain_, {8});
  Tensor out(out_, {8});
  for (Tensor* tensor : {&lora, &gain, &out}) (*tensor)->device = {kDLCUDA, -1};
  EXPECT_EQ(compose(engine.get(), lora, lora, gain, 2, out).status, DORAJIT_INVALID_ARGUMENT);
}

}  // namespace
}  // namespace dorajit::bindings
