// Which environment variables are in force.
#pragma once

#include <string>
#include <vector>

namespace dorajit::cli {

struct EnvironmentVariable {
  std::string name;
  std::string value;
  bool is_known = true;  // to this program
};

// Every variable of this process that is named DORAJIT_*, and what else moves the cache, by name.
std::vector<EnvironmentVariable> variables_in_force();

}  // namespace dorajit::cli
