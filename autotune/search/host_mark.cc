#include "autotune/search/host_mark.h"

#include <unistd.h>

#include "runtime/base/hash.h"

namespace dorajit::autotune {

std::string host_mark(std::string_view name) {
  constexpr std::size_t kDigits = 12;
  return Hasher("host/1").add("name", name).digest().substr(0, kDigits);
}

std::string host_mark() {
  char name[256] = {};
  ::gethostname(name, sizeof name - 1);
  return host_mark(name);
}

}  // namespace dorajit::autotune
