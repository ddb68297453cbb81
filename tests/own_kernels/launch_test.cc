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
  const auto* const kernel = create(swiglu());
  SwigluCall call(1000);
  const auto outcome = call.run(engine(), kernel);
  ASSERT_EQ(outcome.status, DORAJIT_OK) << outcome.message;
  EXPECT_TRUE(call.is_right());
  ASSERT_EQ(launches().size(), 1U);
  EXPECT_EQ(launches()[0].entry, "swiglu<256, 1>");
  EXPECT_EQ(launches()[0].grid, 4U);
  EXPECT_EQ(launches()[0].block, 256U);
  EXPECT_EQ(launches()[0].n, 1000);
}

TEST_F(OwnKernelLaunchTest, EmptyTensorsLaunchNothing) {
  SwigluCall call(0);
  EXPECT_EQ(call.run(engine(), create(swiglu())).status, DORAJIT_OK);
  EXPECT_TRUE(launches().empty());
}

TEST_F(OwnKernelLaunchTest, SizeThatTensorsContradictIsRefused) {
  SwigluCall call(100);
  bindings::expect_refusal(call.run(engine(), create(swiglu()), 99),
                           "swiglu: argument `gate` has 100 `n` but argument `n` is 99");
}

TEST_F(OwnKernelLaunchTest, IntegerThatIsNoneIsRefused) {
  SwigluCall call(100);
  for (const double value : {99.5, -1.0, std::nan(""), 0x1p53, -0x1p63, 1e300}) {
    bindings::expect_refusal(call.run(engine(), create(swiglu()), value),
                             "give an integer from 0 to 2^53 - 1");
  }
}

TEST_F(OwnKernelLaunchTest, IntegerThatIsInNoKeyMayBeNegativeWithinItsType) {
  const Json json = with(swiglu(), {{"/arguments/-", {"step", "int16", 1}}});
  const auto* const kernel = create(json);
  SwigluCall call(100);
  const auto run = [&](double step) {
    const double scalars[] = {100, step};
    return bindings::outcome_of([&](dorajit_error** error) {
      return dorajit_launch(engine(), nullptr, kernel, call.describe()->pointers, 3, scalars, 2,
                            nullptr, 0, error);
    });
  };
  for (const double step : {-32768.0, 0.0, 32767.0}) EXPECT_EQ(run(step).status, DORAJIT_OK);
  EXPECT_EQ(launches().size(), 3U);
  for (const double step : {-32769.0, 0.5, 32768.0, std::nan("")}) {
    bindings::expect_refusal(run(step), "give an integer from -32768 to 32767");
  }
}

TEST_F(OwnKernelLaunchTest, TensorWithoutTheConstantDimensionIsRefused) {
  Json json = swiglu();
  for (int i = 0; i < 3; ++i) json["arguments"][static_cast<std::size_t>(i)][2] = "T[1000]";
  json["key"] = {"n"};
  const auto* const kernel = create(json);
  SwigluCall call(1000);
  EXPECT_EQ(call.run(engine(), kernel).status, DORAJIT_OK);
  SwigluCall other(999);
  bindings::expect_refusal(other.run(engine(), kernel),
                           "argument `gate` has 999 elements along a dimension of 1000");
}

TEST_F(OwnKernelLaunchTest, IntegerBeyondItsTypeIsRefused) {
  const Json json = with(swiglu(), {{"/arguments/3", {"n", "int32"}}});
  SwigluCall call(100);
  SwigluCall::Tensors* const tensors = call.describe();
  const auto explain = [&](std::int64_t n) {
    tensors->shape[0] = n;
    const auto given = static_cast<double>(n);
    dorajit_explanation found{};
    found.struct_size = sizeof found;
    return bindings::outcome_of([&](dorajit_error** error) {
      return dorajit_explain(engine(), create(json), tensors->pointers, 3, &given, 1, &found,
                             error);
    });
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
  const auto* const kernel = create(swiglu());
  SwigluCall call(100);
  const auto refusal = [&](const std::function<void(SwigluCall::Tensors&)>& change) {
    SwigluCall::Tensors* tensors = call.describe();
    change(*tensors);
    const auto outcome = SwigluCall::run_as(engine(), kernel, tensors, 100);
    EXPECT_NE(outcome.status, DORAJIT_OK);
    EXPECT_TRUE(launches().empty());
    return outcome.message;
  };
  EXPECT_THAT(refusal([](auto& t) { t.tensors[1].dtype = {kDLBfloat, 16, 1}; }),
              HasSubstr("argument `up` takes elements of T"));
  EXPECT_THAT(refusal([](auto& t) {
                for (DLTensor& tensor : t.tensors) tensor.dtype = {kDLFloat, 64, 1};
              }),
              HasSubstr("argument `gate` takes elements of T"));
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
  SwigluCall call(100, 1);
  bindings::expect_refusal(call.run(engine(), create(swiglu())),
                           "which is not aligned to 16 bytes");
}

TEST_F(OwnKernelLaunchTest, GridOutOfRangeIsRefused) {
  SwigluCall call(100);
  for (const auto& [grid, message] : std::initializer_list<std::pair<Json, const char*>>{
           {"n / 1000", "its grid along x \"n / 1000\" is 0"},
           {{1, "n * 1000"}, "its grid along y \"n * 1000\" is 100000"},
           {"1 / (n - 100)", "it divides by zero, with n = 100"}}) {
    bindings::expect_refusal(call.run(engine(), create(with(swiglu(), {{"/grid", grid}}))),
                             message);
  }
  EXPECT_TRUE(launches().empty());
}

TEST_F(OwnKernelLaunchTest, ConstraintThatTheDefaultBreaksIsRefused) {
  const Json json = with(swiglu(), {{"/default/VEC", 4}});
  SwigluCall call(102);
  bindings::expect_refusal(call.run(engine(), create(json)),
                           "swiglu: 102 n cannot be computed: with the default "
                           "config BLOCK=256-VEC=4, its constraint \"n % VEC == 0\" "
                           "does not hold, with n = 102, VEC = 4");
}

TEST_F(OwnKernelLaunchTest, CaptureNeedsAWarmUp) {
  const auto* const kernel = create(swiglu());
  SwigluCall call(1000);
  fake_->is_capturing = true;
  EXPECT_EQ(call.run(engine(), kernel).status, DORAJIT_CAPTURE_UNSAFE);
  fake_->is_capturing = false;
  const auto* const tensors = call.describe();
  const double n = 1000;
  ASSERT_EQ(dorajit_warmup(engine(), kernel, tensors->pointers, 3, &n, 1, nullptr), DORAJIT_OK);
  fake_->is_capturing = true;
  EXPECT_EQ(call.run(engine(), kernel).status, DORAJIT_OK);
  EXPECT_TRUE(call.is_right());
}

TEST_F(OwnKernelLaunchTest, ExplanationNamesProblemAndConfig) {
  const auto* const kernel = create(swiglu());
  SwigluCall call(1000);
  ASSERT_EQ(call.run(engine(), kernel).status, DORAJIT_OK);
  dorajit_explanation found{};
  found.struct_size = sizeof found;
  const double n = 1000;
  ASSERT_EQ(dorajit_explain(engine(), kernel, call.describe()->pointers, 3, &n, 1, &found, nullptr),
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
  const dorajit_operation* kernel = nullptr;
  const auto create_from = [](const char* json, const dorajit_operation** made) {
    return bindings::outcome_of(
        [&](dorajit_error** error) { return dorajit_kernel_create(json, made, error); });
  };
  bindings::expect_refusal(create_from(nullptr, &kernel), "argument `json` is null");
  bindings::expect_refusal(create_from("{}", nullptr), "argument `kernel` is null");
  bindings::expect_refusal(create_from("{}", &kernel), "\"name\" is missing");
  EXPECT_EQ(kernel, nullptr);
}

}  // namespace
}  // namespace dorajit::tests
