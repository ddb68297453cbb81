#include <cstdint>
#include <string_view>

#include "dorajit/dorajit.h"

namespace {

// "1.2.3" is 10203.
constexpr std::int32_t to_number(std::string_view version) {
  std::int32_t number = 0;
  std::int32_t part = 0;
  for (const char character : version) {
    if (character == '.') {
      number = number * 100 + part;
      part = 0;
    } else {
      part = part * 10 + (character - '0');
    }
  }
  return number * 100 + part;
}

static_assert(to_number("1.2.3") == 10203);
static_assert(to_number(DORAJIT_VERSION) == DORAJIT_VERSION_NUMBER,
              "the version macros of dorajit.h differ from project() in CMakeLists.txt");

}  // namespace

std::int32_t dorajit_version(void) { return DORAJIT_VERSION_NUMBER; }
