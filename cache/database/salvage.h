// Reads the undamaged rows of a damaged tuning database.
#pragma once

#include <string>
#include <vector>

#include "cache/records/tuning_records.h"

namespace dorajit::cache {

struct Salvaged {
  std::vector<Trial> trials;
  std::vector<Winner> winners;
};

// Every trial and winner that is readable and has a valid checksum. Never fails: a file that is not
// a database has none.
Salvaged salvage(const std::string& path);

}  // namespace dorajit::cache
