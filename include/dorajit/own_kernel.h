/* Kernels of one's own: CUDA C++ that dorajit compiles, tunes and launches as it does its own. The
 * conventions of dorajit.h hold. docs/own_kernels.md has a first kernel, docs/own_kernel_format.md
 * what a description may say. */
#ifndef DORAJIT_OWN_KERNEL_H_
#define DORAJIT_OWN_KERNEL_H_

#include <dorajit/dorajit.h>

#ifdef __cplusplus
extern "C" {
#endif

/* Makes an operation of a description, which is JSON. It lives as long as the library is loaded,
 * and any engine serves it; the same description gives the same operation again. Nothing is
 * compiled. DORAJIT_INVALID_ARGUMENT for a description that cannot be served; the message names the
 * field. */
DORAJIT_API dorajit_status dorajit_kernel_create(const char* json, const dorajit_operation** kernel,
                                                 dorajit_error** error);

/* It is called by dorajit_launch and made ready by dorajit_warmup.
 *
 * tensors: in the order of the description's arguments, all of them: CUDA tensors of one device, of
 * exactly the dimensions and strides that the description names, contiguous where it names none,
 * and aligned to 16 bytes, or to their elements if they stand in its "unaligned". Elements may
 * also be integers of 8, 16, 32 and 64 bits, bool (DLPack type code 6, 8 bits), float8_e4m3fn
 * (code 10) or float8_e5m2 (code 12). An optional tensor may be null. An "out" or "inout" tensor
 * overlaps no other. scalars: in that order, too; an integer is given as a double, which holds it
 * exactly up to 2^53, and is part of the problem, unless it is a stride. Sizes and strides that
 * scalars and tensors both have must agree.
 *
 * A description with a "workspace" needs memory of dorajit_kernel_workspace bytes, aligned to 16
 * bytes, in each call; the launches of a call use it, and nothing is kept there between calls.
 *
 * DORAJIT_INVALID_ARGUMENT also where the grid, the block, the cluster, the shared memory or a
 * tensor map of the default config is out of range for these sizes and this device, or its
 * constraint does not hold. DORAJIT_COMPILE_ERROR with the compiler's whole log, by the lines of
 * the description's source. */

/* Writes the workspace size, in bytes, of a call of a kernel; 0 for a description without one.
 * tensors and scalars: as for dorajit_warmup. On failure *bytes is not modified. */
DORAJIT_API dorajit_status dorajit_kernel_workspace(const dorajit_operation* kernel,
                                                    const DLTensor* const* tensors,
                                                    int32_t num_tensors, const double* scalars,
                                                    int32_t num_scalars, int64_t* bytes,
                                                    dorajit_error** error);

/* Writes the problem key of a call of any operation, as `dorajit show` prints it, or "" for a call
 * that launches nothing. No device is used: a kernel for the problem can be compiled elsewhere.
 *
 * tensors and scalars: as for dorajit_warmup. text: memory for `capacity` characters with the
 * terminating null character, which 512 are enough for. On failure *text is not modified. */
DORAJIT_API dorajit_status dorajit_problem(const dorajit_operation* operation,
                                           const DLTensor* const* tensors, int32_t num_tensors,
                                           const double* scalars, int32_t num_scalars, char* text,
                                           size_t capacity, dorajit_error** error);

#ifdef __cplusplus
}
#endif

#endif /* DORAJIT_OWN_KERNEL_H_ */
