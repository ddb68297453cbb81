// Markup that is put together without forgetting to escape.
#pragma once

#include <initializer_list>
#include <string>
#include <string_view>
#include <utility>

namespace dorajit::cli::report {

// Text becomes markup only by way of text(), which escapes it, or of markup(), which is for what
// stands in this program or its templates.
class Html {
 public:
  Html() = default;

  static Html text(std::string_view text);
  static Html markup(std::string_view markup);

  Html& operator+=(const Html& more) {
    code_ += more.code_;
    return *this;
  }
  friend Html operator+(Html first, const Html& second) { return first += second; }

  [[nodiscard]] const std::string& code() const { return code_; }

 private:
  std::string code_;
};

using HtmlValues = std::initializer_list<std::pair<std::string_view, Html>>;

// The template with each {{name}} replaced by the value of that name; what values hold is not
// looked at again. A name without a value stays as it is.
Html fill(std::string_view markup, HtmlValues values);

}  // namespace dorajit::cli::report
