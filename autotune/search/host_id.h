// What trials tell of the machine that measured them.
#pragma once

#include <string>
#include <string_view>

namespace dorajit::autotune {

// The first 12 digits of a hash of the machine's name: the same for every user and process of it,
// so that runs of one machine can be told from those of another, without the name travelling along.
std::string host_id();
std::string host_id(std::string_view name);

}  // namespace dorajit::autotune
