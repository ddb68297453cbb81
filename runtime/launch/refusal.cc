#include "runtime/launch/refusal.h"

#include <format>

namespace dorajit::launch {

std::unexpected<Error> refuse(StatusCode code, const kernels::Operation& operation,
                              const kernels::Operand& operand, std::string_view what) {
  return fail(code, std::format("{}: argument `{}` {}", operation.name, operand.name, what));
}

}  // namespace dorajit::launch
