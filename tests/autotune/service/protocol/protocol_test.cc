#include <gtest/gtest.h>

#include <string>
#include <variant>

#include "autotune/service/protocol/messages.h"

namespace dorajit::autotune::protocol {
namespace {

std::string cut(std::string line) {
  EXPECT_EQ(line.back(), '\n');
  line.pop_back();
  EXPECT_EQ(line.find('\n'), std::string::npos);
  return line;
}

TEST(Protocol, RequestsRoundTrip) {
  const Request requests[] = {Hello{.version = 1, .release = "1.2.3", .tuning_dir = "/a \"b\"\n"},
                              TuneRequest{.problem = "p",
                                          .device = "d",
                                          .space = kernels::SpaceKind::kComprehensive,
                                          .calls = 12.5,
                                          .gain = 0.25},
                              StatusRequest{}};
  for (const Request& request : requests) {
    const auto parsed = parse_request(cut(to_line(request)));
    ASSERT_TRUE(parsed) << parsed.error().message;
    EXPECT_EQ(*parsed, request);
  }
}

TEST(Protocol, AnswersRoundTrip) {
  const Answer answers[] = {Hello{}, Tuned{"p", "d", "c", 1, 2}, Failed{"p", "d", "why"},
                            Refused{"no"}, Text{"many\nlines\n"}};
  for (const Answer& answer : answers) {
    const auto parsed = parse_answer(cut(to_line(answer)));
    ASSERT_TRUE(parsed) << parsed.error().message;
    EXPECT_EQ(*parsed, answer);
  }
}

TEST(Protocol, InvalidLinesAreRefused) {
  const std::string tune =
      R"({"type":"tune","problem":"p","device":"d","space":"slim","calls":1,"gain":0.5})";
  ASSERT_TRUE(parse_request(tune));
  const auto with = [&](const std::string& from, const std::string& to) {
    std::string text = tune;
    return text.replace(text.find(from), from.size(), to);
  };
  const std::string bad[] = {
      "",
      "{",
      "[]",
      "1",
      "{}",
      "\xff\xfe",
      R"({"type":7})",
      R"({"type":"other"})",
      with("\"p\"", "7"),
      with("\"p\"", "\"" + std::string(2000, 'x') + "\""),
      with("slim", "wide"),
      with("1,", "-1,"),
      with("1,", "1e300,"),
      with("0.5}", "2}"),
      std::string(3000, '['),
      R"({"type":"hello","protocol":0,"release":"","tuning_dir":""})",
      R"({"type":"status","a":)" + std::string(64, '[') + std::string(64, ']') + "}"};
  for (const std::string& line : bad) EXPECT_FALSE(parse_request(line)) << line.substr(0, 100);
}

TEST(LineSplitter, LinesAreSplitIndependentOfChunks) {
  LineSplitter lines(10);
  for (const char byte : std::string("ab\n\ncde")) lines.feed({&byte, 1});
  EXPECT_EQ(lines.next(), "ab");
  EXPECT_EQ(lines.next(), "");
  EXPECT_EQ(lines.next(), std::nullopt);
  EXPECT_TRUE(lines.has_begun());
  lines.feed("f\ng\n");
  EXPECT_EQ(lines.next(), "cdef");
  EXPECT_EQ(lines.next(), "g");
  EXPECT_FALSE(lines.has_begun());
}

TEST(LineSplitter, OverlongLineIsReported) {
  LineSplitter lines(4);
  lines.feed("abc\nabcd");
  EXPECT_FALSE(lines.is_too_long());
  EXPECT_EQ(lines.next(), "abc");
  EXPECT_TRUE(lines.is_too_long());
  EXPECT_EQ(lines.next(), std::nullopt);
}

}  // namespace
}  // namespace dorajit::autotune::protocol
