#include "apps/cli/report/roofline_chart.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <format>
#include <map>
#include <string>
#include <vector>

#include "apps/cli/terminal/text_format.h"

namespace dorajit::cli::report {
namespace {

constexpr double kWidth = 960;
constexpr double kHeight = 400;
constexpr double kLeft = 64;
constexpr double kRight = 28;
constexpr double kTop = 26;
constexpr double kBottom = 52;

// 1, 2 or 5 times a power of ten, so that about five steps of it reach `max`.
double round_step(double max) {
  const double rough = max / 5;
  const double power = std::pow(10, std::floor(std::log10(rough)));
  for (const double factor : {1.0, 2.0, 5.0}) {
    if (rough <= factor * power) return factor * power;
  }
  return 10 * power;
}

class Chart {
 public:
  Chart(double min_bytes, double max_bytes, double max_bandwidth)
      : first_(std::floor(std::log10(min_bytes))),
        last_(std::max(std::ceil(std::log10(max_bytes)), first_ + 1)),
        step_(round_step(max_bandwidth)),
        top_(std::ceil(max_bandwidth / step_) * step_) {}

  [[nodiscard]] double x(double bytes) const {
    return kLeft + (std::log10(bytes) - first_) / (last_ - first_) * (kWidth - kLeft - kRight);
  }
  [[nodiscard]] double y(double bandwidth) const {
    return kHeight - kBottom - bandwidth / top_ * (kHeight - kTop - kBottom);
  }

  [[nodiscard]] Html axes() const {
    Html axes;
    const int steps = static_cast<int>(std::lround(top_ / step_));
    for (int i = 0; i <= steps; ++i) {
      const double bandwidth = i * step_;
      axes += Html::markup(
          std::format("<line class=\"grid\" x1=\"{}\" x2=\"{}\" y1=\"{:.1f}\" y2=\"{:.1f}\"/>"
                      "<text class=\"y\" x=\"{}\" y=\"{:.1f}\">{:g}</text>\n",
                      kLeft, kWidth - kRight, y(bandwidth), y(bandwidth), kLeft - 8,
                      y(bandwidth) + 4, bandwidth));
    }
    constexpr std::array<std::string_view, 5> kUnits = {"B", "kB", "MB", "GB", "TB"};
    for (int power = static_cast<int>(first_); power <= static_cast<int>(last_); ++power) {
      const double at = x(std::pow(10, power));
      const auto unit = static_cast<std::size_t>(std::clamp(power / 3, 0, 4));
      axes += Html::markup(
          std::format("<line class=\"grid\" x1=\"{:.1f}\" x2=\"{:.1f}\" y1=\"{}\" y2=\"{}\"/>"
                      "<text class=\"x\" x=\"{:.1f}\" y=\"{}\">{:g} {}</text>\n",
                      at, at, kTop, kHeight - kBottom, at, kHeight - kBottom + 18,
                      std::pow(10, power - 3 * static_cast<int>(unit)), kUnits[unit]));
    }
    axes += Html::markup(
        std::format("<text class=\"x\" x=\"{:.0f}\" y=\"{}\">bytes that one launch moves</text>"
                    "<text x=\"4\" y=\"14\">GB/s</text>\n",
                    (kLeft + kWidth - kRight) / 2, kHeight - 8));
    return axes;
  }

 private:
  double first_;  // powers of ten
  double last_;
  double step_;
  double top_;
};

Html roof(const Chart& chart, const KnownBandwidth& memory) {
  const double at = chart.y(memory.bytes_per_ns);
  return fill(
      R"(<line class="roof" x1="{{left}}" x2="{{right}}" y1="{{y}}" y2="{{y}}"/><text class="y" x="{{right}}" y="{{above}}">memory of {{model}}: {{peak}} GB/s</text>
)",
      {{"left", Html::text(std::format("{}", kLeft))},
       {"right", Html::text(std::format("{}", kWidth - kRight))},
       {"y", Html::text(std::format("{:.1f}", at))},
       {"above", Html::text(std::format("{:.1f}", at - 6))},
       {"model", Html::text(memory.model)},
       {"peak", Html::text(bandwidth_text(memory.bytes_per_ns))}});
}

constexpr std::size_t kColours = 8;  // of style.css: p0, p1, ...

// `title` is shown under the mouse pointer.
Html point(std::size_t colour, double x, double y, const std::string& title) {
  return Html::markup(std::format("<circle class=\"p{}\" cx=\"{:.1f}\" cy=\"{:.1f}\" r=\"4\">",
                                  colour % kColours, x, y)) +
         fill("<title>{{text}}</title></circle>\n", {{"text", Html::text(title)}});
}

}  // namespace

Html roofline_chart(const DeviceFindings& device) {
  std::vector<const ProblemFindings*> shown;
  std::map<std::string_view, std::size_t> colours;  // by the operation's name
  double min_bytes = HUGE_VAL;
  double max_bytes = 0;
  double fastest = device.memory ? device.memory->bytes_per_ns : 0;
  for (const ProblemFindings& found : device.problems) {
    if (!found.problem || !found.roofline || found.roofline->bytes <= 0) continue;
    shown.push_back(&found);
    colours.emplace(found.problem->variant.operation->name, colours.size());
    min_bytes = std::min(min_bytes, static_cast<double>(found.roofline->bytes));
    max_bytes = std::max(max_bytes, static_cast<double>(found.roofline->bytes));
    fastest = std::max(fastest, found.roofline->bytes_per_ns);
  }
  if (shown.empty()) return {};
  const Chart chart(min_bytes, max_bytes, fastest);
  Html inside = chart.axes();
  if (device.memory) inside += roof(chart, *device.memory);
  for (const ProblemFindings* found : shown) {
    inside += point(colours.at(found->problem->variant.operation->name),
                    chart.x(static_cast<double>(found->roofline->bytes)),
                    chart.y(found->roofline->bytes_per_ns),
                    std::format("{}: {} GB/s", found->winner.problem,
                                bandwidth_text(found->roofline->bytes_per_ns)));
  }
  Html legend;
  for (const auto& [operation, colour] : colours) {
    legend += fill("<span><i class=\"p{{colour}}\">●</i> {{name}}</span> ",
                   {{"colour", Html::text(std::to_string(colour % kColours))},
                    {"name", Html::text(operation)}});
  }
  return fill(R"(<figure class="roofline">
<svg viewBox="0 0 {{width}} {{height}}" role="img" aria-label="Bandwidth of {{count}} winners over the bytes that they move; the table of winners has the same figures.">
{{inside}}</svg>
<figcaption class="legend">{{legend}}</figcaption>
</figure>
)",
              {{"width", Html::text(std::format("{}", kWidth))},
               {"height", Html::text(std::format("{}", kHeight))},
               {"count", Html::text(std::to_string(shown.size()))},
               {"inside", inside},
               {"legend", legend}});
}

}  // namespace dorajit::cli::report
