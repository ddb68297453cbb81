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
#include "kernel_templates/config.h"
#include "tests/apps/cli/cli_sandbox.h"

namespace dorajit::test {
namespace {

using testing::HasSubstr;
using testing::Not;
namespace fs = std::filesystem;

constexpr const char* kH200 = DORAJIT_SOURCE_DIR "/databases/nvidia_h200.jsonl";

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

// The document that the page shows.
nlohmann::json document_in(const std::string& page) {
  const std::string_view open = "<script type=\"application/json\" id=\"document\">";
  const std::size_t begin = page.find(open) + open.size();
  return nlohmann::json::parse(page.substr(begin, page.find("</script>", begin) - begin));
}

class CliReport : public CliTest {
 protected:
  [[nodiscard]] std::string page_path() const { return file("report.html"); }
};

TEST_F(CliReport, WithoutTrialsSaysHowToMeasureSome) {
  const auto result = sandbox_.json({"report", "--html", page_path()});
  EXPECT_EQ(result["devices"].size(), 0);
  const std::string page = read_file(page_path());
  EXPECT_THAT(page, HasSubstr("Nothing was measured yet"));
  EXPECT_THAT(page, HasSubstr("dorajit demo --quick"));
  EXPECT_THAT(page, HasSubstr(sandbox_.database()));
  EXPECT_EQ(document_in(page), result);
}

TEST_F(CliReport, WinnersOfTheDatabaseAreShown) {
  sandbox_.set("DORAJIT_TUNE_SECONDS", "0.02");
  sandbox_.succeed("tune --shape 8x512 --device cpu");
  const auto document = sandbox_.json({"report", "--html", page_path()});
  const auto shown = sandbox_.json("show --trials");
  ASSERT_EQ(document["devices"].size(), 1);
  const auto& device = document["devices"][0];
  EXPECT_THAT(device, has({{"/fingerprint", shown["winners"][0]["device"]},
                           {"/trials", shown["database"]["trials"]}}));
  ASSERT_EQ(device["problems"].size(), 1);
  const auto& problem = device["problems"][0];
  auto winner = shown["winners"][0];
  winner["age_s"] = problem["age_s"];
  EXPECT_EQ(problem, winner);
  EXPECT_THAT(problem, has({{"/sizes", nlohmann::json({{"rows", 8}, {"cols", 512}})},
                            {"/source", "user database"},
                            {"/for_these_kernels", true}}));
  // bf16, bf16 and bf16 of 8 x 512, and a gain of 512 in f32.
  EXPECT_EQ(problem["bytes"], 3 * 2 * 8 * 512 + 4 * 512);
  EXPECT_EQ(document_in(read_file(page_path())), document);
}

TEST_F(CliReport, ShippedDataFitOneSmallPage) {
  const Keys keys = keys_in(kH200);
  const auto problems = static_cast<std::ptrdiff_t>(keys.problems.size());
  ASSERT_GT(problems, 1000);
  const CliResult result = sandbox_.succeed({"report", "--html", page_path(), "--from", kH200});
  EXPECT_THAT(result.out, HasSubstr(std::format("{} problems on 1 device", problems)));
  const std::string page = read_file(page_path());
  EXPECT_LT(page.size(), 3 << 20);
  const auto device = document_in(page)["devices"][0];
  EXPECT_EQ(std::ssize(device["problems"]), problems);
  std::ptrdiff_t kept = 0;
  std::set<std::string> operations;
  for (const auto& problem : device["problems"]) {
    EXPECT_GT(problem["bytes"], 0);
    const auto& trials = problem["trials"];
    if (problem["config"] == problem["default_config"]) {
      ++kept;
    } else {  // where the winner is not the default, both are listed
      EXPECT_TRUE(std::ranges::contains(trials, problem["default_config"], [](const auto& trial) {
        return trial["config"];
      })) << problem;
    }
    const auto key = problem["problem"].get<std::string>();
    operations.insert(key.substr(0, key.find('/')));
  }
  EXPECT_THAT(device, has({{"/defaults_kept", kept}, {"/peak_of", "H200"}}));
  EXPECT_EQ(operations, keys.operations);
  EXPECT_THAT(page, HasSubstr("The winner may not have the best median"));
  EXPECT_THAT(page, Not(HasSubstr("http:")));
  EXPECT_THAT(page, Not(HasSubstr("https:")));
}

// Sizes beyond the memory for tuning are measured on fewer rows, so their bandwidth is no wonder.
TEST_F(CliReport, BandwidthsStayBelowTheMemorys) {
  const auto document = sandbox_.json({"report", "--from", kH200});
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
  for (const auto& [device, found] :
       std::map<std::string, int>{{"H200", 1}, {"H100", 0}, {"cpu", 0}}) {
    EXPECT_EQ(sandbox_.json({"report", "--from", kH200, "--device", device})["devices"].size(),
              found);
  }
}

constexpr const char* kHostileDevice =
    "cpu/</script><script>alert(1)</script>/\"x' onload=y &amp;/2 threads";

cache::Trial hostile_trial(const std::string& config, double median_ns) {
  return {
      .problem = "compose/f32,f32,f32,f32/v1/c512/r3",
      .device = kHostileDevice,
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
  const std::string lines = sandbox_.file("<img src=x>{{document}}.jsonl");
  const std::vector<cache::Trial> trials = {hostile_trial("b512-w1-r1-v1-u1-c0", 1000),
                                            hostile_trial("b512-w2-r1-v1-u1-c0", 500)};
  ASSERT_TRUE(cache::write_trial_file(lines, trials));
  const auto result = sandbox_.json({"report", "--html", page_path(), "--from", lines});
  EXPECT_EQ(result["devices"][0]["problems"][0]["for_these_kernels"], false);
  const std::string page = read_file(page_path());
  EXPECT_EQ(count(page, "<script"), 2) << "the document and the script";
  EXPECT_EQ(count(page, "</script>"), 2);
  EXPECT_THAT(page, HasSubstr("\\u003cscript>alert(1)\\u003c"));
  EXPECT_THAT(page, Not(HasSubstr("<img")));
  EXPECT_THAT(page, Not(HasSubstr("<b>")));
  const auto shown = document_in(page);
  EXPECT_EQ(shown, result);
  EXPECT_EQ(shown["devices"][0]["fingerprint"], kHostileDevice);
  const auto problem = shown["devices"][0]["problems"][0];
  EXPECT_THAT(problem,
              has({{"/source", "<img src=x>{{document}}.jsonl"}, {"/speedup_over_default", 2}}));
}

TEST_F(CliReport, UnusablePathsAreNamed) {
  const std::string nowhere = sandbox_.file("no/such/folder/x.html");
  EXPECT_THAT(sandbox_.run({"report", "--html", nowhere, "--from", kH200}),
              fails(kFailed, nowhere + ": No such file or directory"));

  std::ofstream(page_path()) << "what was there";
  const CliResult unread =
      sandbox_.run({"report", "--html", page_path(), "--from", sandbox_.file("missing")});
  EXPECT_EQ(unread.exit_code, kFailed);
  EXPECT_EQ(read_file(page_path()), "what was there");
}

}  // namespace
}  // namespace dorajit::test
