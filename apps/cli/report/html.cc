#include "apps/cli/report/html.h"

#include <algorithm>
#include <cstddef>

namespace dorajit::cli::report {

Html Html::text(std::string_view text) {
  Html html;
  for (const char letter : text) {
    switch (letter) {
      case '&':
        html.code_ += "&amp;";
        break;
      case '<':
        html.code_ += "&lt;";
        break;
      case '>':
        html.code_ += "&gt;";
        break;
      case '"':
        html.code_ += "&quot;";
        break;
      case '\'':
        html.code_ += "&#39;";
        break;
      default:
        html.code_ += letter;
    }
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
