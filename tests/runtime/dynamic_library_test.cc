#include "runtime/base/dynamic_library.h"

#include <gtest/gtest.h>

#include "kernel_templates/templates/streaming_configs.h"
#include "runtime/compile/host_compiler.h"
#include "tests/variants.h"

namespace dorajit {
namespace {

// dlopen() identifies libraries by path, and /proc/self/fd/N names another file when N is reused.
TEST(DynamicLibrary, SuccessiveLibrariesFromMemoryAreDistinct) {
  compile::HostCompiler compiler("", nullptr);
  const kernels::Config small = kernels::as_config({.block_size = 64});
  kernels::Config large = small;
  large.set(kernels::kColumnsOfProgram, 128);
  const compile::Target target{.kind = kernels::DeviceKind::kCpu, .arch = "native"};
  const auto first =
      compiler.compile({.variant = tests::float_compose(), .config = small, .target = target});
  const auto second =
      compiler.compile({.variant = tests::float_compose(), .config = large, .target = target});
  ASSERT_TRUE(first && second);
  const auto one = DynamicLibrary::open_memory(first->code, "kernel");
  const auto two = DynamicLibrary::open_memory(second->code, "kernel");
  ASSERT_TRUE(one && two);
  ASSERT_NE(one->symbol("dorajit_kernel"), nullptr);
  EXPECT_NE(one->symbol("dorajit_kernel"), two->symbol("dorajit_kernel"));
}

TEST(DynamicLibrary, InvalidLibraryIsAnError) {
  EXPECT_FALSE(DynamicLibrary::open("/nonexistent/libnothing.so"));
  EXPECT_FALSE(DynamicLibrary::open_memory("not a shared object", "kernel"));
}

}  // namespace
}  // namespace dorajit
