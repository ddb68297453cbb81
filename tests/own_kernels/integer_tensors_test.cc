// Calls and tuning of own kernels with tensors of integers, through C and C++.
#include <gmock/gmock.h>

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <limits>
#include <string>
#include <vector>

#include "tests/own_kernels/fake_gpu.h"

// Last: its Error and Status have the names of the library's own.
#include <dorajit/own_kernel.hpp>

namespace dorajit::tests {
namespace {

using testing::HasSubstr;

constexpr std::uint8_t kBoolCode = 6;
constexpr std::int64_t kWidth = 4;

// Launches of the kernel of gather(), with ids of 64 bits and elements of f32.
struct Gathered {
  std::int64_t n;
  std::int64_t least;  // of its ids
  std::int64_t most;
  std::int64_t rows;
};

class IntegerTensorsTest : public OwnKernelTest {
 protected:
  IntegerTensorsTest() {
    set_variable("DORAJIT_TUNE", "off");
    fake_->launch = &IntegerTensorsTest::launch_gather;
    gathered().clear();
    for (std::size_t i = 0; i < ids_.size(); ++i) ids_[i] = static_cast<std::int64_t>(i * 7 % 10);
    for (std::size_t i = 0; i < table_.size(); ++i) table_[i] = static_cast<float>(i);
  }

  static std::vector<Gathered>& gathered() {
    static std::vector<Gathered> all;
    return all;
  }

  bindings::Outcome run(dorajit_engine* engine, const dorajit_operation* kernel,
                        DLDataType ids = {kDLInt, 64, 1}, DLDataType rows = {kDLFloat, 32, 1}) {
    std::int64_t ids_shape[] = {size()};
    std::int64_t table_shape[] = {10, kWidth};
    std::int64_t out_shape[] = {size(), kWidth};
    const auto tensor = [](void* data, DLDataType type, int dims, std::int64_t* shape) {
      return DLTensor{.data = data,
                      .device = {kDLCUDA, 0},
                      .ndim = dims,
                      .dtype = type,
                      .shape = shape,
                      .strides = nullptr,
                      .byte_offset = 0};
    };
    const DLTensor tensors[] = {tensor(ids_.data(), ids, 1, ids_shape),
                                tensor(table_.data(), rows, 2, table_shape),
                                tensor(out_.data(), rows, 2, out_shape)};
    const DLTensor* const pointers[] = {&tensors[0], &tensors[1], &tensors[2]};
    const double scalars[] = {static_cast<double>(size()), 10, kWidth};
    return bindings::outcome_of([&](dorajit_error** error) {
      return dorajit_launch(engine, nullptr, kernel, pointers, 3, scalars, 3, nullptr, 0, error);
    });
  }

  [[nodiscard]] std::int64_t size() const { return static_cast<std::int64_t>(ids_.size()); }
  [[nodiscard]] bool is_right() const {
    for (std::size_t i = 0; i < out_.size(); ++i) {
      const auto row = static_cast<std::size_t>(ids_[i / kWidth]);
      if (out_[i] != table_[row * kWidth + i % kWidth]) return false;
    }
    return true;
  }

  // Allocations of that size are aligned to 16 bytes.
  std::vector<std::int64_t> ids_ = std::vector<std::int64_t>(1000);
  std::vector<float> table_ = std::vector<float>(10 * kWidth);
  std::vector<float> out_ = std::vector<float>(1000 * kWidth);

 private:
  static int launch_gather(const char* entry, const driver::LaunchConfig&, void** parameters) {
    const auto found = behaviours().find(entry);
    fake_of_process().elapsed_ns += found == behaviours().end() ? 1e6 : found->second.time_ns;
    const auto* const ids = *static_cast<const std::int64_t**>(parameters[0]);
    const auto* const table = *static_cast<const float**>(parameters[1]);
    auto* const out = *static_cast<float**>(parameters[2]);
    const auto n = *static_cast<std::int64_t*>(parameters[3]);
    const auto rows = *static_cast<std::int64_t*>(parameters[4]);
    const auto width = *static_cast<std::int64_t*>(parameters[5]);
    Gathered seen = {n, std::numeric_limits<std::int64_t>::max(), -1, rows};
    for (std::int64_t i = 0; i < n; ++i) {
      seen.least = std::min(seen.least, ids[i]);
      seen.most = std::max(seen.most, ids[i]);
    }
    gathered().push_back(seen);
    if (seen.least < 0 || seen.most >= rows) return 700;
    for (std::int64_t i = 0; i < n * width; ++i) {
      out[i] = table[ids[i / width] * width + i % width];
    }
    if (found != behaviours().end() && found->second.spoil) found->second.spoil(out, n * width);
    return 0;
  }
};

TEST_F(IntegerTensorsTest, IdsOf64BitsAreRead) {
  const auto engine = make_engine();
  const auto outcome = run(engine.get(), create(gather()));
  ASSERT_EQ(outcome.status, DORAJIT_OK) << outcome.message;
  EXPECT_TRUE(is_right());
}

TEST_F(IntegerTensorsTest, OtherTypesAreRefusedByName) {
  const auto engine = make_engine();
  const auto* const kernel = create(gather());
  const auto message_of = [&](DLDataType type) {
    const auto outcome = run(engine.get(), kernel, type);
    EXPECT_EQ(outcome.status, DORAJIT_UNSUPPORTED);
    return outcome.message;
  };
  for (const DLDataType type : {DLDataType{kDLInt, 16, 1}, DLDataType{kDLUInt, 8, 1},
                                DLDataType{kBoolCode, 8, 1}, DLDataType{kDLFloat, 32, 1}}) {
    EXPECT_THAT(message_of(type),
                HasSubstr("argument `ids` takes elements of I, which is one of int64, int32"));
  }
  for (const DLDataType type : {DLDataType{kDLUInt, 4, 1}, DLDataType{kDLInt, 64, 2},
                                DLDataType{kDLInt, 4, 1}, DLDataType{kBoolCode, 1, 1}}) {
    EXPECT_THAT(message_of(type), HasSubstr("bool or an integer of 8, 16, 32 or 64 bits"));
  }
  EXPECT_TRUE(gathered().empty());
}

TEST_F(IntegerTensorsTest, TensorsOfCppHaveIntegers) {
  Engine engine;
  const Kernel kernel(gather().dump());
  const TensorRef ids(ids_.data(), {size()}, ElementType::kInt64, Device::cuda());
  const TensorRef table(table_.data(), {10, kWidth}, ElementType::kFloat32, Device::cuda());
  const TensorRef out(out_.data(), {size(), kWidth}, ElementType::kFloat32, Device::cuda());
  kernel(engine, nullptr, {ids, table, out}, {static_cast<double>(size()), 10, kWidth});
  EXPECT_TRUE(is_right());
  const auto type_of = [&](ElementType type) {
    const TensorRef ref(ids_.data(), {size()}, type);
    return ref.dl_tensor().dtype;
  };
  EXPECT_EQ(type_of(ElementType::kInt8).bits, 8);
  EXPECT_EQ(type_of(ElementType::kInt16).bits, 16);
  EXPECT_EQ(type_of(ElementType::kInt32).bits, 32);
  EXPECT_EQ(type_of(ElementType::kInt32).code, kDLInt);
  EXPECT_EQ(type_of(ElementType::kUint8).code, kDLUInt);
  EXPECT_EQ(type_of(ElementType::kBool).code, kBoolCode);
}

TEST_F(IntegerTensorsTest, TuningIndexesWithinTheTable) {
  set_variable("DORAJIT_TUNE", "first_use");
  set_variable("DORAJIT_TUNE_SECONDS", "0.5");
  behaviours()["gather<64>"].time_ns = 2e5;
  const auto engine = make_engine();
  const auto* const kernel = create(gather());
  ASSERT_EQ(run(engine.get(), kernel).status, DORAJIT_OK);
  EXPECT_TRUE(is_right());
  EXPECT_EQ(bindings::statistics_of(engine.get()).tuned_problems, 1);
  ASSERT_GT(gathered().size(), 10U);
  bool is_ragged = false;
  for (const Gathered& one : gathered()) {
    EXPECT_GE(one.least, 0);
    EXPECT_LT(one.most, one.rows);
    is_ragged |= one.rows == 15 && one.n == 1023;
  }
  EXPECT_TRUE(is_ragged);
}

TEST_F(IntegerTensorsTest, LimitWithoutValuesForTheSizesLeavesTheDefault) {
  set_variable("DORAJIT_TUNE", "first_use");
  set_variable("DORAJIT_TUNE_SECONDS", "0.5");
  set_variable("DORAJIT_LOG", "warning");
  behaviours()["gather<64>"].time_ns = 2e5;
  const bindings::LogCapture log;
  Json json = gather();
  json["limits"]["ids"] = "rows - 16";
  const auto engine = make_engine();
  ASSERT_EQ(run(engine.get(), create(json)).status, DORAJIT_OK);
  EXPECT_TRUE(is_right());
  EXPECT_EQ(gathered().size(), 1U);
  EXPECT_THAT(log.text(), HasSubstr("the limit of `ids` is not positive"));
}

// A tolerance is for floating-point outputs: the next index is another row.
TEST_F(IntegerTensorsTest, ToleranceDoesNotAllowOtherIntegers) {
  set_variable("DORAJIT_TUNE", "first_use");
  set_variable("DORAJIT_TUNE_SECONDS", "0.5");
  Json json = gather();
  json["tolerance"] = 0.5;
  // The next float, or the next integer.
  behaviours()["gather<64>"] = {.time_ns = 1e5, .spoil = [](float* out, long long) {
                                  std::int32_t bits = 0;
                                  std::memcpy(&bits, out, sizeof bits);
                                  ++bits;
                                  std::memcpy(out, &bits, sizeof bits);
                                }};
  behaviours()["gather<256>"].time_ns = 3e5;
  const auto* const kernel = create(json);
  const auto winner_of = [&](DLDataType rows) -> std::string {
    const auto engine = make_engine();
    const auto outcome = run(engine.get(), kernel, {kDLInt, 64, 1}, rows);
    EXPECT_EQ(outcome.status, DORAJIT_OK) << outcome.message;
    return first_plan(engine.get()).config;
  };
  EXPECT_EQ(winner_of({kDLFloat, 32, 1}), "BLOCK=64");
  EXPECT_EQ(winner_of({kDLInt, 32, 1}), "BLOCK=256");
  // The same where the host compares.
  fake_->allocation_limit = 100000;
  EXPECT_EQ(winner_of({kDLInt, 32, 1}), "BLOCK=256");
}

}  // namespace
}  // namespace dorajit::tests
