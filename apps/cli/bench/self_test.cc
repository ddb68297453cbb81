#include "apps/cli/bench/self_test.h"

#include <array>
#include <cstddef>
#include <format>
#include <vector>

#include "autotune/search/scratch_operands.h"
#include "kernel_templates/sizes.h"
#include "kernel_templates/spaces.h"

namespace dorajit::cli {
namespace {

using autotune::ScratchOperands;
using autotune::ScratchShape;
using kernels::ElementType;

const kernels::Variant kVariant{.operation = &kernels::operation("compose"),
                                .types = {ElementType::kBfloat16, ElementType::kBfloat16,
                                          ElementType::kFloat32, ElementType::kBfloat16}};

Status check_shape(Engine& engine, device::Device& device, const launch::DeviceId& id,
                   const ScratchShape& shape) {
  DORAJIT_ASSIGN(ScratchOperands scratch, ScratchOperands::make(device, kVariant, shape));
  DORAJIT_TRY(scratch.poison(0));
  const kernels::KernelArguments arguments = scratch.arguments(0);
  const auto& specs = kVariant.operation->operands;
  std::vector<launch::TensorView> operands;
  for (std::size_t i = 0; i < specs.size(); ++i) {
    operands.push_back({.data = arguments.operands[i].data,
                        .type = kVariant.types[i],
                        .device = id,
                        .rows = kernels::num_rows(specs[i].shape, shape.sizes),
                        .cols = kernels::row_length(specs[i].shape, shape.sizes),
                        .row_stride = arguments.operands[i].row_stride});
  }
  const std::array<double, 1> scalars = {arguments.scalars[0]};
  DORAJIT_TRY(
      engine.run({.operation = kVariant.operation, .operands = operands, .scalars = scalars},
                 device.own_stream()));
  DORAJIT_TRY(device.synchronize(device.own_stream()));
  DORAJIT_ASSIGN(const std::vector<std::byte> outputs, scratch.read_outputs(0));
  DORAJIT_ASSIGN(const std::vector<std::byte> expected, scratch.reference_outputs(0));
  if (outputs == expected) return {};
  return fail(StatusCode::kInternal,
              std::format("compose of {} does not give the reference's bits; please report this",
                          kernels::to_text(*kVariant.operation, shape.sizes)));
}

}  // namespace

Status run_self_test(Engine& engine, const launch::DeviceId& id) {
  DORAJIT_ASSIGN(device::Device * device, engine.device(id));
  const int widest = kernels::widest_vector(kVariant, id.kind);
  DORAJIT_TRY(check_shape(engine, *device, id,
                          {.sizes = {37, 2048, 2048}, .vector_width = widest, .seed = 1}));
  return check_shape(engine, *device, id, {.sizes = {5, 1027, 1027}, .vector_width = 1, .seed = 2});
}

}  // namespace dorajit::cli
