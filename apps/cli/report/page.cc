#include "apps/cli/report/page.h"

#include <algorithm>
#include <chrono>
#include <cstddef>
#include <format>
#include <string_view>

#include "apps/cli/report/embedded_files.h"
#include "apps/cli/report/html.h"
#include "apps/cli/report/roofline_chart.h"
#include "apps/cli/report/winner_table.h"
#include "apps/cli/terminal/text_format.h"

namespace dorajit::cli::report {
namespace {

std::string_view embedded_file(std::string_view name) {
  const std::span files(kEmbeddedFiles, static_cast<std::size_t>(kNumEmbeddedFiles));
  return std::ranges::find(files, name, &EmbeddedFile::name)->text;
}

// "NVIDIA H200" of "cuda/NVIDIA H200/sm_90/...".
std::string_view model_of(std::string_view fingerprint) {
  fingerprint.remove_prefix(std::min(fingerprint.find('/') + 1, fingerprint.size()));
  return fingerprint.substr(0, fingerprint.find('/'));
}

std::string summary(const DeviceFindings& device) {
  const auto count = std::ssize(device.problems);
  std::string text =
      std::format("{}, {}", count_text(count, "problem"), count_text(device.trials, "trial"));
  if (device.bad_trials > 0) text += std::format(" ({} failed)", device.bad_trials);
  if (count == 0) return text;
  double fastest = 0;
  for (const ProblemFindings& one : device.problems) {
    if (one.roofline) fastest = std::max(fastest, one.roofline->bytes_per_ns);
  }
  text += std::format("; {} over the default config (geometric mean), which {} of them keep",
                      ratio_text(device.mean_speedup()), device.defaults_kept());
  if (fastest > 0) text += std::format("; {} GB/s at most", bandwidth_text(fastest));
  return text;
}

Html roofline_of(const DeviceFindings& device) {
  const Html chart = roofline_chart(device);
  if (chart.code().empty()) {
    return Html::markup(
        "<p>The measured rows are not known, so the bandwidth is not known "
        "either.</p>\n");
  }
  Html text = Html::markup(
      "<p class=\"meta\">Winners by the bytes that they must move, every element of every operand "
      "once; measured with a cold cache. A problem that does not fit 2 GiB of scratch memory is "
      "tuned on fewer rows, and these count.</p>\n");
  return text += chart;
}

Html device_section(const DeviceFindings& device) {
  Html section = fill(
      "<section>\n<h2>{{model}}</h2>\n<p class=\"meta\">{{fingerprint}}</p>\n<p>{{summary}}</p>\n",
      {{"model", Html::text(model_of(device.fingerprint))},
       {"fingerprint", Html::text(device.fingerprint)},
       {"summary", Html::text(summary(device))}});
  if (!device.problems.empty()) {
    section += Html::markup("<h3>Winners</h3>\n") + winner_table(device) +
               Html::markup("<h3>Bandwidth</h3>\n") + roofline_of(device);
  }
  return section + Html::markup("</section>\n");
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
    title += std::format(" · {}", model_of(devices.front().fingerprint));
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
