// Trials of many machines, sorted into one bundle per device model.
#pragma once

#include <cstdint>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "cache/tuning_records.h"

namespace dorajit::cli {

struct DeviceBundle {
  std::string name;  // of its files, without what comes after the dot
  std::vector<cache::Trial> trials;
  // Where the trials come from.
  std::set<std::string> devices;  // fingerprints
  std::set<std::string> drivers;
  std::set<std::string> hosts;
  std::int64_t first_unix_s = 0;
  std::int64_t last_unix_s = 0;
};

// The model that a fingerprint tells of, as a file may be named: "nvidia_h200" of
// "cuda/NVIDIA H200/sm_90/132 SMs/61440 KiB L2/140 GiB".
std::string model_file_name(std::string_view fingerprint);

// Removes the trials of kernels of other templates than this program's, whose winners answer
// nothing: how many they were.
std::int64_t drop_other_templates(std::vector<cache::Trial>& trials);

// Ordered by name.
std::vector<DeviceBundle> bundle_by_model(const std::vector<cache::Trial>& trials);

}  // namespace dorajit::cli
