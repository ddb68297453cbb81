#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <filesystem>
#include <format>
#include <fstream>
#include <iterator>
#include <nlohmann/json.hpp>
#include <set>
#include <string>

#include "cache/database/trial_files.h"
#include "kernel_templates/config_text.h"
#include "tests/apps/cli/cli_sandbox.h"

namespace dorajit::test {
namespace {

using testing::HasSubstr;
using testing::Not;
namespace fs = std::filesystem;

constexpr int kFailed = 1;
constexpr int kUsage = 2;
constexpr const char* kH200 = DORAJIT_SOURCE_DIR "/databases/nvidia_h200.jsonl";

std::string read_file(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(file), {}};
}

std::ptrdiff_t count(const std::string& text, const std::string& part) {
  std::ptrdiff_t found = 0;
  for (std::size_t at = text.find(part); at != std::string::npos; at = text.find(part, at + 1)) {
    ++found;
  }
  return found;
}

// The keys of the problems of a database, and their operations.
struct Keys {
  std::set<std::string> problems;
  std::set<std::string> operations;
};

Keys keys_in(const std::string& database) {
  Keys keys;
  std::ifstream lines(database);
  for (std::string line; std::getline(lines, line);) {
    const auto document = nlohmann::json::parse(line);
    if (!document.contains("problem")) {
      continue;
    }
    const auto problem = document["problem"].get<std::string>();
    const std::size_t operation = problem.find('/');
    keys.problems.insert(problem);
    keys.operations.insert(problem.substr(0, operation));
  }
  return keys;
}

// The colour of each mark of a legend.
std::set<std::string> colours_in(const std::string& markup) {
  std::set<std::string> colours;
  for (std::size_t at = markup.find("<i "); at != std::string::npos;
       at = markup.find("<i ", at + 1)) {
    colours.insert(markup.substr(at, markup.find('>', at) - at));
  }
  return colours;
}

class CliReport : public testing::Test {
 protected:
  [[nodiscard]] std::string page_path() const { return sandbox_.folder() + "/report.html"; }

  CliSandbox sandbox_;
};

TEST_F(CliReport, WithoutTrialsSaysHowToMeasureSome) {
  const CliResult result = sandbox_.run({"report", "--html", page_path(), "--json"});
  ASSERT_EQ(result.exit_code, 0) << result.err;
  EXPECT_EQ(result.document()["devices"].size(), 0);
  const std::string page = read_file(page_path());
  EXPECT_THAT(page, HasSubstr("Nothing was measured yet"));
  EXPECT_THAT(page, HasSubstr("dorajit demo --quick"));
  EXPECT_THAT(page, HasSubstr(sandbox_.cache_dir() + "/tuning.db"));
  EXPECT_THAT(page, Not(HasSubstr("{{")));
}

TEST_F(CliReport, WinnersOfTheDatabaseAreShown) {
  sandbox_.set("DORAJIT_TUNE_SECONDS", "0.02");
  ASSERT_EQ(sandbox_.run({"tune", "--shape", "8x512", "--device", "cpu"}).exit_code, 0);
  const CliResult result = sandbox_.run({"report", "--html", page_path(), "--json"});
  ASSERT_EQ(result.exit_code, 0) << result.err;
  const auto shown = sandbox_.run({"show", "--trials", "--json"}).document();
  const auto document = result.document();
  ASSERT_EQ(document["devices"].size(), 1);
  const auto& device = document["devices"][0];
  EXPECT_EQ(device["fingerprint"], shown["winners"][0]["device"]);
  EXPECT_EQ(device["trials"], shown["database"]["trials"]);
  ASSERT_EQ(device["problems"].size(), 1);
  const auto& problem = device["problems"][0];
  EXPECT_EQ(problem["config"], shown["winners"][0]["config"]);
  EXPECT_EQ(problem["trials"], shown["winners"][0]["trials"]);
  EXPECT_EQ(problem["source"], "user database");
  EXPECT_EQ(problem["for_these_kernels"], true);
  // bf16, bf16 and bf16 of 8 x 512, and a gain of 512 in f32.
  EXPECT_EQ(problem["bytes"], 3 * 2 * 8 * 512 + 4 * 512);
  const std::string page = read_file(page_path());
  EXPECT_THAT(page, HasSubstr(problem["config"].get<std::string>()));
  EXPECT_THAT(page, HasSubstr("user database"));
}

TEST_F(CliReport, ShippedDataFitOneSmallPage) {
  const Keys keys = keys_in(kH200);
  const auto problems = static_cast<std::ptrdiff_t>(keys.problems.size());
  ASSERT_GT(problems, 1000);
  const CliResult result = sandbox_.run({"report", "--html", page_path(), "--from", kH200});
  ASSERT_EQ(result.exit_code, 0) << result.err;
  EXPECT_THAT(result.out, HasSubstr(std::format("{} problems on 1 device", problems)));
  const std::string page = read_file(page_path());
  EXPECT_LT(page.size(), 3 << 20);
  EXPECT_EQ(count(page, "<td class=\"gain\""), problems);
  EXPECT_EQ(count(page, "<title>"), problems + 1) << "the page's and one per point of the roofline";
  // Where the winner is not the default, both are listed.
  EXPECT_EQ(count(page, "<details"), count(page, " default\n"));
  EXPECT_EQ(count(page, "<details") + count(page, ">default kept"), problems);
  EXPECT_THAT(page, HasSubstr("memory of H200: 4800 GB/s"));
  EXPECT_THAT(page, HasSubstr("The winner may not have the best median"));
  const std::string legend = page.substr(page.find("<figcaption"));
  EXPECT_EQ(colours_in(legend).size(), keys.operations.size()) << "each operation has its own";
  for (const std::string& operation : keys.operations) {
    EXPECT_EQ(count(legend, "</i> " + operation + "</span>"), 1) << operation;
  }
  EXPECT_THAT(page, Not(HasSubstr("{{")));
  EXPECT_THAT(page, Not(HasSubstr("http:")));
  EXPECT_THAT(page, Not(HasSubstr("https:")));
}

// Sizes beyond the memory for tuning are measured on fewer rows, so their bandwidth is no wonder.
TEST_F(CliReport, BandwidthsStayBelowTheMemorys) {
  const auto document = sandbox_.run({"report", "--json", "--from", kH200}).document();
  const auto& device = document["devices"][0];
  EXPECT_EQ(device["peak_gb_per_s"], 4800);
  double most = 0;
  for (const auto& problem : device["problems"]) {
    most = std::max(most, problem["gb_per_s"].get<double>());
  }
  EXPECT_GT(most, 4000);
  EXPECT_LT(most, 4800);
  EXPECT_EQ(device["problems"][0]["source"], "nvidia_h200.jsonl");
}

TEST_F(CliReport, ReportFiltersByDevice) {
  const auto with = [&](const std::vector<std::string>& more) {
    std::vector<std::string> words = {"report", "--json", "--from", kH200};
    words.insert(words.end(), more.begin(), more.end());
    return sandbox_.run(words).document()["devices"].size();
  };
  EXPECT_EQ(with({"--device", "H200"}), 1);
  EXPECT_EQ(with({"--device", "H100"}), 0);
  EXPECT_EQ(with({"--device", "cpu"}), 0);
}

cache::Trial hostile_trial(const std::string& config, double median_ns) {
  return {
      .problem = "compose/f32,f32,f32,f32/v1/c512/r3",
      .device = "cpu/</script><script>alert(1)</script>/\"x' onload=y &amp;/2 threads",
      .environment = {.driver = "1", .policy = "p", .space = "s", .tuner = "t", .templates = "x"},
      .config = *kernels::parse_config(config),
      .default_config = *kernels::parse_config("b512-w1-r1-v1-u1-c0"),
      .median_ns = median_ns,
      .mad_ns = 1,
      .samples = 30,
      .created_unix_s = 1700000000,
      .host = "<b>"};
}

TEST_F(CliReport, TextOfFilesIsEscaped) {
  const std::string lines = sandbox_.folder() + "/<img src=x>{{style}}.jsonl";
  const std::vector<cache::Trial> trials = {hostile_trial("b512-w1-r1-v1-u1-c0", 1000),
                                            hostile_trial("b512-w2-r1-v1-u1-c0", 500)};
  ASSERT_TRUE(cache::write_trial_file(lines, trials));
  const CliResult result =
      sandbox_.run({"report", "--html", page_path(), "--from", lines, "--json"});
  ASSERT_EQ(result.exit_code, 0) << result.err;
  EXPECT_EQ(result.document()["devices"][0]["problems"][0]["for_these_kernels"], false);
  const std::string page = read_file(page_path());
  EXPECT_EQ(count(page, "<script>"), 1);
  EXPECT_EQ(count(page, "</script>"), 1);
  EXPECT_THAT(page, HasSubstr("&lt;script&gt;alert(1)&lt;"));
  EXPECT_THAT(page, HasSubstr("&quot;x&#39; onload=y &amp;amp;"));
  EXPECT_THAT(page, HasSubstr("&lt;img src=x&gt;{{style}}.jsonl, for other kernels"));
  EXPECT_THAT(page, Not(HasSubstr("<img")));
  EXPECT_THAT(page, Not(HasSubstr("<b>\"")));
  EXPECT_THAT(page, HasSubstr("+100.0% ±"));
}

TEST_F(CliReport, MissingOptionIsNamed) {
  const CliResult neither = sandbox_.run({"report"});
  EXPECT_EQ(neither.exit_code, kUsage);
  EXPECT_THAT(neither.err, HasSubstr("--html FILE"));

  const std::string nowhere = sandbox_.folder() + "/no/such/folder/x.html";
  const CliResult unwritable = sandbox_.run({"report", "--html", nowhere, "--from", kH200});
  EXPECT_EQ(unwritable.exit_code, kFailed);
  EXPECT_THAT(unwritable.err, HasSubstr(nowhere + ": No such file or directory"));

  std::ofstream(page_path()) << "what was there";
  const CliResult unread =
      sandbox_.run({"report", "--html", page_path(), "--from", sandbox_.folder() + "/missing"});
  EXPECT_EQ(unread.exit_code, kFailed);
  EXPECT_EQ(read_file(page_path()), "what was there");
}

}  // namespace
}  // namespace dorajit::test
