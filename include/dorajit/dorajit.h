/* dorajit: fused DoRA kernels, compiled and tuned for the device in use. The C interface.
 *
 * Conventions, for every function here:
 *
 * - A function that can fail returns a dorajit_status and takes, last, a `dorajit_error** error`.
 *   If `error` is NULL, the message is discarded. Otherwise *error is set to NULL on success, and
 *   on failure to an error that the caller must destroy.
 * - Handles are opaque. The caller that creates one must destroy it; destroying NULL does nothing.
 * - Any number of threads may use an engine at once. A forked child may use it, too, regardless of
 *   what other threads were doing during the fork. An error must be used by one thread only.
 * - Strings are UTF-8 and null-terminated. Returned strings live as long as their handle.
 * - Tensors are DLPack DLTensors and are borrowed for the call; only the elements of outputs are
 *   modified. The caller keeps ownership of the memory. On CUDA it must stay valid until the stream
 *   has run the work.
 * - Tensors have at least one dimension. The last dimension is contiguous; all other dimensions are
 *   flattened into rows with a constant stride (at least num_cols elements). Any number of columns
 *   and any address that is aligned to an element is supported. Sizes are 64-bit. A tensor may span
 *   at most 2^47 bytes, including gaps between rows, which is all that a process can address:
 *   beyond that, every function returns DORAJIT_INVALID_ARGUMENT. A tensor without elements makes
 *   the call a no-op.
 * - A gain has one element per channel and is broadcast as NumPy and PyTorch do, aligned at the
 *   last dimensions. With [num_cols] or [1, ..., 1, num_cols] the channels are the columns. With
 *   [C, 1, ...] or [1, C, 1, ...], as in convolutions over [N, C, H, W], the channels are a
 *   dimension of size C before the columns: that dimension and all before it are flattened into
 *   rows, row r belongs to channel r % C, and all dimensions after it are flattened into columns,
 *   which must be contiguous together. With [1, 1, ...] there is one channel. By this rule, a
 *   magnitude that is stored as [out, 1] has its channels along the rows. Over an [R, R] matrix the
 *   sizes cannot show whether that is a mistake, so the first [R, 1] over [R, R] of a process logs
 *   a warning. Pass [R] or [1, R] for one element per column; for one per row, pass [1, R, 1] over
 *   [1, R, R], which never logs a warning.
 * - Elements are float32, float16, bfloat16 or float64. Operands may mix the first three freely,
 *   but for the factors of compose_low_rank; float64 goes only with float64. Arithmetic is done in
 *   float32 (float64): every operation is rounded once and never contracted, and every result is
 *   rounded once to nearest even. The bits of a result do not depend on the device, on tuning or on
 *   working in place. weight_norm and compose_low_rank multiply on tensor cores: their results are
 *   within a bound, and their bits depend on the device's architecture (docs/numerics.md).
 * - Status codes, struct layouts and names are frozen: later versions only add.
 */
#ifndef DORAJIT_DORAJIT_H_
#define DORAJIT_DORAJIT_H_

#include <dlpack/dlpack.h>
#include <stddef.h>
#include <stdint.h>

/* The version of this header; dorajit_version() returns that of the loaded library. */
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
  DORAJIT_UNSUPPORTED = 2,      /* well formed, but no kernel supports it */
  DORAJIT_WRONG_DEVICE = 3,     /* tensors of different devices, or memory of another device */
  DORAJIT_NO_DRIVER = 4,        /* the NVIDIA driver is missing or too old */
  DORAJIT_NO_COMPILER = 5,      /* NVRTC or the host compiler is missing or too old */
  DORAJIT_COMPILE_ERROR = 6,    /* dorajit_error_log() has the compiler's complete log */
  DORAJIT_DRIVER_ERROR = 7,     /* a driver call failed; the message names it and its code */
  DORAJIT_OUT_OF_MEMORY = 8,
  DORAJIT_CAPTURE_UNSAFE = 9, /* the stream is being captured and no kernel is loaded yet */
  DORAJIT_IO_ERROR = 10,
  DORAJIT_INTERNAL = 11 /* internal error of dorajit; please report the message */
};

typedef struct dorajit_engine dorajit_engine;
typedef struct dorajit_error dorajit_error;

/* "INVALID_ARGUMENT" and so on; "UNKNOWN" for other numbers. Static. */
DORAJIT_API const char* dorajit_status_name(dorajit_status status);

/* DORAJIT_VERSION_NUMBER of the library: major * 10000 + minor * 100 + patch. */
DORAJIT_API int32_t dorajit_version(void);

/* For a NULL error the status is DORAJIT_OK, and message and log are "". */
DORAJIT_API dorajit_status dorajit_error_status(const dorajit_error* error);
/* What went wrong, naming the argument, call or file, and what to do. Never NULL. */
DORAJIT_API const char* dorajit_error_message(const dorajit_error* error);
/* The compiler's log for DORAJIT_COMPILE_ERROR, else "". Never NULL. */
DORAJIT_API const char* dorajit_error_log(const dorajit_error* error);
DORAJIT_API void dorajit_error_destroy(dorajit_error* error);

enum {
  DORAJIT_TUNE_FROM_ENVIRONMENT = 0, /* DORAJIT_TUNE, else automatic */
  DORAJIT_TUNE_FIRST_USE = 1,        /* a problem without a winner is tuned by its first call */
  DORAJIT_TUNE_OFF = 2,              /* nothing is tuned; known winners are used */
  DORAJIT_TUNE_DAEMON = 3,           /* dorajitd tunes; winners are used when they arrive */
  DORAJIT_TUNE_AUTOMATIC = 4         /* DAEMON if a daemon is running, else FIRST_USE */
};

/* Zero-initialise, then set struct_size = sizeof(dorajit_engine_options) and the fields that should
 * differ from the environment (docs/environment.md). Strings are copied. */
typedef struct dorajit_engine_options {
  size_t struct_size;
  const char* cache_dir; /* absolute; NULL: from the environment; "": store nothing on disk */
  int32_t tune_policy;   /* DORAJIT_TUNE_... */
  double tune_seconds;   /* per problem; 0: from the environment, else 2 */
  int64_t scratch_bytes; /* for tuning; 0: from the environment, else min(2 GiB, free / 4) */
  /* 1: the caller guarantees that data is on the device that its DLTensor names, as a framework
   * does. Calls then skip the driver's check of each pointer, which takes about 0.2 us per operand.
   * Data on another device is then undefined behaviour instead of DORAJIT_WRONG_DEVICE. */
  int64_t trust_device_pointers;
  /* Maximum number of threads that run a kernel on CPU tensors, including the calling thread; 0: as
   * many as the process has processors (its affinity and its control group). Never more than 64.
   * The bits of results do not depend on it. Winners are stored per number of threads, and dorajitd
   * does not tune CPU problems for an engine that sets a limit. Compilers that run while a problem
   * is tuned are not limited. */
  int64_t cpu_threads;
} dorajit_engine_options;

/* Creates an engine. `options` may be NULL. A missing driver is not an error here; the first call
 * on CUDA tensors reports it. An unusable cache directory is not an error either; it is logged
 * once, and nothing is stored. DORAJIT_INVALID_ARGUMENT for an environment variable with an unknown
 * value. */
DORAJIT_API dorajit_status dorajit_engine_create(const dorajit_engine_options* options,
                                                 dorajit_engine** engine, dorajit_error** error);

/* Does not wait: work on CUDA streams must have finished before, and CUDA graphs that captured
 * calls of this engine must not be launched afterwards. */
DORAJIT_API void dorajit_engine_destroy(dorajit_engine* engine);

/* out = (gain - 1) * base + gain * (scale * lora)
 *
 * The DoRA composition in its numerically stable form (arXiv:2603.22276, section 3.1, appendix C).
 *
 * lora, base, out: [..., num_cols], the same shape. gain: magnitude / max(weight norm, eps), one
 * element per channel, broadcast as described in the conventions above. out may be exactly lora or
 * exactly base (same address, type and strides) and may overlap no other memory. scale may be any
 * double, rounded to the compute type; non-finite values propagate.
 *
 * `stream` is a CUstream or cudaStream_t (NULL: the legacy default stream) of the tensors' device.
 * The call enqueues the work and returns without waiting. For CPU tensors `stream` is ignored and
 * the work is done on return.
 *
 * The first call of a problem (element types, num_cols, num_rows up to the next power of two,
 * alignment) may compile and, if the policy allows, tune. Later calls only launch. On failure
 * nothing is written. */
DORAJIT_API dorajit_status dorajit_compose(dorajit_engine* engine, void* stream,
                                           const DLTensor* lora, const DLTensor* base,
                                           const DLTensor* gain, double scale, const DLTensor* out,
                                           dorajit_error** error);

/* out = (gain - 1) * base + gain * (scale * lora),  inner = scale * lora + base
 *
 * compose and, in the same pass, the input that backward needs for the gradient of the gain
 * (arXiv:2603.22276, section 4, tier 1). out has exactly the bits of dorajit_compose.
 *
 * inner: as out, with its own element type. out and inner may each be exactly lora or base, but not
 * the same tensor. */
DORAJIT_API dorajit_status dorajit_compose_inner(dorajit_engine* engine, void* stream,
                                                 const DLTensor* lora, const DLTensor* base,
                                                 const DLTensor* gain, double scale,
                                                 const DLTensor* out, const DLTensor* inner,
                                                 dorajit_error** error);

/* The workspace size, in bytes, that dorajit_backward needs for d_gain. It depends only on the
 * shapes and on whether elements are float64, not on the device (docs/numerics.md). At most 1% of
 * d_out and inner together; 0 for up to 256 rows if the channels are the columns. Memory is not
 * accessed and may be null. Types and devices that no call of dorajit_backward takes are refused.
 * On failure *bytes is not modified. */
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
 * NULL, but not all: outputs passed as NULL are not computed. inner, as written by compose_inner,
 * is required for d_gain; without d_gain it is not read and may be NULL. d_lora and d_base may be
 * exactly d_out or inner, but not the same tensor; d_gain and workspace overlap no other memory.
 *
 * d_gain is summed in float32 (float64) along a fixed tree (docs/numerics.md): its bits depend only
 * on the inputs. Without elements it is zero.
 *
 * workspace: memory on the tensors' device, aligned to 16 bytes, of at least the size that
 * dorajit_backward_workspace returns; may be NULL if that size is 0 or d_gain is NULL. Its contents
 * need not be initialised and are unspecified afterwards. It must stay valid, and no other call may
 * use it, until the stream has run the work. */
DORAJIT_API dorajit_status dorajit_backward(dorajit_engine* engine, void* stream,
                                            const DLTensor* d_out, const DLTensor* inner,
                                            const DLTensor* gain, double scale,
                                            const DLTensor* d_lora, const DLTensor* d_base,
                                            const DLTensor* d_gain, void* workspace,
                                            int64_t workspace_bytes, dorajit_error** error);

/* out = result + ((gain - 1) * base + gain * (scale * lora)),  base = result - bias
 *
 * The output of a layer with an adapter, in one pass: its base result plus the composition over
 * that result without its bias (arXiv:2603.22276, appendix A, where the caller adds the two).
 *
 * lora, result, out: as lora, base and out of dorajit_compose. bias: as gain, with as many
 * elements; NULL if result contains no bias. inner: as out, scale * lora + base, which
 * dorajit_residual_backward needs for the gradient of the gain; NULL if it is not needed. out and
 * inner may each be exactly lora or result, but not the same tensor. */
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
 * Otherwise as dorajit_backward, with d_result in place of d_base, and
 * dorajit_residual_backward_workspace for the workspace. The bias's gradient, the sum of (1 - gain)
 * * d_out, is not computed. */
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
 * All four tensors have the same shape and are contiguous. norm may be exactly one of the other
 * tensors. */
DORAJIT_API dorajit_status dorajit_norm_assembly(dorajit_engine* engine, void* stream,
                                                 const DLTensor* w_norm_sq, const DLTensor* cross,
                                                 const DLTensor* ba_norm_sq, double scale,
                                                 const DLTensor* norm, dorajit_error** error);

/* Counts of an engine's work. struct_size as above; fields that the caller's struct does not have
 * are not written. */
typedef struct dorajit_statistics {
  size_t struct_size;
  int64_t launches;        /* calls that launched a kernel */
  int64_t compilations;    /* compiler runs that produced code */
  int64_t artifact_hits;   /* compiled kernels read from the cache directory */
  int64_t builtin_kernels; /* built-in CPU kernels used because there is no compiler */
  int64_t tuned_problems;
  int64_t trials;        /* configs measured */
  int64_t renewed_plans; /* problems that switched to a winner that arrived later */
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

/* Receives complete lines, from any thread, one at a time. Must not call dorajit and must not
 * throw. */
typedef void (*dorajit_log_sink)(int32_t level, const char* message, void* context);

/* Sets the receiver of the process's log messages; NULL restores standard error. After the return,
 * the previous sink is not called any more and its `context` may be destroyed. */
DORAJIT_API void dorajit_set_log_sink(dorajit_log_sink sink, void* context);

#ifdef __cplusplus
}
#endif

#include <dorajit/operation.h>

#endif /* DORAJIT_DORAJIT_H_ */
