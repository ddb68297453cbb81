// Every function of the C++ interface, called so that it fails: each error has to say what is
// wrong. Prints "FUNCTION: MESSAGE" lines, and the version as the macros and the package have it.
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <dorajit/dorajit.hpp>
#include <utility>

static_assert(__cplusplus >= 201703L, "dorajit's CMake target asks for C++17");

namespace {

int silent = 0;

template <class Call>
void expect_failure(const char* function, const Call& call) {
  try {
    call();
    std::printf("%s: nothing was thrown\n", function);
    ++silent;
  } catch (const dorajit::Error& error) {
    std::printf("%s: %s\n", function, error.what());
    if (*error.what() == '\0' || error.status() != dorajit::Status::kInvalidArgument) ++silent;
  }
}

}  // namespace

int main() {
  using dorajit::ConstTensorRef;
  using dorajit::ElementType;
  using dorajit::TensorRef;
  float data[6] = {};
  const TensorRef matrix(data, {2, 3}, ElementType::kFloat32);
  const TensorRef wrong(data, {4}, ElementType::kFloat32);
  dorajit::Options options;
  options.cache_dir = "relative";
  expect_failure("engine_create", [&] { const dorajit::Engine engine(options); });

  options.cache_dir = "";
  dorajit::Engine engine(options);
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
                 [&] { static_cast<void>(dorajit::Engine::backward_workspace(matrix, wrong)); });
  expect_failure("residual_backward_workspace", [&] {
    static_cast<void>(dorajit::Engine::residual_backward_workspace(matrix, wrong));
  });
  expect_failure("norm_assembly",
                 [&] { engine.norm_assembly(nullptr, matrix, matrix, wrong, 1, matrix); });
  expect_failure("warmup", [&] { engine.warmup("compose", {matrix}); });
  expect_failure("explain", [&] { static_cast<void>(engine.explain("compose", {matrix})); });
  expect_failure("launch", [&] { engine.launch(nullptr, "compose", {matrix}, {1}); });
  expect_failure("workspace_bytes", [&] {
    static_cast<void>(dorajit::Engine::workspace_bytes("backward", {matrix}));
  });
  expect_failure("operation", [] { static_cast<void>(dorajit::Operation("x")); });
  // No constructor makes one without an operation; memory that was overwritten does.
  dorajit::Operation lost("compose");
  std::memset(static_cast<void*>(&lost), 0, sizeof lost);
  expect_failure("operands", [&] { static_cast<void>(lost.operands()); });
  const dorajit::Engine elsewhere = std::move(engine);
  expect_failure("engine_statistics", [&] { static_cast<void>(engine.statistics()); });
  expect_failure("engine_plan_count", [&] { static_cast<void>(engine.plans()); });

  std::printf("version %d.%d.%d, library %d, package %s\n", DORAJIT_VERSION_MAJOR,
              DORAJIT_VERSION_MINOR, DORAJIT_VERSION_PATCH, static_cast<int>(dorajit_version()),
              PACKAGE_VERSION);
  if (dorajit_version() != DORAJIT_VERSION_NUMBER) ++silent;
  return silent == 0 ? EXIT_SUCCESS : EXIT_FAILURE;
}
