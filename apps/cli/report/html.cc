#include "apps/cli/report/html.h"

#include <algorithm>
#include <cstddef>
#include <iterator>
#include <utility>

namespace dorajit::cli::report {

Html Html::text(std::string_view text) {
  constexpr std::pair<char, std::string_view> kEscapes[] = {
      {'&', "&amp;"}, {'<', "&lt;"}, {'>', "&gt;"}, {'"', "&quot;"}, {'\'', "&#39;"}};
  Html html;
  for (const char& letter : text) {
    const auto* const found =
        std::ranges::find(kEscapes, letter, &std::pair<char, std::string_view>::first);
    html.code_ += found != std::end(kEscapes) ? found->second : std::string_view(&letter, 1);
  }
  return html;
}

Html Html::markup(std::string_view markup) {
  Html html;
  html.code_ = markup;
  return html;
}

Html fill(std::string_view markup, HtmlValues values) {
  constexpr std::string_view kOpen = "{{";
  constexpr std::string_view kClose = "}}";
  Html filled;
  std::size_t done = 0;
  for (std::size_t open = markup.find(kOpen); open != markup.npos;) {
    const std::size_t close = markup.find(kClose, open);
    if (close == markup.npos) break;
    const std::string_view name = markup.substr(open + kOpen.size(), close - open - kOpen.size());
    const auto* const found =
        std::ranges::find(values, name, &std::pair<std::string_view, Html>::first);
    if (found != values.end()) {
      filled += Html::markup(markup.substr(done, open - done));
      filled += found->second;
      done = close + kClose.size();
    }
    open = markup.find(kOpen, close + kClose.size());
  }
  filled += Html::markup(markup.substr(done));
  return filled;
}

}  // namespace dorajit::cli::report
