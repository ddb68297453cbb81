// How many programs a launch has, which follows from the variant's template, the config and the
// sizes.
#pragma once

#include "kernel_templates/arguments.h"
#include "kernel_templates/config.h"
#include "kernel_templates/registry.h"

namespace dorajit::kernels {

struct LaunchShape {
  long long column_programs = 0;  // side by side along the columns, numbered fastest
  long long row_programs = 0;
  long long finish_programs = 0;  // of the second stage; 0 where there is none

  [[nodiscard]] long long programs() const { return column_programs * row_programs; }
};

LaunchShape launch_shape(const Variant& variant, const Config& config,
                         const KernelArguments& arguments);

}  // namespace dorajit::kernels
