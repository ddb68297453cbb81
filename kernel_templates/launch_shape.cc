#include "kernel_templates/launch_shape.h"

#include "kernel_templates/partial_sums.h"

namespace dorajit::kernels {

LaunchShape launch_shape(const Variant& variant, const Config& config,
                         const KernelArguments& arguments) {
  LaunchShape shape{.column_programs = divide_up(arguments.num_cols, config.block_size),
                    .row_programs = divide_up(arguments.num_rows, config.rows_per_program)};
  const TemplateKind kind = template_kind(variant);
  if (kind == TemplateKind::kElementwise) return shape;
  const SumLayout layout = sum_layout(variant.broadcast, arguments.num_rows, arguments.num_cols,
                                      arguments.num_channels, config.rows_per_program);
  if (kind == TemplateKind::kRowSums) {
    shape.column_programs =
        divide_up(layout.count() * arguments.num_channels, config.rows_per_program);
    shape.row_programs = 1;
  }
  if (layout.count() != 1) {
    shape.finish_programs = divide_up(arguments.num_channels, kChannelsPerFinish);
  }
  return shape;
}

}  // namespace dorajit::kernels
