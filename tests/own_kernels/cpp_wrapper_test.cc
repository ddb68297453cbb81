// Own kernels through the C++ interface.
#include <gmock/gmock.h>

#include "tests/fakes/results.h"
#include "tests/own_kernels/fake_gpu.h"

// Last: its Error and Status have the names of the library's own.
#include <dorajit/own_kernel.hpp>

namespace dorajit::tests {
namespace {

using testing::HasSubstr;

class OwnKernelCppTest : public OwnKernelTest {
 protected:
  OwnKernelCppTest() { set_variable("DORAJIT_TUNE", "off"); }

  static TensorRef ref(std::vector<std::byte>& memory, std::int64_t n) {
    return {SwigluCall::base(memory), {n}, ElementType::kFloat32, Device::cuda()};
  }
};

TEST_F(OwnKernelCppTest, KernelIsCalledWarmedUpAndExplained) {
  Engine engine;
  const Kernel kernel(swiglu().dump());
  EXPECT_STREQ(kernel.name(), "swiglu");
  SwigluCall call(1000);
  const TensorRef gate = ref(call.gate, 1000);
  const TensorRef up = ref(call.up, 1000);
  const TensorRef out = ref(call.out, 1000);
  EXPECT_FALSE(kernel.explain(engine, {gate, up, out}, {1000}));
  kernel.warmup(engine, {gate, up, out}, {1000});
  EXPECT_TRUE(launches().empty());
  kernel(engine, nullptr, {gate, up, out}, {1000});
  EXPECT_TRUE(call.is_right());
  const auto explanation = tests::value_of(kernel.explain(engine, {gate, up, out}, {1000}));
  EXPECT_EQ(explanation.config, "BLOCK=256-VEC=1");
}

TEST_F(OwnKernelCppTest, SourceStandsForItself) {
  Json without_source = swiglu();
  without_source.erase("source");
  const std::string source =
      std::string(kSwigluSource) + "// \"quoted\", \\ and \t\n__device__ char c = '\\n';\n";
  const Kernel apart(without_source.dump(), source);
  const Json whole = with(swiglu(), {{"/source", source}});
  EXPECT_EQ(apart.get(), Kernel(whole.dump()).get());
}

TEST_F(OwnKernelCppTest, RefusalsAreExceptions) {
  const auto message_of = [](const auto& body) -> std::string {
    try {
      body();
    } catch (const std::exception& error) {
      return error.what();
    }
    return "";
  };
  EXPECT_THAT(message_of([] { const Kernel kernel("{}"); }), HasSubstr("\"name\" is missing"));
  EXPECT_THAT(message_of([] { const Kernel kernel("no JSON", "source"); }),
              HasSubstr("is not JSON: line 1, column 2"));
  Engine engine;
  const Kernel kernel(swiglu().dump());
  SwigluCall call(8);
  EXPECT_THAT(message_of([&] { kernel(engine, nullptr, {ref(call.gate, 8)}, {8}); }),
              HasSubstr("has 3 tensors but 1 are given"));
  EXPECT_THAT(message_of([&] {
                kernel(engine, nullptr, {ref(call.gate, 8), ref(call.up, 8), ref(call.out, 8)});
              }),
              HasSubstr("has 1 scalars but 0 are given"));
}

}  // namespace
}  // namespace dorajit::tests
