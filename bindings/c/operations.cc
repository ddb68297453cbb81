#include <array>
#include <span>

#include "bindings/c/engine_handle.h"
#include "bindings/c/error_handle.h"
#include "bindings/c/tensor_from_dlpack.h"
#include "kernel_templates/registry.h"
#include "runtime/launch/check_call.h"

namespace dorajit::bindings {
namespace {

// `tensors` in the registry's order, which also names them.
Status run(dorajit_engine* engine, kernels::Op op, void* stream,
           std::span<const DLTensor* const> tensors, std::span<const double> scalars) {
  const kernels::OpSpec& spec = kernels::spec(op);
  DORAJIT_TRY(require(engine, spec.name, "engine", "create one with dorajit_engine_create"));
  std::array<launch::TensorView, kernels::kMaxOperands> operands;
  for (std::size_t i = 0; i < tensors.size(); ++i) {
    DORAJIT_ASSIGN(operands[i], tensor_from_dlpack(spec.name, spec.operands[i].name, tensors[i]));
  }
  return engine->composition.engine->run(
      {.op = op, .operands = std::span(operands).first(tensors.size()), .scalars = scalars},
      stream);
}

}  // namespace
}  // namespace dorajit::bindings

dorajit_status dorajit_compose(dorajit_engine* engine, void* stream, const DLTensor* lora,
                               const DLTensor* base, const DLTensor* gain, double scale,
                               const DLTensor* out, dorajit_error** error) {
  return dorajit::bindings::guarded(error, [&] {
    const DLTensor* const tensors[] = {lora, base, gain, out};
    return dorajit::bindings::run(engine, dorajit::kernels::Op::kCompose, stream, tensors,
                                  std::span(&scale, 1));
  });
}
