// Incomplete text files, as after a full disk or an interrupted transfer.
#include <gtest/gtest.h>

#include <string>

#include "cache/records/pins.h"
#include "cache/records/trial_lines.h"
#include "tests/cache/records/sample_records.h"

namespace dorajit::cache {
namespace {

TEST(CutFiles, TruncatedExportIsIncomplete) {
  const std::string whole = to_lines(sample_trials(1, 3)).lines;
  ASSERT_EQ(parse_lines(whole)->damage, "");
  // Except for the last newline, which carries no information.
  for (std::size_t size = 0; size + 1 < whole.size(); ++size) {
    const auto parsed = parse_lines(std::string_view(whole).substr(0, size));
    EXPECT_TRUE(!parsed || !parsed->damage.empty()) << size << " bytes";
  }
}

TEST(CutFiles, ExportWithoutOneLineIsIncomplete) {
  const std::string whole = to_lines(sample_trials(1, 3)).lines;
  for (std::size_t line = whole.find('\n') + 1; line < whole.size();) {
    const std::size_t end = whole.find('\n', line) + 1;
    const std::string shorter = whole.substr(0, line) + whole.substr(end);
    EXPECT_NE(parse_lines(shorter)->damage, "") << shorter;
    line = end;
  }
}

TEST(CutFiles, TextAfterTheClosingLineIsDamage) {
  const std::string whole = to_lines(sample_trials(1, 3)).lines;
  const auto twice = parse_lines(whole + to_lines(sample_trials(2, 2)).lines);
  EXPECT_NE(twice->damage, "");
  EXPECT_EQ(twice->trials.size(), 5U) << "with --partial";
  EXPECT_NE(parse_lines(whole + "\n")->damage, "");
}

TEST(CutFiles, TruncatedLockFileIsRefused) {
  const std::string whole = to_pin_text(std::vector<Pin>{{.device = kDevice,
                                                          .problem = sample_problem(1),
                                                          .config = sample_config(1),
                                                          .compiler = "c",
                                                          .artifact = "a",
                                                          .code = "x"},
                                                         {.device = kDevice,
                                                          .problem = sample_problem(2),
                                                          .config = sample_config(2),
                                                          .compiler = {},
                                                          .artifact = {},
                                                          .code = {}}});
  ASSERT_TRUE(parse_pin_text(whole));
  for (std::size_t size = 0; size < whole.size(); ++size) {
    EXPECT_FALSE(parse_pin_text(std::string_view(whole).substr(0, size))) << size << " bytes";
  }
}

}  // namespace
}  // namespace dorajit::cache
