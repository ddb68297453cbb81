#include "bindings/cli/report/page.h"

#include <algorithm>
#include <chrono>
#include <cstddef>
#include <format>
#include <string_view>
#include <vector>

#include "bindings/cli/report/embedded_files.h"
#include "bindings/cli/report/heat_map.h"
#include "bindings/cli/report/html.h"
#include "bindings/cli/report/roofline_chart.h"
#include "bindings/cli/report/winner_table.h"
#include "bindings/cli/text_format.h"

namespace dorajit::cli::report {
namespace {

std::vector<std::string_view> parts_of(std::string_view fingerprint) {
  std::vector<std::string_view> parts;
  for (std::size_t begin = 0; begin <= fingerprint.size();) {
    const std::size_t end = std::min(fingerprint.find('/', begin), fingerprint.size());
    parts.push_back(fingerprint.substr(begin, end - begin));
    begin = end + 1;
  }
  return parts;
}

Html tile(const std::string& value, std::string_view label) {
  return fill("<div><dt>{{label}}</dt><dd>{{value}}</dd></div>",
              {{"label", Html::text(label)}, {"value", Html::text(value)}});
}

Html tiles(const DeviceFindings& device) {
  const auto count = std::ssize(device.problems);
  Html tiles = tile(std::to_string(count), "problems with a winner");
  tiles += tile(std::to_string(device.trials), "trials");
  if (count > 0) {
    const auto best = std::ranges::max(device.problems, {}, &ProblemFindings::speedup);
    tiles += tile(ratio_text(device.mean_speedup()), "over the default, geometric mean");
    tiles += tile(ratio_text(best.speedup), "best speed-up");
    tiles += tile(std::format("{:.0f}%", 100.0 * static_cast<double>(device.defaults_kept()) /
                                             static_cast<double>(count)),
                  "keep the default config");
    double fastest = 0;
    for (const ProblemFindings& one : device.problems) {
      if (one.roofline) fastest = std::max(fastest, one.roofline->bytes_per_ns);
    }
    if (fastest > 0) tiles += tile(bandwidth_text(fastest) + " GB/s", "highest bandwidth");
  }
  if (device.bad_trials > 0) {
    tiles += tile(std::to_string(device.bad_trials), "trials that failed");
  }
  return tiles;
}

bool same_variant(const ProblemFindings& a, const ProblemFindings& b) {
  return a.problem && b.problem && a.problem->variant == b.problem->variant &&
         a.problem->vector_width == b.problem->vector_width;
}

Html heat_of(std::span<const ProblemFindings> problems) {
  Html heat = heat_legend();
  bool is_first = true;
  while (!problems.empty()) {
    std::size_t size = 1;
    while (size < problems.size() && same_variant(problems.front(), problems[size])) ++size;
    const auto group = problems.first(size);
    problems = problems.subspan(size);
    const bool has_trials =
        std::ranges::any_of(group, [](const auto& one) { return !one.trials.empty(); });
    if (!group.front().problem || !has_trials) continue;
    heat += fill(
        "<details{{open}}><summary><b>{{variant}}</b><span>{{count}}, vectors of {{width}}</span>"
        "</summary>\n{{maps}}</details>\n",
        {{"open", Html::markup(is_first ? " open" : "")},
         {"variant", Html::text(to_text(group.front().problem->variant))},
         {"count", Html::text(count_text(std::ssize(group), "problem"))},
         {"width", Html::text(std::to_string(group.front().problem->vector_width))},
         {"maps", heat_maps(group)}});
    is_first = false;
  }
  if (!is_first) return heat;
  return Html::markup("<p>No trials lie beside these winners, so there is nothing to map.</p>\n");
}

Html roofline_of(const DeviceFindings& device) {
  const Html chart = roofline_chart(device);
  if (chart.code().empty()) {
    return Html::markup(
        "<p>The rows that were measured are not known, so neither is the "
        "bandwidth.</p>\n");
  }
  Html text = Html::markup(
      "<p class=\"meta\">Winners by the bytes that they must move, every element of every operand "
      "once; measured with a cold cache. A problem that does not fit 2 GiB of scratch memory is "
      "tuned on fewer rows, and these count.</p>\n");
  return text += chart;
}

Html device_section(const DeviceFindings& device) {
  const auto parts = parts_of(device.fingerprint);
  Html facts;
  for (const std::string_view part : parts) {
    facts += fill("<li>{{part}}</li>", {{"part", Html::text(part)}});
  }
  const bool is_empty = device.problems.empty();
  const Html nothing = Html::markup(is_empty ? "<p>No problem has a winner.</p>\n" : "");
  return fill(embedded_file("device.html"),
              {{"name", Html::text(parts.size() > 1 ? parts[1] : parts[0])},
               {"facts", facts},
               {"tiles", tiles(device)},
               {"gains", is_empty ? nothing : speedup_table(device)},
               {"winners", is_empty ? nothing : winner_table(device)},
               {"roofline", is_empty ? nothing : roofline_of(device)},
               {"heat", is_empty ? nothing : heat_of(device.problems)}});
}

}  // namespace

std::string page_html(std::span<const DeviceFindings> devices, const PageFacts& facts) {
  Html content;
  for (const DeviceFindings& device : devices) content += device_section(device);
  if (devices.empty()) {
    content = fill(embedded_file("empty.html"),
                   {{"origin", Html::text(facts.origin)},
                    {"remark", Html::text(facts.remark.empty() ? "" : " " + facts.remark)}});
  }
  std::string title = "dorajit tuning report";
  if (devices.size() == 1) {
    const auto parts = parts_of(devices.front().fingerprint);
    title += std::format(" · {}", parts.size() > 1 ? parts[1] : parts[0]);
  }
  const std::chrono::sys_seconds now{std::chrono::seconds(facts.now_unix_s)};
  return fill(embedded_file("page.html"),
              {{"title", Html::text(title)},
               {"style", Html::markup(embedded_file("style.css"))},
               {"script", Html::markup(embedded_file("script.js"))},
               {"origin", Html::text("From " + facts.origin)},
               {"content", content},
               {"version", Html::text(DORAJIT_VERSION)},
               {"when", Html::text(std::format("{:%Y-%m-%d %H:%M} UTC", now))}})
      .code();
}

}  // namespace dorajit::cli::report
