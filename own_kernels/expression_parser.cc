// Expression::parse(): a recursive descent over the text, one function for each level of
// precedence.
#include <algorithm>
#include <charconv>
#include <format>
#include <optional>
#include <utility>

#include "own_kernels/expression.h"

namespace dorajit::own_kernels {

class ExpressionParser {
 public:
  using Code = Expression::Code;

  ExpressionParser(std::string_view text, std::span<const std::string> names)
      : text_(text), names_(names) {}

  Result<Expression> parse() {
    if (text_.size() > Expression::kMaxCharacters) {
      return fail(StatusCode::kInvalidArgument,
                  std::format("an expression has {} characters; at most {} are served",
                              text_.size(), Expression::kMaxCharacters));
    }
    parse_or();
    if (fault_.empty() && !token().empty()) expected("an operator was expected");
    if (fault_.empty()) {
      made_.text_ = text_;
      return std::move(made_);
    }
    return fail(StatusCode::kInvalidArgument,
                std::format("expression \"{}\", character {}: {}", text_, at_ + 1, fault_));
  }

 private:
  // Counts a level of nesting while it lives.
  class Level {
   public:
    explicit Level(ExpressionParser& parser) : parser_(parser) {
      if (++parser_.depth_ > Expression::kDeepest) parser_.refuse("it is nested too deep");
    }
    ~Level() { --parser_.depth_; }
    Level(const Level&) = delete;
    Level& operator=(const Level&) = delete;

   private:
    ExpressionParser& parser_;
  };

  // Refuses the next token. Of another language's operator it says what to write instead.
  void expected(std::string what) {
    constexpr std::pair<std::string_view, std::string_view> kOthers[] = {
        {"//", "write `/`, which rounds towards zero"},
        {"&&", "write `and`"},
        {"||", "write `or`"},
        {"!", "write `not`"},
        {"=", "write `==`"},
        {"**", "write a product, as in `a * a`"},
        {"<<", "write a product with a power of two"},
        {">>", "write a quotient by a power of two"},
        {"?", "write a sum of products with comparisons: `(c > 0) * a + (c <= 0) * b`"},
        {"if", "write a sum of products with comparisons: `(c > 0) * a + (c <= 0) * b`"},
    };
    const std::string_view there = token();
    for (const auto& [operation, instead] : kOthers) {
      if (there == operation) return refuse(std::format("there is no `{}`; {}", there, instead));
    }
    refuse(std::move(what));
  }

  // The first fault is kept, with the place where it was met.
  void refuse(std::string what) {
    if (fault_.empty()) fault_ = std::move(what);
  }

  static bool is_word_character(char c) {
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '_';
  }

  // What stands next: a word or number, or an operator; empty at the end.
  std::string_view token() {
    while (at_ < text_.size() && (text_[at_] == ' ' || text_[at_] == '\t' || text_[at_] == '\n')) {
      ++at_;
    }
    std::size_t length = 0;
    while (at_ + length < text_.size() && is_word_character(text_[at_ + length])) ++length;
    if (length > 0) return text_.substr(at_, length);
    for (const std::string_view two :
         {"==", "!=", "<=", ">=", "//", "**", "&&", "||", "<<", ">>"}) {
      if (text_.substr(at_).starts_with(two)) return two;
    }
    length = 1;  // of a character in UTF-8, one byte or more
    while (at_ + length < text_.size() && (text_[at_ + length] & 0xC0) == 0x80) ++length;
    return text_.substr(at_, length);
  }

  bool take(std::string_view wanted) {
    if (!fault_.empty() || token() != wanted) return false;
    at_ += wanted.size();
    return true;
  }

  void emit(Code code, std::int64_t operand = 0) {
    if (made_.steps_.size() >= Expression::kMaxSteps) return refuse("it is too long");
    made_.steps_.push_back({.code = code, .operand = operand});
  }

  // After its right operand.
  void emit_division(Code code) {
    const auto& last = made_.steps_.back();
    if (fault_.empty() && last.code == Code::kNumber && last.operand == 0) {
      return refuse("it divides by zero");
    }
    emit(code);
  }

  template <class Next>
  void parse_logical(std::string_view word, Code code, const Next& next) {
    next();
    while (take(word)) {
      const std::size_t jump = made_.steps_.size();
      emit(code);
      next();
      emit(Code::kTruth);
      if (fault_.empty()) {
        made_.steps_[jump].operand = static_cast<std::int64_t>(made_.steps_.size());
      }
    }
  }

  void parse_or() {
    parse_logical("or", Code::kOr, [this] { parse_and(); });
  }
  void parse_and() {
    parse_logical("and", Code::kAnd, [this] { parse_not(); });
  }

  void parse_not() {
    const Level level(*this);
    if (!fault_.empty()) return;
    if (!take("not")) return parse_comparison();
    parse_not();
    emit(Code::kNot);
  }

  std::optional<Code> take_comparison() {
    constexpr std::pair<std::string_view, Code> kComparisons[] = {
        {"==", Code::kEqual},  {"!=", Code::kNotEqual},    {"<", Code::kLess},
        {">", Code::kGreater}, {"<=", Code::kLessOrEqual}, {">=", Code::kGreaterOrEqual}};
    for (const auto& [sign, code] : kComparisons) {
      if (take(sign)) return code;
    }
    return std::nullopt;
  }

  void parse_comparison() {
    parse_sum();
    const auto code = take_comparison();
    if (!code) return;
    parse_sum();
    emit(*code);
    if (take_comparison()) refuse("comparisons are not chained; join them with `and`");
  }

  void parse_sum() {
    parse_product();
    for (;;) {
      const bool adds = take("+");
      if (!adds && !take("-")) return;
      parse_product();
      emit(adds ? Code::kAdd : Code::kSubtract);
    }
  }

  void parse_product() {
    parse_sign();
    while (fault_.empty()) {
      if (take("*")) {
        parse_sign();
        emit(Code::kMultiply);
      } else if (take("/")) {
        parse_sign();
        emit_division(Code::kDivide);
      } else if (take("%")) {
        parse_sign();
        emit_division(Code::kModulo);
      } else {
        return;
      }
    }
  }

  void parse_sign() {
    const Level level(*this);
    if (!fault_.empty()) return;
    if (!take("-")) return parse_operand();
    parse_sign();
    emit(Code::kNegate);
  }

  void parse_operand() {
    if (take("(")) {
      parse_or();
      return close();
    }
    for (const auto& [word, code] : {std::pair{"min", Code::kMin}, std::pair{"max", Code::kMax}}) {
      if (take(word)) return parse_extreme(code);
    }
    if (take("ceil_div")) {
      open();
      parse_or();
      if (!take(",")) expected("ceil_div has two arguments");
      parse_or();
      if (fault_.empty()) emit_division(Code::kCeilDiv);
      return close();
    }
    if (take("bucket")) {
      open();
      parse_or();
      emit(Code::kBucket);
      return close();
    }
    parse_word();
  }

  void parse_extreme(Code code) {
    open();
    parse_or();
    if (token() != ",") expected("min and max have two arguments or more");
    while (take(",")) {
      parse_or();
      emit(code);
    }
    close();
  }

  void parse_word() {
    if (!fault_.empty()) return;
    const std::string_view word = token();
    if (word.empty()) return refuse("it ends where a value was expected");
    if (word.front() >= '0' && word.front() <= '9') {
      std::int64_t number = 0;
      const auto [end, error] = std::from_chars(word.begin(), word.end(), number);
      if (error != std::errc{} || end != word.end()) {
        return refuse(std::format("\"{}\" is no integer of 64 bits", word));
      }
      emit(Code::kNumber, number);
    } else if (!is_name(word)) {
      return expected(std::format("a value was expected and not \"{}\"", word));
    } else {
      const auto found = std::ranges::find(names_, word);
      if (found == names_.end()) return refuse(unknown(word));
      emit(Code::kValue, found - names_.begin());
    }
    if (fault_.empty()) at_ += word.size();
  }

  [[nodiscard]] std::string unknown(std::string_view word) const {
    std::string text = std::format("the name `{}` is unknown; there are", word);
    for (const std::string& name : names_) {
      text += std::format("{} `{}`", &name == names_.data() ? "" : ",", name);
    }
    return names_.empty() ? std::format("the name `{}` is unknown; there are no names", word)
                          : text;
  }

  void open() {
    if (!take("(")) refuse("`(` was expected");
  }
  void close() {
    if (!take(")")) expected("`)` was expected");
  }

  std::string_view text_;
  std::span<const std::string> names_;
  std::size_t at_ = 0;
  std::size_t depth_ = 0;
  std::string fault_;
  Expression made_;
};

Result<Expression> Expression::parse(std::string_view text, std::span<const std::string> names) {
  return ExpressionParser(text, names).parse();
}

}  // namespace dorajit::own_kernels
