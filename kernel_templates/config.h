// The parameters that the tuner chooses for a kernel: integers, named by its template.
#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <initializer_list>
#include <optional>
#include <span>
#include <string>
#include <string_view>

namespace dorajit::kernels {

// The name of a tunable or a dimension in text: one lower-case letter, or a longer name.
class Mark {
 public:
  static constexpr std::size_t kMaxCharacters = 23;

  constexpr Mark() = default;
  constexpr Mark(char letter) : text_{letter} {}
  // Characters after kMaxCharacters are ignored.
  constexpr explicit Mark(std::string_view name) {
    std::ranges::copy(name.substr(0, kMaxCharacters), text_.begin());
  }

  [[nodiscard]] constexpr std::string_view text() const {
    return {text_.data(), static_cast<std::size_t>(std::ranges::find(text_, '\0') - text_.begin())};
  }
  // In text, its number then follows without "=".
  [[nodiscard]] constexpr bool is_letter() const {
    return text_[0] >= 'a' && text_[0] <= 'z' && text_[1] == '\0';
  }
  [[nodiscard]] constexpr bool is(char letter) const {
    return text_[0] == letter && text_[1] == '\0';
  }
  friend constexpr bool operator==(const Mark&, const Mark&) = default;

 private:
  std::array<char, kMaxCharacters + 1> text_{};
};

// Marks that have the same meaning in every template that uses them.
inline constexpr char kColumnsOfProgram = 'b';
inline constexpr char kRowsOfProgram = 'r';
inline constexpr char kWarps = 'w';        // CUDA: warps of a program; CPU: workers of a launch
inline constexpr char kVectorWidth = 'v';  // elements of the widest access

struct Tunable {
  Mark mark;
  int value = 0;

  friend constexpr bool operator==(const Tunable&, const Tunable&) = default;
};

// A config changes the speed of a kernel, never a bit of its output. A default-constructed config
// has no tunables, and no template accepts it.
class Config {
 public:
  static constexpr std::size_t kMaxTunables = 8;

  constexpr Config() = default;

  // In the template's order, without repeated marks; at most kMaxTunables.
  constexpr Config(std::initializer_list<Tunable> tunables) {
    for (const Tunable& tunable : tunables) append(tunable);
  }

  constexpr void append(const Tunable& tunable) { tunables_[count_++] = tunable; }

  [[nodiscard]] constexpr std::span<const Tunable> tunables() const {
    return std::span(tunables_).first(count_);
  }

  // 0 if there is no such tunable. Launches use the overload for letters, which is the faster one.
  [[nodiscard]] constexpr int operator[](char letter) const {
    for (const Tunable& tunable : tunables()) {
      if (tunable.mark.is(letter)) return tunable.value;
    }
    return 0;
  }
  [[nodiscard]] constexpr int operator[](const Mark& mark) const {
    for (const Tunable& tunable : tunables()) {
      if (tunable.mark == mark) return tunable.value;
    }
    return 0;
  }

  // Does nothing if there is no such tunable.
  constexpr void set(const Mark& mark, int value) {
    for (Tunable& tunable : std::span(tunables_).first(count_)) {
      if (tunable.mark == mark) tunable.value = value;
    }
  }

  friend constexpr bool operator==(const Config&, const Config&) = default;

 private:
  std::array<Tunable, kMaxTunables> tunables_{};
  std::size_t count_ = 0;
};

// Configs as short text, for databases, logs and the command line: "b2048-w8-r1-v8-u1-c0" or
// "BLOCK=256-VEC=4", with a mark and a number for each tunable.
std::string to_text(const Config& config);

// "b2048", "BLOCK=256"
std::string to_text(const Mark& mark, std::int64_t number);

// The inverse of to_text(); nothing for other text. why_config_is_invalid() tells whether a
// template accepts the config.
std::optional<Config> parse_config(std::string_view text);

}  // namespace dorajit::kernels
