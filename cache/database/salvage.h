// What can still be read of a damaged tuning database.
#pragma once

#include <string>
#include <vector>

#include "cache/records/tuning_records.h"

namespace dorajit::cache {

struct Salvaged {
  std::vector<Trial> trials;
  std::vector<Winner> winners;
};

// Every trial and winner that is readable and whose checksum is good. Never fails: of a file that
// is no database, nothing is readable.
Salvaged salvage(const std::string& path);

}  // namespace dorajit::cache
