// Which device fingerprints are of one model.
#pragma once

#include <string>
#include <string_view>
#include <utility>

namespace dorajit::cache {

// Whether two fingerprints are equal but for the GiB at their end, and these by at most an eighth.
// GPUs of one model report different memory, by driver, ECC and board: A100 40GB 39.39 to 39.59
// GiB. Models of one name with different memory (8 and 12 GiB) are further apart.
bool is_same_model(std::string_view one, std::string_view other);

// How far the memory of two such fingerprints is apart, in GiB.
int memory_apart(std::string_view one, std::string_view other);

// A range of texts with the fingerprints of a device's model, for queries; not all of it is of that
// model.
std::pair<std::string, std::string> range_of_model(std::string_view fingerprint);

}  // namespace dorajit::cache
