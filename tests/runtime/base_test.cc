// Small functions of runtime/base.
#include <gtest/gtest.h>

#include "kernel_templates/templates/streaming_configs.h"
#include "runtime/base/dynamic_library.h"
#include "runtime/base/hash.h"
#include "runtime/base/printable_text.h"
#include "runtime/compile/host_compiler.h"
#include "tests/variants.h"

namespace dorajit {
namespace {

TEST(PrintableText, PrintableTextIsUnchanged) {
  for (const char* text : {"", "plain", "NVIDIA H200/sm_90", "caf\u00e9 \u6f22\u5b57 \U0001F600"}) {
    EXPECT_TRUE(is_printable_line(text)) << text;
    EXPECT_EQ(printable_line(text), text);
  }
}

TEST(PrintableText, ControlCharactersAreEscaped) {
  EXPECT_EQ(printable_line("a\x1b[31mb\n\tc\x7f"), "a\\u001b[31mb\\u000a\\u0009c\\u007f");
  EXPECT_EQ(printable_text("a\x1b[31mb\n\tc"), "a\\u001b[31mb\n\tc");
  EXPECT_EQ(printable_line("\u009b31m\u202etxt\u2028"), "\\u009b31m\\u202etxt\\u2028");
  EXPECT_EQ(printable_line(std::string_view("a\0b", 3)), "a\\u0000b");
  for (const char* text : {"\n", "\x1b", "\u0085", "\u202e", "\u2066"}) {
    EXPECT_FALSE(is_printable_line(text));
  }
}

TEST(PrintableText, InvalidUtf8BytesAreEscaped) {
  EXPECT_EQ(printable_line("\xff"
                           "a\x9b\xc3"),
            "\\xffa\\x9b\\xc3");
  EXPECT_EQ(printable_line("\xc0\x9b"), "\\xc0\\x9b") << "longer than needed";
  EXPECT_EQ(printable_line("\xed\xa0\x80"), "\\xed\\xa0\\x80") << "half of a pair";
  EXPECT_FALSE(is_printable_line("\xe2\x80"));
}

TEST(Hash, FieldsWithEqualConcatenationHaveDifferentKeys) {
  EXPECT_NE(Hasher("d").add("a", "bc").digest(), Hasher("d").add("ab", "c").digest());
  EXPECT_NE(Hasher("d").add("a", "b").add("c", "").digest(),
            Hasher("d").add("a", "").add("c", "b").digest());
  EXPECT_NE(Hasher("d").add("a", "1").digest(), Hasher("d").add("a", std::int64_t{1}).digest());
  EXPECT_NE(Hasher("d").digest(), Hasher("e").digest());
}

TEST(Hash, IsStableAcrossVersions) {
  EXPECT_EQ(hash_hex("dorajit").size(), 32U);
  EXPECT_EQ(hash_hex(""), "99aa06d3014798d86001c324468d497f");
  EXPECT_EQ(Hasher("d").add("a", "b").digest(), Hasher("d").add("a", "b").digest());
}

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
