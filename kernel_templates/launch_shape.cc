#include "kernel_templates/launch_shape.h"

#include "kernel_templates/template.h"

namespace dorajit::kernels {

LaunchShape launch_shape(const Variant& variant, const Config& config,
                         const LaunchArguments& arguments) {
  return template_of(variant).launch_shape(variant, config, arguments);
}

}  // namespace dorajit::kernels
