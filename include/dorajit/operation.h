/* Calling any operation by its description, making its kernel ready, and asking which one runs.
 * Part of the C interface, under the conventions of dorajit.h, which includes this file. */
#ifndef DORAJIT_OPERATION_H_
#define DORAJIT_OPERATION_H_

#include <dorajit/dorajit.h>

#ifdef __cplusplus
extern "C" {
#endif

/* A handle of an operation, for calling any operation of the library by name. Lives as long as the
 * library is loaded; the functions below may be called from any thread. */
typedef struct dorajit_operation dorajit_operation;

/* The operation of that name ("compose", "backward", ...), or NULL. */
DORAJIT_API const dorajit_operation* dorajit_operation_find(const char* name);

/* All operations: index from 0 to dorajit_operation_count() - 1; NULL for another. */
DORAJIT_API int32_t dorajit_operation_count(void);
DORAJIT_API const dorajit_operation* dorajit_operation_at(int32_t index);

/* struct_size as above. The strings live as long as the operation. */
typedef struct dorajit_operation_info {
  size_t struct_size;
  const char* name;
  const char* documentation;  /* one line: what it computes */
  int32_t num_operands;       /* tensors of a call */
  int32_t num_scalars;        /* float64 factors of a call */
  const char* const* scalars; /* num_scalars names */
  int32_t may_need_workspace; /* 0 or 1: 0 if dorajit_operation_workspace always returns 0 bytes */
} dorajit_operation_info;

DORAJIT_API dorajit_status dorajit_operation_describe(const dorajit_operation* operation,
                                                      dorajit_operation_info* info,
                                                      dorajit_error** error);

enum {
  DORAJIT_OPERAND_REQUIRED = 0,
  DORAJIT_OPERAND_OPTIONAL = 1,
  DORAJIT_OPERAND_FOR_SUM = 2 /* an input that is required with the sum, not read without it */
};

/* One of an operation's tensors. struct_size as above. */
typedef struct dorajit_operand_info {
  size_t struct_size;
  const char* name;
  const char* dimensions; /* their names: "rows, cols", or "channels" */
  int32_t is_output;      /* 0 or 1 */
  int32_t is_sum;         /* 0 or 1: an output that is a sum over each channel */
  int32_t presence;       /* DORAJIT_OPERAND_... */
  int32_t is_per_channel; /* 0 or 1: one element per channel of the first operand, like a gain */
} dorajit_operand_info;

DORAJIT_API dorajit_status dorajit_operation_operand(const dorajit_operation* operation,
                                                     int32_t index, dorajit_operand_info* info,
                                                     dorajit_error** error);

/* The workspace size, in bytes, that a call with these tensors needs; sufficient for every config,
 * often 0. tensors: as for dorajit_launch, complete; only their shapes, strides, element types and
 * devices are read, and `data` may be NULL. On failure *bytes is not modified. */
DORAJIT_API dorajit_status dorajit_operation_workspace(const dorajit_operation* operation,
                                                       const DLTensor* const* tensors,
                                                       int32_t num_tensors, int64_t* bytes,
                                                       dorajit_error** error);

/* Calls an operation, under the rules of its named function, or under those below.
 *
 * tensors: in the order of its operands (of backward: d_out, inner, gain, d_lora, d_base, d_gain),
 * NULL for those that are left out. scalars: all of them, in host memory. workspace: as for
 * dorajit_backward, of dorajit_operation_workspace() bytes; NULL with 0 bytes if it needs none.
 * DORAJIT_INVALID_ARGUMENT for a wrong number of tensors or scalars.
 *
 * These have no function of their own. Tensors stand in their order, outputs after the arrow; those
 * with a ? may be NULL, but not all outputs. Outputs overlap nothing, except where it is said.
 *
 * magnitude_backward: d_out, inner?, gain, divisor? -> d_lora?, d_result?, d_magnitude?; scale
 *   dorajit_residual_backward for gain = magnitude / divisor, whose sums it divides: d_magnitude =
 *   d_gain / divisor, the gradient of a magnitude with a norm that is a constant. divisor: as gain,
 *   needed with d_magnitude. Workspace for d_magnitude, as large as that of d_gain.
 *
 * weight_norm: weight [out, in], lora_A [rank, in], lora_B [out, rank], magnitude? [out] ->
 *   norm? [out], norm_square? [out], gain? [out], divisor? [out]; scale
 *   The norms of the rows of weight + scale * lora_B lora_A, which is never in memory
 *   (arXiv:2603.22276, section 2), their squares, divisor = max(norm, eps) with the eps and the
 *   rounding of the magnitude's type, and gain = magnitude / divisor. rank is 0 to 1024. magnitude
 *   is needed for gain and read for nothing else; divisor comes with gain alone. Rows of weight,
 *   lora_A and lora_B may have any stride. Usually needs a workspace.
 *
 * compose_low_rank: low [rows, rank], lora_B [cols, rank], result [rows, cols], gain [cols],
 *   bias? [cols] -> out [rows, cols], inner? [rows, cols]; scale
 *   dorajit_compose_residual with lora = low lora_B^T, which is never in memory. low and lora_B
 *   have one 16-bit type; on CUDA from compute capability 8.0. out and inner may each be exactly
 *   result, but not the same tensor. No workspace.
 *
 * gated_silu, gated_gelu, gated_gelu_tanh: gate, up -> out
 *   out = act(gate) * up, with act(gate) rounded to the type of gate, which is that of up. gelu is
 *   that of erf, gelu_tanh that of tanh. [..., num_cols]. out may be exactly gate or up.
 *
 * gated_silu_backward, gated_gelu_backward, gated_gelu_tanh_backward: d_out, gate, up, gate_gain,
 *   up_gain, gate_magnitude?, up_magnitude? -> out?, d_gate?, d_up?, d_gate_magnitude?,
 *   d_up_magnitude?
 *   The backward pass of down(act(gate(x)) * up(x)) between the products of its layers, where d_out
 *   is the gradient of act(gate) * up: out is that product again, d_gate = gate_gain * (d_out * up
 * * act'(gate)) and d_up = up_gain * (d_out * act(gate)) go on to the layers' own products, and
 *   d_gate_magnitude = (sum of d_gate / gate_gain * gate) / gate_magnitude, and so for up, for
 *   layers without a bias; 0 where the magnitude is 0. Gains and magnitudes: as gain, two each of
 *   one type. Both sums come together, with both magnitudes. out, d_gate and d_up may each be
 *   exactly one of d_out, gate and up. Workspace for the sums. */
DORAJIT_API dorajit_status dorajit_launch(dorajit_engine* engine, void* stream,
                                          const dorajit_operation* operation,
                                          const DLTensor* const* tensors, int32_t num_tensors,
                                          const double* scalars, int32_t num_scalars,
                                          void* workspace, int64_t workspace_bytes,
                                          dorajit_error** error);

/* Compiles, tunes (if the policy allows) and loads the kernel that a call of the operation with
 * such tensors would launch: before a CUDA graph is captured, or work that must not wait for it.
 *
 * tensors and scalars: as for dorajit_launch. Only the tensors' shapes, strides, element types,
 * devices and alignments are read; `data` may be NULL, which stands for memory aligned to 16 bytes.
 * NULL and 0 stand for the scalars of the library's operations, which are not part of a problem.
 *
 * A later call launches without delay if it has the same element types, the same tensors present,
 * the same num_cols and alignment, and the same number of rows rounded up to a power of two. In a
 * captured stream, any call with those element types and tensors and at least that alignment can
 * launch.
 *
 * Returns the status that the call itself would return for the tensors, except for null, misaligned
 * and overlapping memory; DORAJIT_INVALID_ARGUMENT for a wrong number of tensors or scalars. */
DORAJIT_API dorajit_status dorajit_warmup(dorajit_engine* engine,
                                          const dorajit_operation* operation,
                                          const DLTensor* const* tensors, int32_t num_tensors,
                                          const double* scalars, int32_t num_scalars,
                                          dorajit_error** error);

/* The config that calls of an operation with such tensors currently launch. struct_size as above.
 * The strings live as long as the engine; all are empty until a call or dorajit_warmup has prepared
 * the problem of such tensors. */
typedef struct dorajit_explanation {
  size_t struct_size;
  const char* problem; /* the problem key, as in `dorajit show` */
  const char* config;  /* the config, as in `dorajit explain` */
  /* Where the config comes from: "locked" (the lock file), "pinned" (`dorajit pin`), "tuned" (by
   * this engine), "user database", "shipped database", "nearest shape", "nearest device" or
   * "default" (docs/tuning.md). */
  const char* source;
  const char* fingerprint; /* of the device, as in the tuning database */
  DLDevice device;         /* kDLCPU or kDLCUDA, and its number */
  int64_t renewals;        /* how often a winner that arrived later changed config or source */
} dorajit_explanation;

/* Fills *explanation; tensors and scalars as for dorajit_warmup. Does not compile, tune or wait. A
 * winner that arrives later from dorajitd changes the result. */
DORAJIT_API dorajit_status dorajit_explain(dorajit_engine* engine,
                                           const dorajit_operation* operation,
                                           const DLTensor* const* tensors, int32_t num_tensors,
                                           const double* scalars, int32_t num_scalars,
                                           dorajit_explanation* explanation, dorajit_error** error);

/* The same for all problems that an engine has prepared on any device, in that order: count `index`
 * from 0 until the strings are empty. A problem keeps its index. */
DORAJIT_API dorajit_status dorajit_explain_at(const dorajit_engine* engine, int64_t index,
                                              dorajit_explanation* explanation,
                                              dorajit_error** error);

#ifdef __cplusplus
}
#endif

#endif /* DORAJIT_OPERATION_H_ */
