#include "bindings/cli/report/heat_map.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <cstddef>
#include <format>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "bindings/cli/text_format.h"
#include "kernel_templates/config_text.h"
#include "kernel_templates/sizes.h"

namespace dorajit::cli::report {
namespace {

constexpr std::size_t kMostConfigs = 24;
constexpr std::size_t kMostProblems = 120;

struct Shade {
  double up_to = 0;  // times the best
  std::string_view label;
};
constexpr std::array<Shade, 8> kShades = {{{1.005, "best"},
                                           {1.02, "to 1.02"},
                                           {1.05, "to 1.05"},
                                           {1.10, "to 1.10"},
                                           {1.20, "to 1.20"},
                                           {1.50, "to 1.50"},
                                           {2.00, "to 2"},
                                           {HUGE_VAL, "over 2"}}};

std::size_t shade_of(double ratio) {
  return static_cast<std::size_t>(
      std::ranges::find_if(kShades, [&](const Shade& shade) { return ratio <= shade.up_to; }) -
      kShades.begin());
}

std::string ratio_cell_text(double ratio) {
  return ratio < 9.995 ? std::format("{:.2f}", ratio) : std::format("{:.0f}", ratio);
}

// `mark` is a class: "w" of the winner, "d" of the default.
Html ratio_cell(double ratio, std::string_view mark = "") {
  return Html::markup(std::format("<td class=\"h{}{}{}\">{}", shade_of(ratio),
                                  mark.empty() ? "" : " ", mark, ratio_cell_text(ratio)));
}

// Logarithms of times relative to the best of a problem, to be averaged.
struct Mean {
  double sum = 0;
  int count = 0;

  void add(double ratio) {
    sum += std::log(ratio);
    ++count;
  }
  [[nodiscard]] double value() const { return std::exp(sum / count); }
};

double best_of(const ProblemFindings& found) {
  // Trials are sorted.
  return !found.trials.empty() && was_measured(found.trials.front())
             ? found.trials.front().median_ns
             : found.winner.median_ns;
}

// The configs of the problems, best on average first, no more than can be shown; how many were
// left out.
std::pair<std::vector<kernels::Config>, std::size_t> configs_of(
    std::span<const ProblemFindings> problems) {
  std::map<std::string, std::pair<kernels::Config, Mean>> means;
  for (const ProblemFindings& found : problems) {
    for (const cache::Trial& trial : found.trials) {
      auto& [config, mean] = means[kernels::to_text(trial.config)];
      config = trial.config;
      if (was_measured(trial)) mean.add(trial.median_ns / best_of(found));
    }
  }
  std::vector<std::pair<double, kernels::Config>> sorted;
  for (const auto& [name, one] : means) {
    sorted.emplace_back(one.second.count > 0 ? one.second.value() : HUGE_VAL, one.first);
  }
  std::ranges::stable_sort(sorted, {}, &std::pair<double, kernels::Config>::first);
  const std::size_t left_out = sorted.size() - std::min(sorted.size(), kMostConfigs);
  std::vector<kernels::Config> configs;
  for (const auto& [mean, config] : sorted) {
    if (configs.size() < kMostConfigs) configs.push_back(config);
  }
  return {configs, left_out};
}

Html config_cell(const ProblemFindings& found, const kernels::Config& config) {
  const auto trial = std::ranges::find(found.trials, config, &cache::Trial::config);
  if (trial == found.trials.end()) return Html::markup("<td>");
  std::string mark = config == found.winner.config ? "w" : "";
  if (config == found.winner.default_config) mark += mark.empty() ? "d" : " d";
  if (was_measured(*trial)) return ratio_cell(trial->median_ns / best_of(found), mark);
  return fill("<td class=\"hx\">{{verdict}}", {{"verdict", Html::text(name(trial->verdict))}});
}

// By the dimensions that the problem's key has: "512 × 4096".
std::string size_text(const launch::Problem& problem) {
  const kernels::Sizes sizes = problem.largest_sizes();
  std::string text;
  for (std::size_t i = 0; i < problem.variant.operation->dimensions.size(); ++i) {
    if (problem.variant.operation->dimensions[i].keying == kernels::Keying::kDerived) continue;
    text += std::format("{}{}", text.empty() ? "" : " × ", sizes[i]);
  }
  return text;
}

// Their names: "rows × cols".
std::string dimension_text(const kernels::Operation& operation) {
  std::string text;
  for (const kernels::Dimension& dimension : operation.dimensions) {
    if (dimension.keying == kernels::Keying::kDerived) continue;
    text += std::format("{}{}", text.empty() ? "" : " × ", dimension.name);
  }
  return text;
}

}  // namespace

Html heat_map(std::span<const ProblemFindings> problems) {
  const auto [configs, left_out] = configs_of(problems);
  Html heading;
  for (const kernels::Config& config : configs) {
    std::string name = kernels::to_text(config);
    std::ranges::replace(name, '-', ' ');
    heading += Html::markup("<th scope=\"col\">") + Html::text(name);
  }
  Html rows;
  for (const ProblemFindings& found : problems.first(std::min(problems.size(), kMostProblems))) {
    rows += Html::markup(std::format("<tr><th scope=\"row\">{}<td class=\"num\">{}",
                                     size_text(*found.problem), duration_text(best_of(found))));
    for (const kernels::Config& config : configs) rows += config_cell(found, config);
  }
  std::string remark;
  if (left_out > 0) remark += std::format(" {} slower configs are left out.", left_out);
  if (problems.size() > kMostProblems) {
    remark += std::format(" The first {} of {} problems.", kMostProblems, problems.size());
  }
  return fill(
      R"(<div class="scroll"><table class="heat">
<caption>By problem and config: time relative to the problem’s best.{{remark}}</caption>
<thead><tr><th scope="col">{{dimensions}}<th scope="col">best{{heading}}</thead><tbody>{{rows}}</tbody></table></div>
)",
      {{"remark", Html::text(remark)},
       {"dimensions", Html::text(dimension_text(*problems.front().problem->variant.operation))},
       {"heading", heading},
       {"rows", rows}});
}

Html heat_legend() {
  Html legend = Html::markup("<p class=\"legend\">Time relative to the best:");
  for (std::size_t i = 0; i < kShades.size(); ++i) {
    legend += Html::markup(std::format(" <span class=\"h{}\">{}</span>", i, kShades[i].label));
  }
  legend += Html::markup(
      " <span class=\"w key\">winner</span> <span class=\"d key\">default</span></p>\n"
      "<p class=\"meta\">The winner may not have the best median: the last challenger meets the "
      "default in a duel, in rounds of its own, and wins if it is faster there by 1% and by three "
      "standard errors; else the default stays. A median over all rounds decides nothing.</p>\n");
  return legend;
}

}  // namespace dorajit::cli::report
