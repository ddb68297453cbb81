// Structs of the C ABI that carry their own size, so that later versions can add fields.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstring>
#include <format>
#include <span>
#include <string_view>

#include "runtime/base/error.h"

namespace dorajit::bindings {

// Refuses a struct_size that no version of the struct has had.
inline Status check_struct_size(std::string_view function, std::string_view argument,
                                std::string_view type, std::size_t struct_size,
                                std::size_t smallest) {
  if (struct_size >= smallest) return {};
  return fail(StatusCode::kInvalidArgument,
              std::format("{}: argument `{}` has a struct_size of {}; set it to sizeof({})",
                          function, argument, struct_size, type));
}

// Refuses a struct of a later version whose additional fields are not zero.
inline Status check_unknown_fields(std::string_view function, std::string_view argument,
                                   std::span<const std::byte> bytes, std::size_t known) {
  const auto excess = bytes.subspan(std::min(known, bytes.size()));
  if (std::ranges::all_of(excess, [](std::byte byte) { return byte == std::byte{0}; })) return {};
  return fail(
      StatusCode::kUnsupported,
      std::format("{}: argument `{}` sets fields that this version of dorajit does not "
                  "know (struct_size {}, known {}); leave them zero, or install the version "
                  "of dorajit that it was compiled for",
                  function, argument, bytes.size(), known));
}

// Copies as many bytes as the caller's struct has. Fields of a later version are zeroed.
template <class Struct>
void copy_sized(Struct known, Struct* caller) {
  const std::size_t wanted = known.struct_size = caller->struct_size;
  std::memset(caller, 0, wanted);
  std::memcpy(caller, &known, std::min(wanted, sizeof known));
}

}  // namespace dorajit::bindings
