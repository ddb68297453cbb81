// Markup that cannot be assembled without escaping.
#pragma once

#include <initializer_list>
#include <string>
#include <string_view>
#include <utility>

namespace dorajit::cli::report {

// Text becomes markup only through text(), which escapes it, or markup(), which is for literals of
// this program and its templates.
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

// The template with each {{name}} replaced by the value of that name; values are not expanded
// again. A name without a value stays as it is.
Html fill(std::string_view markup, HtmlValues values);

}  // namespace dorajit::cli::report
