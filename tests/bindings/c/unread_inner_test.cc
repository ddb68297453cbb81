// Without d_gain, inner is neither read nor checked.
#include <sys/mman.h>
#include <unistd.h>

#include "tests/bindings/c/backward_fixture.h"

namespace dorajit::bindings {
namespace {

// Memory without access rights: touching any byte ends the process.
class InaccessiblePages {
 public:
  explicit InaccessiblePages(std::size_t size)
      : size_(size), data_(mmap(nullptr, size, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0)) {}
  ~InaccessiblePages() { munmap(data_, size_); }
  InaccessiblePages(const InaccessiblePages&) = delete;
  InaccessiblePages& operator=(const InaccessiblePages&) = delete;

  [[nodiscard]] void* data() const { return data_; }
  [[nodiscard]] bool is_mapped() const { return data_ != MAP_FAILED; }

 private:
  std::size_t size_;
  void* data_;
};

class UnreadInnerTest : public BackwardTest {
 protected:
  static constexpr Wanted kNoSum{.d_gain = false};

  void expect_unread(const Tensor& inner) {
    for (const bool compiled : {false, true}) {
      if (compiled) use_compiled_kernels();
      resize(300, 10);
      BackwardCall unread = call(kNoSum);
      unread.inner = &inner;
      ASSERT_EQ(run(unread).message, "") << "compiled " << compiled;
      expect_results(kNoSum);
    }
  }
};

TEST_F(UnreadInnerTest, MemoryOfUnneededInnerIsNotRead) {
  const InaccessiblePages pages(sizeof(float) * 300 * 10);
  ASSERT_TRUE(pages.is_mapped());
  expect_unread({pages.data(), ElementType::kFloat32, {300, 10}});
}

TEST_F(UnreadInnerTest, DescriptionOfUnneededInnerIsNotChecked) {
  Tensor nonsense(nullptr, ElementType::kFloat64, {-3, 2});
  nonsense->dtype = {kDLInt, 3, 5};
  nonsense->device = {kDLMetal, -1};
  expect_unread(nonsense);
}

TEST_F(UnreadInnerTest, OutputsMayOverlapUnneededInner) {
  BackwardCall in_place = call(kNoSum);
  const Tensor shifted(d_lora_.data() + sizeof(float), ElementType::kFloat32, {rows_, cols_});
  in_place.inner = &shifted;
  ASSERT_EQ(run(in_place).message, "");
  expect_results(kNoSum);
}

}  // namespace
}  // namespace dorajit::bindings
