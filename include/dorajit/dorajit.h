/* dorajit: fused DoRA kernels, compiled and tuned for the device at hand. The C interface.
 *
 * Conventions, for every function here:
 *
 * - A function that can fail returns a dorajit_status and takes, last, a `dorajit_error** error`.
 *   With NULL there the message is dropped. Otherwise *error is set to NULL on success and to an
 *   error that the caller destroys on failure.
 * - Handles are opaque. Who creates one destroys it; destroying NULL does nothing.
 * - An engine may be used by any number of threads at once, and in a forked child whatever they
 *   were doing then. An error belongs to one thread.
 * - Strings are UTF-8 and end in NUL. Those that a function returns live as long as the handle that
 *   they came from.
 * - Tensors are DLPack DLTensors and are borrowed for the call; nothing in them is changed but the
 *   elements of outputs. Memory stays the caller's. On CUDA it must stay valid until the stream has
 *   run the work.
 * - Tensors have at least one dimension. The last one is contiguous; all before it are flattened
 *   into rows, which lie a constant stride apart (at least num_cols elements). Any number of
 *   columns and any address that is aligned to an element works. Sizes are 64-bit. A tensor may
 *   span at most 2^47 bytes, gaps between rows included, which is all that a process can address:
 *   beyond that every function returns DORAJIT_INVALID_ARGUMENT. A tensor without elements makes
 *   the call a no-op.
 * - A gain has one element per channel and is broadcast as NumPy and PyTorch do, aligned at the
 *   last dimensions. With [num_cols] or [1, ..., 1, num_cols] the channels are the columns. With
 *   [C, 1, ...] or [1, C, 1, ...], as convolutions have it over [N, C, H, W], they are a
 *   dimension of C before the columns: that one and all before it are flattened into rows, row r
 *   belongs to channel r % C, and all dimensions after it are flattened into columns, which must
 *   be contiguous together. With [1, 1, ...] there is one channel for all. A magnitude that is
 *   kept as [out, 1] has its channels along the rows by this rule. Over an [R, R] matrix no size
 *   tells that from a mistake, so the first [R, 1] over [R, R] of a process logs a warning. Pass
 *   [R] or [1, R] for one element per column; for one per row, pass [1, R, 1] over [1, R, R], which
 *   is never warned of.
 * - Elements are float32, float16, bfloat16 or float64. Operands may mix the first three freely;
 *   float64 goes only with float64. Arithmetic is done in float32 (float64), every operation
 *   rounded once and never contracted, every result rounded once to nearest even. The bits of a
 *   result depend on neither the device, its tuning, nor on working in place.
 * - Status codes, struct layouts and names are frozen: later versions only add.
 */
#ifndef DORAJIT_DORAJIT_H_
#define DORAJIT_DORAJIT_H_

#include <dlpack/dlpack.h>
#include <stddef.h>
#include <stdint.h>

/* The version of this header; dorajit_version() has that of the library that is loaded. */
#define DORAJIT_VERSION_MAJOR 0
#define DORAJIT_VERSION_MINOR 1
#define DORAJIT_VERSION_PATCH 0
#define DORAJIT_VERSION_NUMBER \
  (DORAJIT_VERSION_MAJOR * 10000 + DORAJIT_VERSION_MINOR * 100 + DORAJIT_VERSION_PATCH)

#if defined(__GNUC__)
#define DORAJIT_API __attribute__((visibility("default")))
#else
#define DORAJIT_API
#endif

#ifdef __cplusplus
extern "C" {
#endif

typedef int32_t dorajit_status;

enum {
  DORAJIT_OK = 0,
  DORAJIT_INVALID_ARGUMENT = 1, /* an argument is wrong by itself; the message names it */
  DORAJIT_UNSUPPORTED = 2,      /* well formed, but no kernel serves it */
  DORAJIT_WRONG_DEVICE = 3,     /* tensors of different devices, or memory of another device */
  DORAJIT_NO_DRIVER = 4,        /* the NVIDIA driver is missing or too old */
  DORAJIT_NO_COMPILER = 5,      /* NVRTC or the host compiler is missing or too old */
  DORAJIT_COMPILE_ERROR = 6,    /* dorajit_error_log() has the compiler's whole log */
  DORAJIT_DRIVER_ERROR = 7,     /* a driver call failed; the message names it and its code */
  DORAJIT_OUT_OF_MEMORY = 8,
  DORAJIT_CAPTURE_UNSAFE = 9, /* the stream is being captured and no kernel is loaded yet */
  DORAJIT_IO_ERROR = 10,
  DORAJIT_INTERNAL = 11 /* a defect of dorajit; please report the message */
};

typedef struct dorajit_engine dorajit_engine;
typedef struct dorajit_error dorajit_error;

/* "INVALID_ARGUMENT" and so on; "UNKNOWN" for other numbers. Static. */
DORAJIT_API const char* dorajit_status_name(dorajit_status status);

/* DORAJIT_VERSION_NUMBER of the library: major * 10000 + minor * 100 + patch. */
DORAJIT_API int32_t dorajit_version(void);

/* Of a NULL error these are DORAJIT_OK and "". */
DORAJIT_API dorajit_status dorajit_error_status(const dorajit_error* error);
/* What went wrong, naming the argument, call or file, and what to do. Never NULL. */
DORAJIT_API const char* dorajit_error_message(const dorajit_error* error);
/* The compiler's log for DORAJIT_COMPILE_ERROR, else "". Never NULL. */
DORAJIT_API const char* dorajit_error_log(const dorajit_error* error);
DORAJIT_API void dorajit_error_destroy(dorajit_error* error);

enum {
  DORAJIT_TUNE_FROM_ENVIRONMENT = 0, /* DORAJIT_TUNE, else automatic */
  DORAJIT_TUNE_FIRST_USE = 1,        /* a problem without a winner is tuned by its first call */
  DORAJIT_TUNE_OFF = 2,              /* nothing is ever tuned; winners that are known are used */
  DORAJIT_TUNE_DAEMON = 3,           /* dorajitd tunes; its winners are used when they arrive */
  DORAJIT_TUNE_AUTOMATIC = 4         /* DAEMON where one listens, else FIRST_USE */
};

/* Zero-initialise, then set struct_size = sizeof(dorajit_engine_options) and what should differ
 * from the environment (docs/environment.md). Strings are copied. */
typedef struct dorajit_engine_options {
  size_t struct_size;
  const char* cache_dir; /* absolute; NULL: from the environment; "": keep nothing on disk */
  int32_t tune_policy;   /* DORAJIT_TUNE_... */
  double tune_seconds;   /* per problem; 0: from the environment, else 2 */
  int64_t scratch_bytes; /* for tuning; 0: from the environment, else min(2 GiB, free / 4) */
  /* 1: the caller guarantees that data lies on the device that its DLTensor names, as a framework
   * does, and the driver is not asked with each call, which takes it some 0.2 us for each operand.
   * Data that lies elsewhere is then undefined behaviour instead of DORAJIT_WRONG_DEVICE. */
  int64_t trust_device_pointers;
  /* At most so many threads run a kernel on CPU tensors, the calling thread among them; 0: as many
   * as the process has processors (its affinity and its control group), up to 64, which more than
   * that are cut to in any case. Results are the same bits. Winners are kept per number of threads,
   * and dorajitd does not tune CPU problems for an engine that limits them. Compilers that run
   * while a problem is tuned are not limited. */
  int64_t cpu_threads;
} dorajit_engine_options;

/* Creates an engine. `options` may be NULL. Neither a missing driver nor an unusable cache
 * directory is an error: the former is reported by the first call on CUDA tensors, the latter is
 * logged once and nothing is kept. DORAJIT_INVALID_ARGUMENT for an environment variable with an
 * unknown value. */
DORAJIT_API dorajit_status dorajit_engine_create(const dorajit_engine_options* options,
                                                 dorajit_engine** engine, dorajit_error** error);

/* Waits for nothing: work on CUDA streams must have finished, and CUDA graphs that captured calls
 * of this engine must not be launched any more. */
DORAJIT_API void dorajit_engine_destroy(dorajit_engine* engine);

/* out = (gain - 1) * base + gain * (scale * lora)
 *
 * The DoRA composition in its numerically stable form (arXiv:2603.22276, section 3.1, appendix C).
 *
 * lora, base, out: [..., num_cols], the same shape. gain: magnitude / max(weight norm, eps), one
 * element per channel, broadcast as the conventions above say. out may be exactly lora
 * or exactly base (same address, type and strides) and may overlap nothing else. scale may be any
 * double, rounded to the compute type; non-finite values propagate.
 *
 * `stream` is a CUstream or cudaStream_t (NULL: the legacy default stream) of the tensors' device.
 * The work is enqueued on it and not waited for. For CPU tensors it is ignored and the work is done
 * on return.
 *
 * The first call of a problem (element types, num_cols, num_rows up to the next power of two,
 * alignment) may compile and, by policy, tune. Later calls only launch. On failure nothing is
 * written. */
DORAJIT_API dorajit_status dorajit_compose(dorajit_engine* engine, void* stream,
                                           const DLTensor* lora, const DLTensor* base,
                                           const DLTensor* gain, double scale, const DLTensor* out,
                                           dorajit_error** error);

/* out = (gain - 1) * base + gain * (scale * lora),  inner = scale * lora + base
 *
 * compose and, from the same read of its inputs, what backward needs for the gradient of the gain
 * (arXiv:2603.22276, section 4, tier 1). out has the very bits of dorajit_compose.
 *
 * inner: as out, of its own element type. out and inner may each be exactly lora or base, but not
 * the same one. */
DORAJIT_API dorajit_status dorajit_compose_inner(dorajit_engine* engine, void* stream,
                                                 const DLTensor* lora, const DLTensor* base,
                                                 const DLTensor* gain, double scale,
                                                 const DLTensor* out, const DLTensor* inner,
                                                 dorajit_error** error);

/* Bytes of workspace that dorajit_backward needs for d_gain: a function of the shapes and of
 * whether elements are float64, whatever the device (docs/numerics.md); at most 1% of d_out and
 * inner together, and 0 for up to 256 rows when the channels are the columns. Memory is not looked
 * at and may be null. On failure *bytes is left alone. */
DORAJIT_API dorajit_status dorajit_backward_workspace(const DLTensor* d_out, const DLTensor* gain,
                                                      int64_t* bytes, dorajit_error** error);

/* The same for dorajit_residual_backward. */
DORAJIT_API dorajit_status dorajit_residual_backward_workspace(const DLTensor* d_out,
                                                               const DLTensor* gain, int64_t* bytes,
                                                               dorajit_error** error);

/* The gradients of compose (arXiv:2603.22276, section 3.2, appendix C.2):
 *
 *   d_lora = (gain * scale) * d_out,  d_base = (gain - 1) * d_out,
 *   d_gain = sum of inner * d_out over all elements of a channel
 *
 * d_lora, d_base: as d_out. d_gain: as many contiguous elements as gain. Any of the three may be
 * NULL, but not all: what is not wanted is not computed. inner, as compose_inner wrote it, is
 * needed for d_gain and is neither needed nor read without it. d_lora and d_base may be exactly
 * d_out or inner, but not the same one; d_gain and workspace overlap nothing.
 *
 * d_gain is summed in float32 (float64) along one fixed tree (docs/numerics.md): its bits depend on
 * the inputs alone. Without elements it is zero.
 *
 * workspace: memory of the tensors' device, aligned to 16 bytes, of at least the bytes that
 * dorajit_backward_workspace names; it may be NULL when those are 0 or d_gain is NULL. Its contents
 * before and after mean nothing. It must stay valid, and no other call may use it, until the stream
 * has run the work. */
DORAJIT_API dorajit_status dorajit_backward(dorajit_engine* engine, void* stream,
                                            const DLTensor* d_out, const DLTensor* inner,
                                            const DLTensor* gain, double scale,
                                            const DLTensor* d_lora, const DLTensor* d_base,
                                            const DLTensor* d_gain, void* workspace,
                                            int64_t workspace_bytes, dorajit_error** error);

/* out = result + ((gain - 1) * base + gain * (scale * lora)),  base = result - bias
 *
 * What a layer with an adapter gives: its base result plus the composition over that result without
 * the base layer's bias (arXiv:2603.22276, appendix A, where the caller adds the two), in one pass.
 *
 * lora, result, out: as lora, base and out of dorajit_compose. bias: as gain, as many elements;
 * NULL where result holds none. inner: as out, scale * lora + base, which dorajit_residual_backward
 * needs for the gradient of the gain; NULL where it is not wanted. out and inner may each be
 * exactly lora or result, but not the same one. */
DORAJIT_API dorajit_status dorajit_compose_residual(dorajit_engine* engine, void* stream,
                                                    const DLTensor* lora, const DLTensor* result,
                                                    const DLTensor* gain, const DLTensor* bias,
                                                    double scale, const DLTensor* out,
                                                    const DLTensor* inner, dorajit_error** error);

/* The gradients of compose_residual:
 *
 *   d_lora = (gain * scale) * d_out,  d_result = gain * d_out,
 *   d_gain = sum of inner * d_out over all elements of a channel
 *
 * Otherwise as dorajit_backward, with d_result in the place of d_base, and
 * dorajit_residual_backward_workspace for the workspace. The gradient of a bias would be the sum of
 * (1 - gain) * d_out, and is not computed. */
DORAJIT_API dorajit_status dorajit_residual_backward(
    dorajit_engine* engine, void* stream, const DLTensor* d_out, const DLTensor* inner,
    const DLTensor* gain, double scale, const DLTensor* d_lora, const DLTensor* d_result,
    const DLTensor* d_gain, void* workspace, int64_t workspace_bytes, dorajit_error** error);

/* norm = sqrt(max((w_norm_sq + 2 scale * cross) + scale^2 * ba_norm_sq, 0))
 *
 * The row norms of W + scale B A from their factored terms (arXiv:2603.22276, section 2, appendix
 * C.3), in the order and with the roundings of PyTorch's four kernels; 2 scale and scale^2 are
 * formed in double. NaN passes through the maximum; the square root is correctly rounded.
 *
 * All four tensors have the same shape and are contiguous. norm may be exactly one of the others.
 */
DORAJIT_API dorajit_status dorajit_norm_assembly(dorajit_engine* engine, void* stream,
                                                 const DLTensor* w_norm_sq, const DLTensor* cross,
                                                 const DLTensor* ba_norm_sq, double scale,
                                                 const DLTensor* norm, dorajit_error** error);

/* An operation as an object: what the functions above do by name, for any operation of the library.
 * Lives as long as the library is loaded; the functions below may be called from any thread. */
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
  const char* documentation;  /* what it computes, in one line */
  int32_t num_operands;       /* tensors of a call */
  int32_t num_scalars;        /* float64 factors of a call */
  const char* const* scalars; /* their names, num_scalars of them */
  int32_t may_need_workspace; /* 0 or 1: 0 where dorajit_operation_workspace always says 0 bytes */
} dorajit_operation_info;

DORAJIT_API dorajit_status dorajit_operation_describe(const dorajit_operation* operation,
                                                      dorajit_operation_info* info,
                                                      dorajit_error** error);

enum {
  DORAJIT_OPERAND_REQUIRED = 0,
  DORAJIT_OPERAND_OPTIONAL = 1,
  DORAJIT_OPERAND_FOR_SUM = 2 /* an input that is required with the sum and not read without it */
};

/* One of an operation's tensors. struct_size as above. */
typedef struct dorajit_operand_info {
  size_t struct_size;
  const char* name;
  const char* dimensions; /* their names: "rows, cols", or "channels" */
  int32_t is_output;      /* 0 or 1 */
  int32_t is_sum;         /* 0 or 1: an output with the sum over a channel */
  int32_t presence;       /* DORAJIT_OPERAND_... */
  int32_t is_per_channel; /* 0 or 1: one element per channel of the first operand, as a gain has */
} dorajit_operand_info;

DORAJIT_API dorajit_status dorajit_operation_operand(const dorajit_operation* operation,
                                                     int32_t index, dorajit_operand_info* info,
                                                     dorajit_error** error);

/* Bytes of workspace that a call with these tensors needs, which serve every config; often 0.
 * tensors as for dorajit_launch, all that the call needs; of them only shapes, strides, element
 * types and devices are looked at, and `data` may be NULL. On failure *bytes is left alone. */
DORAJIT_API dorajit_status dorajit_operation_workspace(const dorajit_operation* operation,
                                                       const DLTensor* const* tensors,
                                                       int32_t num_tensors, int64_t* bytes,
                                                       dorajit_error** error);

/* Calls an operation, with the rules of its own function.
 *
 * tensors: in the order of its operands, NULL for those that are left out. scalars: as many as it
 * has, in host memory. workspace: as for dorajit_backward; NULL with 0 bytes where it needs none.
 * DORAJIT_INVALID_ARGUMENT for another number of tensors or scalars. */
DORAJIT_API dorajit_status dorajit_launch(dorajit_engine* engine, void* stream,
                                          const dorajit_operation* operation,
                                          const DLTensor* const* tensors, int32_t num_tensors,
                                          const double* scalars, int32_t num_scalars,
                                          void* workspace, int64_t workspace_bytes,
                                          dorajit_error** error);

/* Makes ready what a call of an operation with such tensors would launch: compiles it, tunes it if
 * the policy says so, and loads it. For before a CUDA graph is captured, and before work that must
 * not wait for a compiler.
 *
 * tensors: in the order of its operands (of backward: d_out, inner, gain, d_lora, d_base, d_gain),
 * NULL for those that the calls will leave out. Only
 * their shapes, strides, element types, devices and alignments are looked at; `data` may be NULL,
 * which stands for memory that is aligned to 16 bytes. Nothing of them is read or written.
 *
 * A later call waits for nothing if its element types, which of its tensors there are, num_cols and
 * alignment are the same, and its number of rows, rounded up to a power of two. In a captured
 * stream any call of those element types and tensors with at least that alignment does.
 *
 * Returns what the call itself would return for the tensors, but for null, misaligned and
 * overlapping memory; DORAJIT_INVALID_ARGUMENT for another number of tensors. */
DORAJIT_API dorajit_status dorajit_warmup(dorajit_engine* engine,
                                          const dorajit_operation* operation,
                                          const DLTensor* const* tensors, int32_t num_tensors,
                                          dorajit_error** error);

/* What calls of an operation with such tensors launch by now. struct_size as above. The strings
 * live as long as the engine; all are empty while neither a call nor dorajit_warmup has made such
 * tensors' problem ready. */
typedef struct dorajit_explanation {
  size_t struct_size;
  const char* problem; /* what is tuned, as `dorajit show` lists it */
  const char* config;  /* what runs, as `dorajit explain` prints it */
  /* Where the config comes from: "locked" (the lock file), "tuned" (by this engine), "user
   * database", "shipped database", "nearest shape", "nearest device" or "default"
   * (docs/tuning.md). */
  const char* source;
  const char* fingerprint; /* of the device that it runs on, as the tuning database calls it */
  DLDevice device;         /* kDLCPU or kDLCUDA, and its number */
  int64_t renewals;        /* how often a winner that arrived later changed config or source */
} dorajit_explanation;

/* Fills *explanation; tensors as for dorajit_warmup. Compiles, tunes and waits for nothing. A
 * winner that arrives later, from dorajitd, changes the answer. */
DORAJIT_API dorajit_status dorajit_explain(dorajit_engine* engine,
                                           const dorajit_operation* operation,
                                           const DLTensor* const* tensors, int32_t num_tensors,
                                           dorajit_explanation* explanation, dorajit_error** error);

/* The same for all problems that an engine has made ready on any device, in that order: index from
 * 0 until the strings are empty. A problem keeps its index. */
DORAJIT_API dorajit_status dorajit_explain_at(const dorajit_engine* engine, int64_t index,
                                              dorajit_explanation* explanation,
                                              dorajit_error** error);

/* What an engine has done so far. struct_size as above; fields beyond the caller's are left out. */
typedef struct dorajit_statistics {
  size_t struct_size;
  int64_t launches;        /* calls that launched a kernel */
  int64_t compilations;    /* compiler runs that produced code */
  int64_t artifact_hits;   /* compiled kernels read from the cache directory */
  int64_t builtin_kernels; /* kernels served from the library itself (CPU without a compiler) */
  int64_t tuned_problems;
  int64_t trials;        /* configs measured */
  int64_t renewed_plans; /* problems that changed to a winner that arrived after their first call */
} dorajit_statistics;

DORAJIT_API dorajit_status dorajit_engine_statistics(const dorajit_engine* engine,
                                                     dorajit_statistics* statistics,
                                                     dorajit_error** error);

enum {
  DORAJIT_LOG_ERROR = 1,
  DORAJIT_LOG_WARNING = 2,
  DORAJIT_LOG_INFO = 3,
  DORAJIT_LOG_DEBUG = 4
};

/* Receives whole lines, from any thread, one at a time. Must not call dorajit, and no exception may
 * leave it. */
typedef void (*dorajit_log_sink)(int32_t level, const char* message, void* context);

/* Where the process's messages go; NULL restores standard error. When this returns, the sink that
 * was set before runs no more and its `context` may go. */
DORAJIT_API void dorajit_set_log_sink(dorajit_log_sink sink, void* context);

#ifdef __cplusplus
}
#endif

#endif /* DORAJIT_DORAJIT_H_ */
