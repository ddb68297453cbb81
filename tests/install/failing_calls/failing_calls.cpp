// Calls every function of the C++ interface so that it fails, and checks that each error has a
// message. Prints "FUNCTION: MESSAGE" lines, "FUNCTION log: LOG" lines for kernels that the
// compiler refuses, and the versions of the macros and the package.
//
// The environment has a fake CUDA driver with one device and a fake NVRTC that refuses every
// kernel.
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <dorajit/dorajit.hpp>
#include <type_traits>
#include <utility>

static_assert(__cplusplus >= 201703L, "dorajit's CMake target asks for C++17");

namespace {

using dorajit::ConstTensorRef;
using dorajit::Device;
using dorajit::ElementType;
using dorajit::Engine;
using dorajit::Status;
using dorajit::TensorRef;

template <class Tensor, class = void>
struct HasDlTensor : std::false_type {};
template <class Tensor>
struct HasDlTensor<Tensor, decltype(static_cast<void>(std::declval<Tensor>().dl_tensor()))>
    : std::true_type {};
static_assert(HasDlTensor<const TensorRef&>::value && !HasDlTensor<TensorRef>::value &&
                  !HasDlTensor<ConstTensorRef>::value,
              "a DLTensor points to sizes in the object, so a temporary must not give one");

int wrong_errors = 0;

// Only errors of a compiler have a log.
template <class Call>
void expect_failure(Status status, const char* function, const Call& call) {
  try {
    call();
    std::printf("%s: nothing was thrown\n", function);
    ++wrong_errors;
  } catch (const dorajit::Error& error) {
    std::printf("%s: %s\n", function, error.what());
    if (!error.log().empty()) std::printf("%s log: %s\n", function, error.log().c_str());
    const bool has_log = status == Status::kCompileError;
    if (*error.what() == '\0' || error.status() != status || error.log().empty() == has_log) {
      std::printf("%s: status %d, %zu characters of log\n", function,
                  static_cast<int>(error.status()), error.log().size());
      ++wrong_errors;
    }
  }
}

template <class Call>
void expect_failure(const char* function, const Call& call) {
  expect_failure(Status::kInvalidArgument, function, call);
}

void refuse_arguments(Engine& engine) {
  float data[6] = {};
  const TensorRef matrix(data, {2, 3}, ElementType::kFloat32);
  const TensorRef wrong(data, {4}, ElementType::kFloat32);
  expect_failure("compose", [&] { engine.compose(nullptr, matrix, matrix, wrong, 1, matrix); });
  expect_failure("compose_inner",
                 [&] { engine.compose_inner(nullptr, matrix, matrix, wrong, 1, matrix, matrix); });
  expect_failure("compose_residual", [&] {
    engine.compose_residual(nullptr, matrix, matrix, wrong, std::nullopt, 1, matrix);
  });
  expect_failure("backward", [&] { engine.backward(nullptr, matrix, wrong, 1, {}); });
  expect_failure("residual_backward",
                 [&] { engine.residual_backward(nullptr, matrix, wrong, 1, {}); });
  expect_failure("backward_workspace",
                 [&] { static_cast<void>(Engine::backward_workspace(matrix, wrong)); });
  expect_failure("residual_backward_workspace",
                 [&] { static_cast<void>(Engine::residual_backward_workspace(matrix, wrong)); });
  expect_failure("norm_assembly",
                 [&] { engine.norm_assembly(nullptr, matrix, matrix, wrong, 1, matrix); });
  expect_failure("warmup", [&] { engine.warmup("compose", {matrix}); });
  expect_failure("explain", [&] { static_cast<void>(engine.explain("compose", {matrix})); });
  expect_failure("launch", [&] { engine.launch(nullptr, "compose", {matrix}, {1}); });
  expect_failure("launch_scalars", [&] {
    engine.launch(nullptr, "compose", {matrix, matrix, wrong, matrix}, {1, 2, 3});
  });
  expect_failure("workspace_bytes",
                 [&] { static_cast<void>(Engine::workspace_bytes("backward", {matrix})); });
  expect_failure("operation", [] { static_cast<void>(dorajit::Operation("x")); });
  // No constructor makes an Operation without a handle, so overwrite its memory.
  dorajit::Operation lost("compose");
  std::memset(static_cast<void*>(&lost), 0, sizeof lost);
  expect_failure("operands", [&] { static_cast<void>(lost.operands()); });
  expect_failure("workspace_bytes_of_none",
                 [&] { static_cast<void>(Engine::workspace_bytes(lost, {matrix})); });
}

// No call touches the memory, because each fails before.
void refuse_kernels(Engine& engine) {
  float data[12] = {};
  const TensorRef matrix(data, {2, 3}, ElementType::kFloat32, Device::cuda());
  const TensorRef gain(data + 8, {3}, ElementType::kFloat32, Device::cuda());
  expect_failure(Status::kCompileError, "compiled_compose",
                 [&] { engine.compose(nullptr, matrix, matrix, gain, 1, matrix); });
  expect_failure(Status::kCompileError, "compiled_warmup",
                 [&] { engine.warmup("compose", {matrix, matrix, gain, matrix}); });
  expect_failure(Status::kCompileError, "compiled_launch",
                 [&] { engine.launch(nullptr, "compose", {matrix, matrix, gain, matrix}, {1}); });
}

}  // namespace

int main() {
  dorajit::Options options;
  options.cache_dir = "relative";
  expect_failure("engine_create", [&] { const Engine engine(options); });

  options.cache_dir = "";
  options.tune_policy = dorajit::TunePolicy::kOff;
  options.trust_device_pointers = true;
  Engine engine(options);
  refuse_arguments(engine);
  refuse_kernels(engine);
  const Engine elsewhere = std::move(engine);
  expect_failure("engine_statistics", [&] { static_cast<void>(engine.statistics()); });
  expect_failure("explain_at", [&] { static_cast<void>(engine.plans()); });

  std::printf("version %d.%d.%d, library %d, package %s\n", DORAJIT_VERSION_MAJOR,
              DORAJIT_VERSION_MINOR, DORAJIT_VERSION_PATCH, static_cast<int>(dorajit_version()),
              PACKAGE_VERSION);
  if (dorajit_version() != DORAJIT_VERSION_NUMBER) ++wrong_errors;
  return wrong_errors == 0 ? EXIT_SUCCESS : EXIT_FAILURE;
}
