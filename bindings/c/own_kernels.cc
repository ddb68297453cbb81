// Kernels of one's own as operations of the C ABI.
#include "bindings/c/error_handle.h"
#include "bindings/c/operation_handle.h"
#include "dorajit/own_kernel.h"
#include "own_kernels/kernel.h"

namespace dorajit::bindings {
namespace {

Status create(const char* json, const dorajit_operation** kernel) {
  constexpr std::string_view kFunction = "kernel_create";
  DORAJIT_TRY(require(kernel, kFunction, "kernel", "pass where the new operation goes"));
  *kernel = nullptr;
  DORAJIT_TRY(require(json, kFunction, "json", "pass a description"));
  DORAJIT_ASSIGN(const kernels::Operation* made, own_kernels::make_kernel(json));
  *kernel = to_handle(made);
  return {};
}

}  // namespace
}  // namespace dorajit::bindings

dorajit_status dorajit_kernel_create(const char* json, const dorajit_operation** kernel,
                                     dorajit_error** error) {
  return dorajit::bindings::guarded(error, [&] { return dorajit::bindings::create(json, kernel); });
}
