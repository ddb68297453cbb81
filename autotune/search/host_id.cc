#include "autotune/search/host_id.h"

#include <unistd.h>

#include "runtime/base/hash.h"

namespace dorajit::autotune {

std::string host_id(std::string_view name) {
  constexpr std::size_t kDigits = 12;
  return Hasher("host/1").add("name", name).digest().substr(0, kDigits);
}

std::string host_id() {
  char name[256] = {};
  ::gethostname(name, sizeof name - 1);
  return host_id(name);
}

}  // namespace dorajit::autotune
