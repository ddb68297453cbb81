#include "tests/bindings/c/c_abi_fixture.h"

#include <bit>
#include <cstdlib>
#include <utility>

#include "bindings/c/error_handle.h"
#include "runtime/base/log.h"

namespace dorajit::bindings {
namespace {

DLDataType data_type(ElementType type) {
  switch (type) {
    case ElementType::kFloat32:
      return {kDLFloat, 32, 1};
    case ElementType::kBfloat16:
      return {kDLBfloat, 16, 1};
    case ElementType::kFloat16:
      return {kDLFloat, 16, 1};
    case ElementType::kFloat64:
      return {kDLFloat, 64, 1};
    case ElementType::kAbsent:
      break;
  }
  return {};
}

}  // namespace

HostArray::HostArray(ElementType type, std::size_t count)
    : type_(type),
      count_(count),
      bytes_(count * static_cast<std::size_t>(kernels::size_in_bytes(type))) {}

void HostArray::set(std::size_t index, double value) {
  std::byte* element = &bytes_.at(index * static_cast<std::size_t>(kernels::size_in_bytes(type_)));
  auto store = [element](auto number) { std::memcpy(element, &number, sizeof number); };
  switch (type_) {
    case ElementType::kFloat32:
      store(static_cast<float>(value));
      break;
    case ElementType::kFloat64:
      store(value);
      break;
    case ElementType::kFloat16:
      store(static_cast<_Float16>(static_cast<float>(value)));
      break;
    case ElementType::kBfloat16: {
      // To nearest even; the tests store no NaN in bfloat16.
      const auto bits = std::bit_cast<std::uint32_t>(static_cast<float>(value));
      store(static_cast<std::uint16_t>((bits + 0x7FFF + (bits >> 16 & 1)) >> 16));
      break;
    }
    case ElementType::kAbsent:
      break;
  }
}

double HostArray::get(std::size_t index) const {
  const std::byte* element =
      &bytes_.at(index * static_cast<std::size_t>(kernels::size_in_bytes(type_)));
  auto load = [element]<class T>(T number) {
    std::memcpy(&number, element, sizeof number);
    return number;
  };
  switch (type_) {
    case ElementType::kFloat32:
      return load(0.0F);
    case ElementType::kFloat64:
      return load(0.0);
    case ElementType::kFloat16:
      return static_cast<float>(load(_Float16{}));
    case ElementType::kBfloat16:
      return std::bit_cast<float>(static_cast<std::uint32_t>(load(std::uint16_t{})) << 16);
    case ElementType::kAbsent:
      break;
  }
  return 0;
}

void HostArray::fill(double first, double step, int period) {
  for (std::size_t i = 0; i < count_; ++i) {
    set(i, first + step * static_cast<double>(i % static_cast<std::size_t>(period)));
  }
}

Tensor::Tensor(void* data, ElementType type, Shape shape)
    : Tensor(data, type, std::move(shape), {}) {
  tensor_.strides = nullptr;
}

Tensor::Tensor(void* data, ElementType type, Shape shape, Shape strides) {
  tensor_.data = data;
  tensor_.device = {kDLCPU, 0};
  tensor_.dtype = data_type(type);
  reshape(std::move(shape), std::move(strides));
}

void Tensor::reshape(Shape shape, Shape strides) {
  shape_ = std::move(shape);
  strides_ = std::move(strides);
  tensor_.ndim = static_cast<int>(shape_.size());
  tensor_.shape = shape_.data();
  tensor_.strides = strides_.data();
}

Outcome take(dorajit_status status, dorajit_error* error) {
  EXPECT_EQ(error == nullptr, status == DORAJIT_OK);
  EXPECT_EQ(dorajit_error_status(error), status);
  Outcome outcome{
      .status = status, .message = dorajit_error_message(error), .log = dorajit_error_log(error)};
  EXPECT_EQ(outcome.message.empty(), status == DORAJIT_OK);
  dorajit_error_destroy(error);
  return outcome;
}

void expect_refusal(const Outcome& outcome, const std::string& part, const std::string& other,
                    dorajit_status status) {
  EXPECT_EQ(outcome.status, status) << outcome.message;
  EXPECT_NE(outcome.message.find(part), std::string::npos) << outcome.message;
  EXPECT_NE(outcome.message.find(other), std::string::npos) << outcome.message;
}

Outcome compose(dorajit_engine* engine, const Tensor& lora, const Tensor& base, const Tensor& gain,
                double scale, const Tensor& out) {
  return outcome_of([&](dorajit_error** error) {
    return dorajit_compose(engine, nullptr, lora.get(), base.get(), gain.get(), scale, out.get(),
                           error);
  });
}

SampleCompose::SampleCompose(std::int64_t num_rows, std::int64_t num_cols)
    : rows(num_rows),
      cols(num_cols),
      lora(ElementType::kFloat32, static_cast<std::size_t>(rows * cols)),
      base(ElementType::kFloat32, static_cast<std::size_t>(rows * cols)),
      gain(ElementType::kFloat32, static_cast<std::size_t>(cols)),
      out(ElementType::kFloat32, static_cast<std::size_t>(rows * cols)) {
  lora.fill(1, 0.5, 19);
  base.fill(2, 0.25, 11);
  gain.fill(0.5, 0.125, 7);
}

Outcome SampleCompose::run(dorajit_engine* engine) {
  return compose(engine, {lora, {rows, cols}}, {base, {rows, cols}}, {gain, {cols}}, 2,
                 {out, {rows, cols}});
}

void SampleCompose::expect_right(dorajit_engine* engine) {
  out.poison();
  ASSERT_EQ(run(engine).message, "");
  for (std::size_t i = 0; i < out.size(); ++i) {
    ASSERT_EQ(out.get(i), plain_compose(lora.get(i), base.get(i), gain.get(i % gain.size()), 2));
  }
}

dorajit_statistics statistics_of(const dorajit_engine* engine) {
  dorajit_statistics statistics{};
  statistics.struct_size = sizeof statistics;
  EXPECT_EQ(dorajit_engine_statistics(engine, &statistics, nullptr), DORAJIT_OK);
  return statistics;
}

Outcome warm_up(dorajit_engine* engine, const char* operation, const Operands& tensors) {
  return outcome_of([&](dorajit_error** error) {
    return dorajit_warmup(engine, dorajit_operation_find(operation), tensors.data(),
                          static_cast<std::int32_t>(tensors.size()), nullptr, 0, error);
  });
}

Outcome explain(dorajit_engine* engine, const char* operation, const Operands& tensors,
                dorajit_explanation& explanation) {
  explanation.struct_size = sizeof explanation;
  return outcome_of([&](dorajit_error** error) {
    return dorajit_explain(engine, dorajit_operation_find(operation), tensors.data(),
                           static_cast<std::int32_t>(tensors.size()), nullptr, 0, &explanation,
                           error);
  });
}

CAbiTest::CAbiTest() {
  set_variable("DORAJIT_CACHE_DIR", cache_dir());
  set_variable("DORAJIT_DAEMON_DIR", folder());
  set_variable("DORAJIT_TUNE", "off");
  set_variable("DORAJIT_CXX", "none");
  set_variable("DORAJIT_LOG", "off");
}

void CAbiTest::set_variable(const std::string& name, const std::optional<std::string>& value) {
  if (value) {
    setenv(name.c_str(), value->c_str(), 1);
  } else {
    unsetenv(name.c_str());
  }
}

void CAbiTest::tune_at_first_use(const char* seconds) {
  set_variable("DORAJIT_CXX", std::nullopt);
  set_variable("DORAJIT_TUNE", "first_use");
  set_variable("DORAJIT_TUNE_SECONDS", seconds);
}

Outcome CAbiTest::create_engine(const dorajit_engine_options* options) {
  dorajit_engine* engine = nullptr;
  Outcome outcome = outcome_of(
      [&](dorajit_error** error) { return dorajit_engine_create(options, &engine, error); });
  EXPECT_EQ(engine != nullptr, outcome.status == DORAJIT_OK);
  dorajit_engine_destroy(engine);
  return outcome;
}

EngineHandle CAbiTest::make_engine(const dorajit_engine_options* options) {
  dorajit_engine* engine = nullptr;
  const Outcome outcome = outcome_of(
      [&](dorajit_error** error) { return dorajit_engine_create(options, &engine, error); });
  EXPECT_EQ(outcome.status, DORAJIT_OK) << outcome.message;
  return EngineHandle(engine);
}

dorajit_status fail_to_compile(dorajit_error** error) {
  return guarded(error, [] {
    return Status(fail(StatusCode::kCompileError, "it did not compile", "line 1: no"));
  });
}

void log_warning(const std::string& message) {
  set_log_level(LogLevel::kWarning);
  log(LogLevel::kWarning, message);
}

std::string LogCapture::text() const {
  std::string text;
  for (const Line& line : lines_) text += line.message + "\n";
  return text;
}

void LogCapture::receive(std::int32_t level, const char* message, void* context) {
  static_cast<LogCapture*>(context)->lines_.push_back({level, message});
}

}  // namespace dorajit::bindings
