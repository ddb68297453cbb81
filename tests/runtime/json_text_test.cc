// The one parser of JSON: where a fault is, and what is refused before anything is built.
#include "runtime/base/json_text.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <format>
#include <string>

namespace dorajit {
namespace {

using testing::HasSubstr;
using testing::StartsWith;

std::string refusal_of(const std::string& text) {
  const auto parsed = parse_json(text);
  EXPECT_FALSE(parsed) << text.substr(0, 100);
  return parsed ? std::string() : parsed.error().message;
}

std::string nested(std::size_t levels) {
  return std::string(levels, '[') + std::string(levels, ']');
}

std::string list_of(std::size_t values) {
  std::string text = "[0";
  for (std::size_t i = 1; i < values; ++i) text += ",0";
  return text + "]";
}

TEST(JsonTextTest, DocumentIsReadInItsOrder) {
  const auto parsed = parse_json(R"({"b": ["[[[,,,\"", 1], "a": {"c": -2.5}})");
  ASSERT_TRUE(parsed) << parsed.error().message;
  EXPECT_EQ(parsed->dump(), R"({"b":["[[[,,,\"",1],"a":{"c":-2.5}})");
}

TEST(JsonTextTest, FaultHasALineAndAColumn) {
  EXPECT_EQ(refusal_of("{\"a\": 1,\n \"b\" 2}"),
            "line 2, column 6: syntax error while parsing object separator - unexpected number "
            "literal; expected ':'");
  EXPECT_THAT(refusal_of(""), StartsWith("line 1, column 1: "));
  EXPECT_THAT(refusal_of("{\"a\":"), StartsWith("line 1, column 6: "));
  EXPECT_THAT(refusal_of("\n\n[1, 2"), StartsWith("line 3, column 6: "));
  EXPECT_THAT(refusal_of("{} x"), StartsWith("line 1, column 4: "));
}

TEST(JsonTextTest, FaultQuotesNothingLongOrUnprintable) {
  const std::string message = refusal_of("{\"" + std::string(100'000, 'x') + "\x1b\xff");
  EXPECT_LT(message.size(), 300U);
  EXPECT_THAT(message, testing::Not(HasSubstr("\x1b")));
}

TEST(JsonTextTest, DeepTextIsRefused) {
  EXPECT_TRUE(parse_json(nested(kMaxJsonDepth)));
  EXPECT_EQ(refusal_of(nested(kMaxJsonDepth + 1)),
            "line 1, column 65: more than 64 levels of brackets");
  EXPECT_THAT(refusal_of(nested(1'000'000)), HasSubstr("more than 64 levels"));
  EXPECT_THAT(refusal_of(std::string(1'000'000, '[')), HasSubstr("more than 64 levels"));
}

TEST(JsonTextTest, WideTextIsRefusedBeforeItIsCompared) {
  EXPECT_TRUE(parse_json(list_of(kMaxJsonMembers)));
  EXPECT_THAT(refusal_of(list_of(kMaxJsonMembers + 1)),
              HasSubstr("a list or an object of more than 4096 values"));
  std::string members = "{\"k\":0";
  for (int i = 0; i < 200'000; ++i) members += std::format(",\"k{}\":0", i);
  EXPECT_THAT(refusal_of(members + "}"), HasSubstr("more than 4096 values"));
  std::string lists = "[" + list_of(4000);
  for (int i = 0; i < 20; ++i) lists += "," + list_of(4000);
  EXPECT_THAT(refusal_of(lists + "]"), HasSubstr("more than 65536 values"));
}

TEST(JsonTextTest, ByteOrderMarkAndZeroByteAreRefused) {
  EXPECT_EQ(refusal_of("\xef\xbb\xbf{}"),
            "line 1, column 1: a byte order mark; store the text as UTF-8 without one");
  EXPECT_EQ(refusal_of(std::string("{}\n\0{}", 6)), "line 2, column 1: a zero byte");
  EXPECT_FALSE(parse_json(std::string("\"a\0b\"", 5)));
}

TEST(JsonTextTest, KeyThatOccursTwiceIsRefused) {
  EXPECT_EQ(refusal_of(R"({"a": {"b": 1, "c": 2}, "b": [{"a": 1}], "c": {"b": 1, "b": 1}})"),
            "an object has the key \"b\" twice");
  EXPECT_TRUE(parse_json(R"([{"a": {"a": 1}}, {"a": [{"a": 1}, {"a": 2}]}])"));
}

TEST(JsonTextTest, NumberThatDoesNotFitIsRefused) {
  EXPECT_THAT(refusal_of("[1e999]"), HasSubstr("1e999"));
}

}  // namespace
}  // namespace dorajit
