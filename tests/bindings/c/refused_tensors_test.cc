// Every malformed call is refused with a message that names the argument, and nothing is written.
#include <cstdint>
#include <functional>
#include <limits>

#include "tests/bindings/c/c_abi_fixture.h"

namespace dorajit::bindings {
namespace {

constexpr std::int64_t kRows = 4;
constexpr std::int64_t kCols = 6;
constexpr auto kCount = static_cast<std::size_t>(kRows * kCols);
constexpr std::int64_t kHuge = std::numeric_limits<std::int64_t>::max() / 2;

class RefusedTensorsTest : public CAbiTest {
 protected:
  RefusedTensorsTest() { memory_.poison(); }

  struct Operands {
    Tensor* lora;
    Tensor* base;
    Tensor* gain;
    Tensor* out;
  };

  // Runs a valid call after `spoil` has changed one thing in it.
  Outcome call(const std::function<void(Operands&)>& spoil) {
    Tensor lora(at(0), ElementType::kFloat32, {kRows, kCols}, {kCols, 1});
    Tensor base(at(1), ElementType::kFloat32, {kRows, kCols}, {kCols, 1});
    Tensor gain(at(2), ElementType::kFloat32, {kCols}, {1});
    Tensor out(at(3), ElementType::kFloat32, {kRows, kCols}, {kCols, 1});
    Operands operands{.lora = &lora, .base = &base, .gain = &gain, .out = &out};
    spoil(operands);
    auto raw = [](const Tensor* tensor) { return tensor != nullptr ? tensor->get() : nullptr; };
    dorajit_error* error = nullptr;
    const dorajit_status status =
        dorajit_compose(engine_.get(), nullptr, raw(operands.lora), raw(operands.base),
                        raw(operands.gain), 1.0, raw(operands.out), &error);
    return take(status, error);
  }

  void expect_refused(dorajit_status status, const std::string& argument, const std::string& part,
                      const std::function<void(Operands&)>& spoil) {
    const std::vector<std::byte> before = memory_.bytes();
    const Outcome outcome = call(spoil);
    EXPECT_EQ(outcome.status, status) << outcome.message;
    EXPECT_NE(outcome.message.find("`" + argument + "`"), std::string::npos) << outcome.message;
    EXPECT_NE(outcome.message.find(part), std::string::npos) << outcome.message;
    EXPECT_TRUE(outcome.message.starts_with("compose: ")) << outcome.message;
    EXPECT_EQ(memory_.bytes(), before) << "written despite: " << outcome.message;
  }

  void expect_invalid(const std::string& argument, const std::string& part,
                      const std::function<void(Operands&)>& spoil) {
    expect_refused(DORAJIT_INVALID_ARGUMENT, argument, part, spoil);
  }

  std::byte* at(int tensor) {
    return memory_.data() + static_cast<std::size_t>(tensor) * 2 * kCount * sizeof(float);
  }

  HostArray memory_{ElementType::kFloat32, 8 * kCount};
  EngineHandle engine_ = make_engine();
};

TEST_F(RefusedTensorsTest, UnchangedCallSucceeds) {
  const Outcome outcome = call([](Operands&) {});
  EXPECT_EQ(outcome.status, DORAJIT_OK) << outcome.message;
}

TEST_F(RefusedTensorsTest, NullHandlesAreRefused) {
  expect_invalid("lora", "null", [](Operands& o) { o.lora = nullptr; });
  expect_invalid("base", "null", [](Operands& o) { o.base = nullptr; });
  expect_invalid("gain", "null", [](Operands& o) { o.gain = nullptr; });
  expect_invalid("out", "null", [](Operands& o) { o.out = nullptr; });
  expect_invalid("engine", "dorajit_engine_create", [this](Operands&) { engine_.reset(); });
}

TEST_F(RefusedTensorsTest, NullMemoryIsRefused) {
  expect_invalid("lora", "null", [](Operands& o) { (*o.lora)->data = nullptr; });
  expect_invalid("gain", "null", [](Operands& o) { (*o.gain)->data = nullptr; });
  expect_invalid("out", "null", [](Operands& o) {
    (*o.out)->data = nullptr;
    (*o.out)->byte_offset = 64;
  });
}

TEST_F(RefusedTensorsTest, WrongNumbersOfDimensionsAreRefused) {
  expect_invalid("base", "0 dimensions", [](Operands& o) { (*o.base)->ndim = 0; });
  expect_invalid("base", "-1 dimensions", [](Operands& o) { (*o.base)->ndim = -1; });
  expect_invalid("out", "null shape", [](Operands& o) { (*o.out)->shape = nullptr; });
  expect_invalid("lora", "negative size", [](Operands& o) { (*o.lora)->shape[0] = -1; });
  expect_invalid("gain", "negative size", [](Operands& o) { (*o.gain)->shape[0] = -kCols; });
}

TEST_F(RefusedTensorsTest, SizesBeyond64BitsAreRefused) {
  std::int64_t rows[] = {kHuge, kHuge, kCols};
  expect_invalid("lora", "2^63 elements", [&](Operands& o) {
    (*o.lora)->ndim = 3;
    (*o.lora)->shape = rows;
    (*o.lora)->strides = nullptr;
  });
  expect_invalid("base", "2^63 elements", [](Operands& o) { (*o.base)->shape[0] = kHuge; });
  std::int64_t bytes[] = {kHuge / 2, 1};
  std::int64_t strides[] = {1, 1};
  expect_invalid("lora", "2^47 bytes", [&](Operands& o) {
    for (Tensor* tensor : {o.lora, o.base, o.out}) {
      (*tensor)->shape = bytes;
      (*tensor)->strides = strides;
    }
    (*o.gain)->shape[0] = 1;
  });
  expect_invalid("gain", "byte_offset", [](Operands& o) {
    (*o.gain)->byte_offset = std::numeric_limits<std::uint64_t>::max();
  });
}

TEST_F(RefusedTensorsTest, WrongStridesAreRefused) {
  expect_invalid("lora", ".contiguous()", [](Operands& o) { (*o.lora)->strides[1] = 2; });
  expect_invalid("gain", ".contiguous()", [](Operands& o) { (*o.gain)->strides[0] = 0; });
  expect_invalid("base", ".contiguous()", [](Operands& o) { (*o.base)->strides[0] = kCols - 1; });
  expect_invalid("base", "row stride of 0", [](Operands& o) { (*o.base)->strides[0] = 0; });
  expect_invalid("out", "row stride of -6", [](Operands& o) { (*o.out)->strides[0] = -kCols; });
}

TEST_F(RefusedTensorsTest, DimensionsThatDoNotFlattenAreRefused) {
  std::int64_t shape[] = {2, 2, kCols};
  std::int64_t apart[] = {3 * kCols, kCols, 1};
  std::int64_t swapped[] = {kCols, 2 * kCols, 1};
  std::int64_t overflowing[] = {kCols, kHuge + 1, 1};
  for (std::int64_t* strides : {apart, swapped, overflowing}) {
    expect_invalid("lora", ".contiguous()", [&](Operands& o) {
      (*o.lora)->ndim = 3;
      (*o.lora)->shape = shape;
      (*o.lora)->strides = strides;
    });
  }
}

TEST_F(RefusedTensorsTest, DifferentShapesAreRefused) {
  expect_invalid("base", "same shape", [](Operands& o) { (*o.base)->shape[0] = kRows - 1; });
  expect_invalid("out", "same shape", [](Operands& o) { (*o.out)->shape[1] = kCols - 1; });
  expect_invalid("gain", "per column", [](Operands& o) { (*o.gain)->shape[0] = kCols - 1; });
  std::int64_t shape[] = {2, kCols};
  std::int64_t strides[] = {kCols, 1};
  expect_refused(DORAJIT_UNSUPPORTED, "gain", "one dimension", [&](Operands& o) {
    (*o.gain)->ndim = 2;
    (*o.gain)->shape = shape;
    (*o.gain)->strides = strides;
  });
}

TEST_F(RefusedTensorsTest, WrongElementTypesAreRefused) {
  auto expect_unsupported = [this](const std::string& argument, DLDataType type) {
    expect_refused(DORAJIT_UNSUPPORTED, argument, "float32",
                   [&](Operands& o) { (*(argument == "lora" ? o.lora : o.gain))->dtype = type; });
  };
  expect_unsupported("lora", {kDLInt, 32, 1});
  expect_unsupported("gain", {kDLFloat, 8, 1});
  expect_unsupported("lora", {kDLFloat, 32, 4});
  expect_unsupported("lora", {kDLBfloat, 32, 1});
  expect_unsupported("gain", {kDLComplex, 64, 1});
  expect_unsupported("gain", {255, 255, 0});
  const Outcome mixed = call([](Operands& o) { (*o.gain)->dtype.bits = 64; });
  EXPECT_EQ(mixed.status, DORAJIT_UNSUPPORTED);
  EXPECT_NE(mixed.message.find("f64"), std::string::npos) << mixed.message;
}

TEST_F(RefusedTensorsTest, MisalignedMemoryIsRefused) {
  expect_invalid("base", "aligned", [](Operands& o) { (*o.base)->byte_offset = 2; });
}

TEST_F(RefusedTensorsTest, WrongDevicesAreRefused) {
  expect_refused(DORAJIT_WRONG_DEVICE, "base", "one device",
                 [](Operands& o) { (*o.base)->device = {kDLCUDA, 0}; });
  expect_refused(DORAJIT_UNSUPPORTED, "out", "CUDA",
                 [](Operands& o) { (*o.out)->device = {kDLMetal, 0}; });
}

TEST_F(RefusedTensorsTest, PartialOverlapIsRefused) {
  expect_invalid("out", "`lora`", [this](Operands& o) { (*o.out)->data = at(0) + sizeof(float); });
  expect_invalid("out", "`base`", [this](Operands& o) {
    (*o.out)->data = at(1) + kCount * sizeof(float) - sizeof(float);
  });
  expect_invalid("out", "`gain`", [this](Operands& o) { (*o.out)->data = at(2); });
  expect_invalid("out", "`lora`", [this](Operands& o) {
    (*o.out)->data = at(0);
    (*o.out)->strides[0] = kCols + 1;
  });
  expect_invalid("out", "`base`", [this](Operands& o) {
    (*o.out)->data = at(1);
    (*o.out)->dtype.bits = 16;
  });
}

}  // namespace
}  // namespace dorajit::bindings
