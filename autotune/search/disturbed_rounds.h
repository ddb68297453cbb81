// Rounds in which something else slowed the device.
#pragma once

#include <span>

namespace dorajit::autotune {

// What a candidate's samples were like before a round.
struct UsualTime {
  double median = 0;
  double deviation = 0;  // median absolute
};

// Whether nearly all candidates of a round were clearly slower than they usually are: by a tenth,
// and by more than their own spread explains. `samples` and `usual` are in the same order.
bool is_disturbed(std::span<const double> samples, std::span<const UsualTime> usual);

}  // namespace dorajit::autotune
