// Calls of own kernels through the C interface: what is launched, and what is refused.
#include <gmock/gmock.h>

#include "tests/own_kernels/fake_gpu.h"

namespace dorajit::tests {
namespace {

using testing::HasSubstr;

class OwnKernelLaunchTest : public OwnKernelTest {
 protected:
  OwnKernelLaunchTest() { set_variable("DORAJIT_TUNE", "off"); }
};

TEST_F(OwnKernelLaunchTest, DefaultConfigComputesTheKernel) {
  const auto engine = make_engine();
  const auto* const kernel = create(swiglu());
  SwigluCall call(1000);
  const auto outcome = call.run(engine.get(), kernel);
  ASSERT_EQ(outcome.status, DORAJIT_OK) << outcome.message;
  EXPECT_TRUE(call.is_right());
  ASSERT_EQ(launches().size(), 1U);
  EXPECT_EQ(launches()[0].entry, "swiglu<256, 1>");
  EXPECT_EQ(launches()[0].grid, 4U);
  EXPECT_EQ(launches()[0].block, 256U);
  EXPECT_EQ(launches()[0].n, 1000);
}

TEST_F(OwnKernelLaunchTest, EmptyTensorsLaunchNothing) {
  const auto engine = make_engine();
  SwigluCall call(0);
  EXPECT_EQ(call.run(engine.get(), create(swiglu())).status, DORAJIT_OK);
  EXPECT_TRUE(launches().empty());
}

TEST_F(OwnKernelLaunchTest, SizeThatTensorsContradictIsRefused) {
  const auto engine = make_engine();
  SwigluCall call(100);
  const auto outcome = call.run(engine.get(), create(swiglu()), 99);
  EXPECT_EQ(outcome.status, DORAJIT_INVALID_ARGUMENT);
  EXPECT_THAT(outcome.message,
              HasSubstr("swiglu: argument `gate` has 100 `n` but argument `n` is 99"));
}

TEST_F(OwnKernelLaunchTest, IntegerThatIsNoneIsRefused) {
  const auto engine = make_engine();
  SwigluCall call(100);
  for (const double value : {99.5, -1.0, std::nan(""), 0x1p53, -0x1p63, 1e300}) {
    const auto outcome = call.run(engine.get(), create(swiglu()), value);
    EXPECT_EQ(outcome.status, DORAJIT_INVALID_ARGUMENT) << value;
    EXPECT_THAT(outcome.message, HasSubstr("give an integer from 0 to 2^53 - 1")) << value;
  }
}

TEST_F(OwnKernelLaunchTest, IntegerThatIsInNoKeyMayBeNegativeWithinItsType) {
  const auto engine = make_engine();
  Json json = swiglu();
  json["arguments"].push_back({"step", "int16", 1});
  const auto* const kernel = create(json);
  SwigluCall call(100);
  const auto run = [&](double step) {
    const double scalars[] = {100, step};
    dorajit_error* error = nullptr;
    const auto status = dorajit_launch(engine.get(), nullptr, kernel, call.describe()->pointers, 3,
                                       scalars, 2, nullptr, 0, &error);
    return bindings::take(status, error);
  };
  for (const double step : {-32768.0, 0.0, 32767.0}) EXPECT_EQ(run(step).status, DORAJIT_OK);
  EXPECT_EQ(launches().size(), 3U);
  for (const double step : {-32769.0, 0.5, 32768.0, std::nan("")}) {
    const auto outcome = run(step);
    EXPECT_EQ(outcome.status, DORAJIT_INVALID_ARGUMENT) << step;
    EXPECT_THAT(outcome.message, HasSubstr("give an integer from -32768 to 32767"));
  }
}

TEST_F(OwnKernelLaunchTest, TensorWithoutTheConstantDimensionIsRefused) {
  const auto engine = make_engine();
  Json json = swiglu();
  for (int i = 0; i < 3; ++i) json["arguments"][static_cast<std::size_t>(i)][2] = "T[1000]";
  json["key"] = {"n"};
  const auto* const kernel = create(json);
  SwigluCall call(1000);
  EXPECT_EQ(call.run(engine.get(), kernel).status, DORAJIT_OK);
  SwigluCall other(999);
  const auto outcome = other.run(engine.get(), kernel);
  EXPECT_EQ(outcome.status, DORAJIT_INVALID_ARGUMENT);
  EXPECT_THAT(outcome.message,
              HasSubstr("argument `gate` has 999 elements along a dimension of 1000"));
}

TEST_F(OwnKernelLaunchTest, IntegerBeyondItsTypeIsRefused) {
  const auto engine = make_engine();
  Json json = swiglu();
  json["arguments"][3] = {"n", "int32"};
  SwigluCall call(100);
  SwigluCall::Tensors* const tensors = call.describe();
  const auto explain = [&](std::int64_t n) {
    tensors->shape[0] = n;
    const auto given = static_cast<double>(n);
    dorajit_explanation found{};
    found.struct_size = sizeof found;
    dorajit_error* error = nullptr;
    const auto status = dorajit_explain(engine.get(), create(json), tensors->pointers, 3, &given, 1,
                                        &found, &error);
    return bindings::take(status, error);
  };
  EXPECT_EQ(explain(2147483647).status, DORAJIT_OK);
  for (const std::int64_t n : {std::int64_t{2147483648}, std::int64_t{3000000000}}) {
    const auto outcome = explain(n);
    EXPECT_EQ(outcome.status, DORAJIT_UNSUPPORTED);
    EXPECT_EQ(outcome.message,
              std::format("swiglu: argument `n` is {}, but at most 2147483647 are served", n));
  }
}

TEST_F(OwnKernelLaunchTest, TensorOfAnotherKindIsRefusedByName) {
  const auto engine = make_engine();
  const auto* const kernel = create(swiglu());
  SwigluCall call(100);
  const auto refusal = [&](const std::function<void(SwigluCall::Tensors&)>& change) {
    SwigluCall::Tensors* tensors = call.describe();
    change(*tensors);
    const auto outcome = SwigluCall::run_as(engine.get(), kernel, tensors, 100);
    EXPECT_NE(outcome.status, DORAJIT_OK);
    EXPECT_TRUE(launches().empty());
    return outcome.message;
  };
  EXPECT_THAT(refusal([](auto& t) { t.tensors[1].dtype = {kDLBfloat, 16, 1}; }),
              HasSubstr("argument `up` has elements of T"));
  EXPECT_THAT(refusal([](auto& t) {
                for (DLTensor& tensor : t.tensors) tensor.dtype = {kDLFloat, 64, 1};
              }),
              HasSubstr("argument `gate` has elements of T"));
  EXPECT_THAT(refusal([](auto& t) {
                for (DLTensor& tensor : t.tensors) tensor.device = {kDLCPU, 0};
              }),
              HasSubstr("argument `gate` is on the CPU, for which there is no kernel"));
  EXPECT_THAT(refusal([](auto& t) { t.tensors[1].device = {kDLCUDA, 1}; }),
              HasSubstr("argument `up` is on CUDA device 1"));
  EXPECT_THAT(refusal([](auto& t) { t.tensors[1].data = nullptr; }),
              HasSubstr("argument `up` is null"));
  static std::int64_t matrix[] = {10, 10};
  EXPECT_THAT(refusal([](auto& t) { t.tensors[1].ndim = 2, t.tensors[1].shape = matrix; }),
              HasSubstr("argument `up` has 2 dimensions; give it [n]"));
  static std::int64_t shorter[] = {96};
  EXPECT_THAT(refusal([](auto& t) { t.tensors[1].shape = shorter; }),
              HasSubstr("argument `up` has 96 `n`"));
  static std::int64_t stride[] = {2};
  EXPECT_THAT(refusal([](auto& t) { t.tensors[1].strides = stride; }),
              HasSubstr("argument `up` has a stride of 2"));
  EXPECT_THAT(refusal([](auto& t) { t.tensors[2].data = t.tensors[0].data; }),
              HasSubstr("argument `out` overlaps `gate`"));
}

TEST_F(OwnKernelLaunchTest, MisalignedTensorIsRefused) {
  const auto engine = make_engine();
  SwigluCall call(100, 1);
  const auto outcome = call.run(engine.get(), create(swiglu()));
  EXPECT_EQ(outcome.status, DORAJIT_INVALID_ARGUMENT);
  EXPECT_THAT(outcome.message, HasSubstr("which is not aligned to 16 bytes"));
}

TEST_F(OwnKernelLaunchTest, GridOutOfRangeIsRefused) {
  const auto engine = make_engine();
  Json json = swiglu();
  json["grid"] = "n / 1000";
  SwigluCall call(100);
  auto outcome = call.run(engine.get(), create(json));
  EXPECT_EQ(outcome.status, DORAJIT_INVALID_ARGUMENT);
  EXPECT_THAT(outcome.message, HasSubstr("its grid along x \"n / 1000\" is 0"));
  json["grid"] = {1, "n * 1000"};
  outcome = call.run(engine.get(), create(json));
  EXPECT_THAT(outcome.message, HasSubstr("its grid along y \"n * 1000\" is 100000"));
  json["grid"] = "1 / (n - 100)";
  outcome = call.run(engine.get(), create(json));
  EXPECT_THAT(outcome.message, HasSubstr("it divides by zero, with n = 100"));
  EXPECT_TRUE(launches().empty());
}

TEST_F(OwnKernelLaunchTest, ConstraintThatTheDefaultBreaksIsRefused) {
  const auto engine = make_engine();
  Json json = swiglu();
  json["default"]["VEC"] = 4;
  SwigluCall call(102);
  const auto outcome = call.run(engine.get(), create(json));
  EXPECT_EQ(outcome.status, DORAJIT_INVALID_ARGUMENT);
  EXPECT_THAT(outcome.message, HasSubstr("swiglu: 102 n cannot be computed: with the default "
                                         "config BLOCK=256-VEC=4, its constraint \"n % VEC == 0\" "
                                         "does not hold, with n = 102, VEC = 4"));
}

TEST_F(OwnKernelLaunchTest, CaptureNeedsAWarmUp) {
  const auto engine = make_engine();
  const auto* const kernel = create(swiglu());
  SwigluCall call(1000);
  fake_->is_capturing = true;
  EXPECT_EQ(call.run(engine.get(), kernel).status, DORAJIT_CAPTURE_UNSAFE);
  fake_->is_capturing = false;
  const auto* const tensors = call.describe();
  const double n = 1000;
  ASSERT_EQ(dorajit_warmup(engine.get(), kernel, tensors->pointers, 3, &n, 1, nullptr), DORAJIT_OK);
  fake_->is_capturing = true;
  EXPECT_EQ(call.run(engine.get(), kernel).status, DORAJIT_OK);
  EXPECT_TRUE(call.is_right());
}

TEST_F(OwnKernelLaunchTest, ExplanationNamesProblemAndConfig) {
  const auto engine = make_engine();
  const auto* const kernel = create(swiglu());
  SwigluCall call(1000);
  ASSERT_EQ(call.run(engine.get(), kernel).status, DORAJIT_OK);
  dorajit_explanation found{};
  found.struct_size = sizeof found;
  const double n = 1000;
  ASSERT_EQ(
      dorajit_explain(engine.get(), kernel, call.describe()->pointers, 3, &n, 1, &found, nullptr),
      DORAJIT_OK);
  EXPECT_THAT(found.problem, HasSubstr("/f32,f32,f32/v8/n10"));
  EXPECT_STREQ(found.config, "BLOCK=256-VEC=1");
  EXPECT_STREQ(found.source, "default");
}

TEST_F(OwnKernelLaunchTest, DescriptionOfTheOperationHasItsArguments) {
  const auto* const kernel = create(swiglu());
  dorajit_operation_info info{};
  info.struct_size = sizeof info;
  ASSERT_EQ(dorajit_operation_describe(kernel, &info, nullptr), DORAJIT_OK);
  EXPECT_STREQ(info.name, "swiglu");
  ASSERT_EQ(info.num_scalars, 1);
  EXPECT_STREQ(info.scalars[0], "n");
  EXPECT_EQ(info.may_need_workspace, 0);
  dorajit_operand_info operand{};
  operand.struct_size = sizeof operand;
  ASSERT_EQ(dorajit_operation_operand(kernel, 2, &operand, nullptr), DORAJIT_OK);
  EXPECT_STREQ(operand.name, "out");
  EXPECT_STREQ(operand.dimensions, "n");
  EXPECT_EQ(operand.is_output, 1);
}

TEST_F(OwnKernelLaunchTest, CreateRefusesNull) {
  dorajit_error* error = nullptr;
  const dorajit_operation* kernel = nullptr;
  EXPECT_THAT(bindings::take(dorajit_kernel_create(nullptr, &kernel, &error), error).message,
              HasSubstr("argument `json` is null"));
  EXPECT_THAT(bindings::take(dorajit_kernel_create("{}", nullptr, &error), error).message,
              HasSubstr("argument `kernel` is null"));
  EXPECT_THAT(bindings::take(dorajit_kernel_create("{}", &kernel, &error), error).message,
              HasSubstr("\"name\" is missing"));
  EXPECT_EQ(kernel, nullptr);
}

}  // namespace
}  // namespace dorajit::tests
