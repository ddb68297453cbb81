#include "kernel_templates/templates/sums.h"

#include "kernel_templates/sizes.h"

namespace dorajit::kernels {

SumLayout layout_of(const Variant& variant, const Config& config,
                    const KernelArguments& arguments) {
  return sum_layout(variant.broadcast, arguments.sizes[kRows], arguments.sizes[kCols],
                    arguments.sizes[kChannels], config[kRowsOfProgram]);
}

StageShape finish_stage(const Variant& variant, const Config& config,
                        const KernelArguments& arguments) {
  if (layout_of(variant, config, arguments).count() == 1) return {};
  return {.grid_x = divide_up(arguments.sizes[kChannels], kChannelsPerFinish),
          .threads = kFinishLanes * kChannelsPerFinish};
}

std::int64_t sum_workspace(const Variant& variant, const Sizes& sizes) {
  if (sizes[kRows] == 0 || sizes[kCols] == 0) return 0;
  return sum_workspace_bytes(
      variant.broadcast, sizes[kRows], sizes[kCols], sizes[kChannels],
      std::int64_t{variant.operation->num_sums()} * size_in_bytes(compute_type(variant)));
}

}  // namespace dorajit::kernels
