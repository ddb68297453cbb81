#include "apps/cli/report/winner_table.h"

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <format>
#include <string>

#include "apps/cli/terminal/text_format.h"
#include "apps/cli/views/trials_table.h"
#include "kernel_templates/config_text.h"
#include "kernel_templates/sizes.h"

namespace dorajit::cli::report {
namespace {

constexpr std::size_t kMaxRows = 2000;

// A cell that sorts by its number.
Html number_cell(double value, const std::string& text) {
  return Html::markup(std::format("<td data-v=\"{:.6g}\">", value)) + Html::text(text);
}

std::string margin_text(const ProblemFindings& found) {
  if (found.keeps_default()) return "default kept";
  return std::format("{:+.1f}% ± {:.1f}", 100 * (found.speedup - 1), 100 * found.speedup_error);
}

// "bf16" where all operands are of that type.
std::string types_text(const std::string& types) {
  const std::string first = types.substr(0, types.find(','));
  std::string same = first;
  while (same.size() < types.size()) same += "," + first;
  return same == types ? first : types;
}

// The first size of the problem, and the others.
Html size_cells(const launch::Problem& problem) {
  const kernels::Sizes sizes = problem.largest_sizes();
  const auto& dimensions = problem.variant.operation->dimensions;
  std::string others;
  std::int64_t last = 0;
  for (std::size_t i = 1; i < dimensions.size(); ++i) {
    if (dimensions[i].keying >= kernels::Keying::kDerived) continue;
    others += std::format("{}{}", others.empty() ? "" : " × ", sizes[i]);
    last = sizes[i];
  }
  return number_cell(static_cast<double>(sizes[0]), std::to_string(sizes[0])) +
         number_cell(static_cast<double>(last), others);
}

Html names_of(const ProblemFindings& found) {
  if (!found.problem) {
    return fill("<th scope=\"row\" colspan=\"4\">{{key}}",
                {{"key", Html::text(found.winner.problem)}});
  }
  const std::string variant = to_text(found.problem->variant);
  const std::size_t slash = variant.find('/');
  return fill("<th scope=\"row\">{{op}}<td class=\"types\">{{types}}",
              {{"op", Html::text(variant.substr(0, slash))},
               {"types",
                Html::text(slash == variant.npos ? "" : types_text(variant.substr(slash + 1)))}}) +
         size_cells(*found.problem);
}

// The winner's config and, after a click, the configs of its run, the fastest first.
Html config_cell(const ProblemFindings& found) {
  const Html config = Html::markup("<code>") + Html::text(kernels::to_text(found.winner.config)) +
                      Html::markup("</code>");
  if (found.trials.size() < 2) return Html::markup("<td>") + config;
  return fill(
      "<td><details><summary>{{config}}</summary><pre>{{trials}}</pre></details>",
      {{"config", config}, {"trials", Html::text(trials_text(found.trials, found.winner))}});
}

Html row_of(const ProblemFindings& found, const DeviceFindings& device) {
  Html row = Html::markup("<tr>") + names_of(found);
  row += number_cell(found.winner.median_ns, duration_text(found.winner.median_ns));
  row += number_cell(found.winner.default_median_ns, duration_text(found.winner.default_median_ns));
  // A bar that is full at twice as fast.
  row +=
      Html::markup(std::format("<td class=\"gain\" data-v=\"{:.6g}\" style=\"--g:{:.0f}%\">",
                               found.speedup, std::clamp(100 * (found.speedup - 1), 0.0, 100.0))) +
      Html::text(ratio_text(found.speedup));
  row += number_cell(found.speedup - 1, margin_text(found));
  if (found.roofline) {
    row += number_cell(found.roofline->bytes_per_ns, bandwidth_text(found.roofline->bytes_per_ns));
  } else {
    row += number_cell(0, "–");
  }
  if (device.memory) {
    const double share =
        found.roofline ? found.roofline->bytes_per_ns / device.memory->bytes_per_ns : 0;
    row += number_cell(share, share > 0 ? percent_text(share) : "–");
  }
  row += config_cell(found);
  row += number_cell(static_cast<double>(found.age_s), age_text(found.age_s));
  std::string source = found.source;
  if (!found.is_for_these_kernels) source += ", for other kernels";
  return row + Html::markup("<td>") + Html::text(source) + Html::markup("\n");
}

}  // namespace

Html winner_table(const DeviceFindings& device) {
  Html rows;
  std::size_t count = 0;
  for (const ProblemFindings& found : device.problems) {
    if (++count > kMaxRows) break;
    rows += row_of(found, device);
  }
  std::string remark;
  if (device.problems.size() > kMaxRows) {
    remark = std::format(" The first {} of {}; --json has all.", kMaxRows, device.problems.size());
  }
  return fill(
      R"(<div class="scroll tall" tabindex="0" role="region" aria-label="Winners"><table class="winners" data-sortable>
<caption>Winners against the default config.{{remark}} The margin is how much faster the winner is, with its standard error; one type is that of all operands; a size stands for all numbers of rows down to half of it. A click on a config lists the configs of its run. The winner may not have the best median: the last challenger is compared with the default alone, in rounds of their own, and wins if it is faster there by 1% and by three standard errors; else the default stays.</caption>
<thead><tr><th scope="col">operation<th scope="col">types<th scope="col" class="n">rows<th scope="col" class="n">columns<th scope="col" class="n">time<th scope="col" class="n">default<th scope="col" class="n">speed-up<th scope="col" class="n">margin<th scope="col" class="n">GB/s{{share}}<th scope="col">config<th scope="col" class="n">age<th scope="col">source</thead>
<tbody>
{{rows}}</tbody></table></div>
)",
      {{"remark", Html::text(remark)},
       {"share", Html::markup(device.memory ? "<th scope=\"col\" class=\"n\">of peak" : "")},
       {"rows", rows}});
}

}  // namespace dorajit::cli::report
