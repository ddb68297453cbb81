// The identifier of the measuring machine in trials.
#pragma once

#include <string>
#include <string_view>

namespace dorajit::autotune {

// The first 12 digits of a hash of the machine's name: the same for every user and process of the
// machine. It distinguishes runs of different machines without storing the name.
std::string host_id();
std::string host_id(std::string_view name);

}  // namespace dorajit::autotune
