// A call whose problem is known takes no memory.
#include <cstddef>
#include <new>

#include "tests/bindings/c_abi_fixture.h"

// Of the sanitizers' runtime; absent in other builds. GCC ships no header for it.
// NOLINTNEXTLINE(readability-identifier-naming)
extern "C" [[gnu::weak]] int __sanitizer_install_malloc_and_free_hooks(
    void (*malloc_hook)(const volatile void*, std::size_t),
    void (*free_hook)(const volatile void*));

namespace dorajit::bindings {
namespace {

thread_local int allocations = 0;

TEST_F(CAbiTest, KnownProblemsAreLaunchedWithoutAllocating) {
  if (&__sanitizer_install_malloc_and_free_hooks == nullptr) {
    GTEST_SKIP() << "counts allocations with AddressSanitizer's hooks";
  }
  const EngineHandle engine = make_engine();
  HostArray data(ElementType::kBfloat16, 24);
  HostArray gain(ElementType::kFloat32, 4);
  const Tensor lora(data.data(), ElementType::kBfloat16, {2, 3, 4}, {12, 4, 1});
  const Tensor columns(gain, {1, 4});
  ASSERT_EQ(compose(engine.get(), lora, lora, columns, 1, lora).message, "");
  ASSERT_NE(
      __sanitizer_install_malloc_and_free_hooks(
          [](const volatile void*, std::size_t) { ++allocations; }, [](const volatile void*) {}),
      0);
  allocations = 0;
  ::operator delete(::operator new(1));
  if (allocations != 1) GTEST_SKIP() << "this sanitizer does not call the hooks";
  const dorajit_status status = dorajit_compose(engine.get(), nullptr, lora.get(), lora.get(),
                                                columns.get(), 1, lora.get(), nullptr);
  EXPECT_EQ(allocations, 1);
  EXPECT_EQ(status, DORAJIT_OK);
}

}  // namespace
}  // namespace dorajit::bindings
