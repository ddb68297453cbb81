#include "bindings/cli/report/operation_mark.h"

#include <array>
#include <format>
#include <string>
#include <string_view>

namespace dorajit::cli::report {
namespace {

constexpr std::array<std::string_view, 8> kShapes = {
    "M-4 0a4 4 0 1 0 8 0a4 4 0 1 0-8 0",                  // circle
    "M-4-4h8v8h-8z",                                      // square
    "M0-5L5 4H-5z",                                       // triangle
    "M0-5.5L5.5 0 0 5.5-5.5 0z",                          // diamond
    "M0 5L5-4H-5z",                                       // triangle on its tip
    "M-1.7-5h3.4v3.3H5v3.4H1.7V5h-3.4V1.7H-5v-3.4h3.3z",  // plus
    "M0-5.5L1.5-1.7 5.2-1.7 2.4.9 3.4 4.6 0 2.4-3.4 4.6-2.4.9-5.2-1.7-1.5-1.7z",  // star
    "M-5 0L-2.5-4.3H2.5L5 0 2.5 4.3H-2.5z"};                                      // hexagon
constexpr std::size_t kColours = 8;  // of style.css: p0, p1, ...

}  // namespace

Html operation_mark(std::size_t operation, double x, double y, const Html& title) {
  const std::size_t shape = operation % kShapes.size();
  // Each round of shapes begins with the next colour.
  const std::size_t colour = (operation + operation / kShapes.size()) % kColours;
  return fill(
      R"svg(<path class="p{{colour}}" d="{{shape}}" transform="translate({{x}} {{y}})">{{title}}</path>)svg",
      {{"colour", Html::text(std::to_string(colour))},
       {"shape", Html::text(kShapes.at(shape))},
       {"x", Html::text(std::format("{:.1f}", x))},
       {"y", Html::text(std::format("{:.1f}", y))},
       {"title", title}});
}

}  // namespace dorajit::cli::report
