#include "runtime/base/printable_text.h"

#include <gtest/gtest.h>

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

}  // namespace
}  // namespace dorajit
