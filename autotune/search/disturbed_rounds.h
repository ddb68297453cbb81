// Detects rounds in which other work slowed the device.
#pragma once

#include <span>

namespace dorajit::autotune {

// A candidate's typical samples before a round.
struct UsualTime {
  double median = 0;
  double deviation = 0;  // median absolute deviation
};

// Whether nearly all candidates of a round were clearly slower than usual: by a tenth, and by more
// than their own spread explains. `samples` and `usual` have the same order.
bool is_disturbed(std::span<const double> samples, std::span<const UsualTime> usual);

}  // namespace dorajit::autotune
