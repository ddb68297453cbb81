// The fixture of the C ABI's tests: an isolated environment, tensors, engines.
#pragma once

#include <dlpack/dlpack.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "dorajit/dorajit.h"
#include "kernel_templates/element_type.h"
#include "tests/fakes/scoped_environment.h"
#include "tests/fakes/temporary_directory.h"

namespace dorajit::bindings {

using kernels::ElementType;

// Elements of one type in host memory, read and written as float.
class HostArray {
 public:
  HostArray(ElementType type, std::size_t count);

  void set(std::size_t index, double value);
  [[nodiscard]] double get(std::size_t index) const;
  [[nodiscard]] std::byte* data() { return bytes_.data(); }
  [[nodiscard]] std::size_t size() const { return count_; }
  [[nodiscard]] ElementType type() const { return type_; }
  [[nodiscard]] const std::vector<std::byte>& bytes() const { return bytes_; }

  // Values that differ from element to element and are exact in every element type.
  void fill(double first, double step, int period);
  void poison() { std::ranges::fill(bytes_, std::byte{0xA5}); }

 private:
  ElementType type_;
  std::size_t count_;
  std::vector<std::byte> bytes_;
};

using Shape = std::vector<std::int64_t>;

// A DLTensor together with its sizes and strides. Not copied, since it points into itself.
class Tensor {
 public:
  // Compact, without strides.
  Tensor(void* data, ElementType type, Shape shape);
  Tensor(void* data, ElementType type, Shape shape, Shape strides);
  Tensor(HostArray& array, const Shape& shape) : Tensor(array.data(), array.type(), shape) {}
  Tensor(const Tensor&) = delete;
  Tensor& operator=(const Tensor&) = delete;

  // Gives it another shape, with these strides.
  void reshape(Shape shape, Shape strides);

  DLTensor* operator->() { return &tensor_; }
  const DLTensor* get() const { return &tensor_; }

 private:
  Shape shape_;
  Shape strides_;
  DLTensor tensor_{};
};

// The outcome of a call.
struct Outcome {
  dorajit_status status = DORAJIT_OK;
  std::string message;
  std::string log;
};

struct EngineDestroyer {
  void operator()(dorajit_engine* engine) const { dorajit_engine_destroy(engine); }
};
using EngineHandle = std::unique_ptr<dorajit_engine, EngineDestroyer>;

// Takes ownership of the error, if there is one, and checks that it matches the status.
Outcome take(dorajit_status status, dorajit_error* error);

// The outcome of a call of the C ABI, which is given where to put its error.
template <class Call>
Outcome outcome_of(const Call& call) {
  dorajit_error* error = nullptr;
  const dorajit_status status = call(&error);
  return take(status, error);
}

// Expects that the call was refused, with a message that has both parts.
void expect_refusal(const Outcome& outcome, const std::string& part, const std::string& other = "",
                    dorajit_status status = DORAJIT_INVALID_ARGUMENT);

Outcome compose(dorajit_engine* engine, const Tensor& lora, const Tensor& base, const Tensor& gain,
                double scale, const Tensor& out);

// A compose of filled f32 matrices, with a scale of 2.
struct SampleCompose {
  SampleCompose(std::int64_t num_rows, std::int64_t num_cols);
  Outcome run(dorajit_engine* engine);
  // Expects that it succeeds with the plain results.
  void expect_right(dorajit_engine* engine);

  std::int64_t rows;
  std::int64_t cols;
  HostArray lora;
  HostArray base;
  HostArray gain;
  HostArray out;
};

dorajit_statistics statistics_of(const dorajit_engine* engine);

// (gain - 1) * base + gain * (scale * lora), each operation rounded once to T.
template <class T = float>
T plain_compose(double lora, double base, double gain, double scale) {
  const auto g = static_cast<T>(gain);
  const T scaled_lora = static_cast<T>(scale) * static_cast<T>(lora);
  return (g - 1) * static_cast<T>(base) + g * scaled_lora;
}

// The tensors of a call in the order of the operation's operands; null is passed on as null.
using Operands = std::vector<const DLTensor*>;
Outcome warm_up(dorajit_engine* engine, const char* operation, const Operands& tensors);
Outcome explain(dorajit_engine* engine, const char* operation, const Operands& tensors,
                dorajit_explanation& explanation);

// Gives every test an empty cache folder and an environment in which nothing is logged, compiled
// or tuned unless the test sets it. Restores the environment.
class CAbiTest : public testing::Test {
 protected:
  CAbiTest();

  // Sets a variable that the fixture restores; std::nullopt unsets it.
  static void set_variable(const std::string& name, const std::optional<std::string>& value);

  // Compiles with the host's compiler, and tunes at the first call.
  static void tune_at_first_use(const char* seconds = "0.1");

  // The outcome of creating an engine, which is destroyed again.
  static Outcome create_engine(const dorajit_engine_options* options = nullptr);

  // Creates an engine from the environment, or fails the test.
  EngineHandle make_engine(const dorajit_engine_options* options = nullptr);

  [[nodiscard]] const std::string& folder() const { return folder_.path(); }
  [[nodiscard]] std::string cache_dir() const { return folder_.file("cache"); }

 private:
  tests::ScopedEnvironment environment_{
      "DORAJIT_CACHE_DIR", "DORAJIT_TUNE",  "DORAJIT_TUNE_SECONDS", "DORAJIT_SCRATCH_BYTES",
      "DORAJIT_AUTOTUNE",  "DORAJIT_NVRTC", "DORAJIT_CXX",          "DORAJIT_LOG",
      "DORAJIT_WORKER",    "XDG_CACHE_HOME"};
  cache::TemporaryDirectory folder_;
};

// Fails like a function of the C ABI whose compiler refused "line 1".
dorajit_status fail_to_compile(dorajit_error** error);

// Logs a message as the library does, at a level that is not filtered.
void log_warning(const std::string& message);

// Collects the messages of the process while it lives.
class LogCapture {
 public:
  LogCapture() { dorajit_set_log_sink(&LogCapture::receive, this); }
  ~LogCapture() { dorajit_set_log_sink(nullptr, nullptr); }
  LogCapture(const LogCapture&) = delete;
  LogCapture& operator=(const LogCapture&) = delete;

  struct Line {
    std::int32_t level;
    std::string message;
  };
  [[nodiscard]] const std::vector<Line>& lines() const { return lines_; }
  // All of them, for messages of failed expectations.
  [[nodiscard]] std::string text() const;

 private:
  static void receive(std::int32_t level, const char* message, void* context);

  std::vector<Line> lines_;
};

}  // namespace dorajit::bindings
