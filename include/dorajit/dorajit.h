/* dorajit: fused DoRA kernels, compiled and tuned for the device at hand. The C interface.
 *
 * Conventions, for every function here:
 *
 * - A function that can fail returns a dorajit_status and takes, last, a `dorajit_error** error`.
 *   With NULL there the message is dropped. Otherwise *error is set to NULL on success and to an
 *   error that the caller destroys on failure.
 * - Handles are opaque. Who creates one destroys it; destroying NULL does nothing.
 * - An engine may be used by any number of threads at once. An error belongs to one thread.
 * - Strings are UTF-8 and end in NUL. Those that a function returns live as long as the handle that
 *   they came from.
 * - Tensors are DLPack DLTensors and are borrowed for the call; nothing in them is changed but the
 *   elements of outputs. Memory stays the caller's. On CUDA it must stay valid until the stream has
 *   run the work.
 * - Tensors have at least one dimension. The last one is contiguous; all before it are flattened
 *   into rows, which lie a constant stride apart (at least num_cols elements). Any number of
 *   columns and any address that is aligned to an element works. Sizes are 64-bit. A tensor
 *   without elements makes the call a no-op.
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

/* Major * 10000 + minor * 100 + patch. */
DORAJIT_API int32_t dorajit_version(void);

/* Of a NULL error these are DORAJIT_OK and "". */
DORAJIT_API dorajit_status dorajit_error_status(const dorajit_error* error);
/* What went wrong, naming the argument, call or file, and what to do. Never NULL. */
DORAJIT_API const char* dorajit_error_message(const dorajit_error* error);
/* The compiler's log for DORAJIT_COMPILE_ERROR, else "". Never NULL. */
DORAJIT_API const char* dorajit_error_log(const dorajit_error* error);
DORAJIT_API void dorajit_error_destroy(dorajit_error* error);

enum {
  DORAJIT_TUNE_FROM_ENVIRONMENT = 0, /* DORAJIT_TUNE, else first use */
  DORAJIT_TUNE_FIRST_USE = 1,        /* a problem without a winner is tuned by its first call */
  DORAJIT_TUNE_OFF = 2               /* nothing is ever tuned; winners that are known are used */
};

/* Zero-initialise, then set struct_size = sizeof(dorajit_engine_options) and what should differ
 * from the environment (docs/environment.md). Strings are copied. */
typedef struct dorajit_engine_options {
  size_t struct_size;
  const char* cache_dir; /* absolute; NULL: from the environment; "": keep nothing on disk */
  int32_t tune_policy;   /* DORAJIT_TUNE_... */
  double tune_seconds;   /* per problem; 0: from the environment, else 2 */
  int64_t scratch_bytes; /* for tuning; 0: from the environment, else min(2 GiB, free / 4) */
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
 * lora, base, out: [..., num_cols], the same shape. gain: num_cols elements ([num_cols] or
 * [1, ..., num_cols]), one per column, magnitude / max(weight norm, eps). out may be exactly lora
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

/* What an engine has done so far. struct_size as above; fields beyond the caller's are left out. */
typedef struct dorajit_statistics {
  size_t struct_size;
  int64_t launches;        /* kernels launched for callers */
  int64_t compilations;    /* compiler runs that produced code */
  int64_t artifact_hits;   /* compiled kernels read from the cache directory */
  int64_t builtin_kernels; /* kernels served from the library itself (CPU without a compiler) */
  int64_t tuned_problems;
  int64_t trials; /* configs measured */
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

/* Receives whole lines, from any thread, one at a time. Must not call dorajit. */
typedef void (*dorajit_log_sink)(int32_t level, const char* message, void* context);

/* Where the process's messages go; NULL restores standard error. `context` must outlive the last
 * message. */
DORAJIT_API void dorajit_set_log_sink(dorajit_log_sink sink, void* context);

#ifdef __cplusplus
}
#endif

#endif /* DORAJIT_DORAJIT_H_ */
