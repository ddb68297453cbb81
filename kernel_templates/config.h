// The parameters that the tuner chooses for a kernel: integers, named by its template.
#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <initializer_list>
#include <span>

namespace dorajit::kernels {

// Marks that have the same meaning in every template that uses them.
inline constexpr char kColumnsOfProgram = 'b';
inline constexpr char kRowsOfProgram = 'r';
inline constexpr char kWarps = 'w';        // CUDA: warps of a program; CPU: workers of a launch
inline constexpr char kVectorWidth = 'v';  // elements of the widest access

struct Tunable {
  char mark = '\0';  // a lower-case letter
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

  // 0 if there is no such tunable.
  [[nodiscard]] constexpr int operator[](char mark) const {
    for (const Tunable& tunable : tunables()) {
      if (tunable.mark == mark) return tunable.value;
    }
    return 0;
  }

  // Does nothing if there is no such tunable.
  constexpr void set(char mark, int value) {
    for (Tunable& tunable : std::span(tunables_).first(count_)) {
      if (tunable.mark == mark) tunable.value = value;
    }
  }

  friend constexpr bool operator==(const Config&, const Config&) = default;

 private:
  std::array<Tunable, kMaxTunables> tunables_{};
  std::size_t count_ = 0;
};

}  // namespace dorajit::kernels
