// dorajit for C++17: the C interface (dorajit.h) with owners, exceptions and tensor views.
//
// Header only: an application and the library may use different standard libraries. The rules of
// dorajit.h for tensors, streams, numerics and threads hold here too.
#ifndef DORAJIT_DORAJIT_HPP_
#define DORAJIT_DORAJIT_HPP_

#include <dorajit/dorajit.h>

#include <cstddef>
#include <cstdint>
#include <dorajit/error.hpp>
#include <dorajit/log_sink.hpp>
#include <dorajit/operation.hpp>
#include <dorajit/tensor_ref.hpp>
#include <initializer_list>
#include <memory>
#include <optional>
#include <string>
#include <vector>

namespace dorajit {
inline namespace v0 {

// How a problem without a winner is handled.
enum class TunePolicy : std::int32_t {
  kFromEnvironment = DORAJIT_TUNE_FROM_ENVIRONMENT,  // DORAJIT_TUNE, else kAutomatic
  kFirstUse = DORAJIT_TUNE_FIRST_USE,                // its first call tunes it
  kOff = DORAJIT_TUNE_OFF,                           // known winners are used; nothing is tuned
  kDaemon = DORAJIT_TUNE_DAEMON,       // dorajitd tunes; winners are used when they arrive
  kAutomatic = DORAJIT_TUNE_AUTOMATIC  // kDaemon if a daemon is running, else kFirstUse
};

struct Options {
  // An absolute path. nullopt: from the environment. "": store nothing on disk.
  std::optional<std::string> cache_dir;
  TunePolicy tune_policy = TunePolicy::kFromEnvironment;
  double tune_seconds = 0;         // per problem; 0: from the environment, else 2
  std::int64_t scratch_bytes = 0;  // for tuning; 0: from the environment, else min(2 GiB, free / 4)
  bool trust_device_pointers = false;  // skips the driver's check of each pointer
  std::int64_t cpu_threads = 0;        // maximum for a CPU kernel; 0: all processors, up to 64
};

// Counts of an engine's work; see dorajit_statistics.
struct Statistics {
  std::int64_t launches = 0;
  std::int64_t compilations = 0;
  std::int64_t artifact_hits = 0;
  std::int64_t builtin_kernels = 0;
  std::int64_t tuned_problems = 0;
  std::int64_t trials = 0;
  std::int64_t renewed_plans = 0;
};

// The config that a problem runs with, and its source; see dorajit_explanation.
struct Explanation {
  std::string problem;
  std::string config;
  std::string source;
  std::string fingerprint;
  DLDevice device{};
  std::int64_t renewals = 0;
};

// The outputs that Engine::backward computes, and the inputs that d_gain needs.
struct Gradients {
  std::optional<TensorRef> d_lora;
  std::optional<TensorRef> d_base;
  std::optional<TensorRef> d_gain;      // as many contiguous elements as the gain
  std::optional<ConstTensorRef> inner;  // for d_gain, as compose_inner wrote it
  void* workspace = nullptr;            // for d_gain; on the tensors' device, aligned to 16 bytes
  std::int64_t workspace_bytes = 0;
};

// The same for Engine::residual_backward.
struct ResidualGradients {
  std::optional<TensorRef> d_lora;
  std::optional<TensorRef> d_result;    // of the base layer's result
  std::optional<TensorRef> d_gain;      // as many contiguous elements as the gain
  std::optional<ConstTensorRef> inner;  // for d_gain, as compose_residual wrote it
  void* workspace = nullptr;            // for d_gain; on the tensors' device, aligned to 16 bytes
  std::int64_t workspace_bytes = 0;
};

// Memory for the sum of a call, on the tensors' device and aligned to 16 bytes.
struct Workspace {
  void* data = nullptr;
  std::int64_t bytes = 0;
};

namespace detail {

inline Explanation explanation_of(const dorajit_explanation& found) {
  return {found.problem,     found.config, found.source,
          found.fingerprint, found.device, found.renewals};
}

}  // namespace detail

// Compiles, tunes and launches kernels. Any number of threads may use one engine at once. Work that
// it enqueued on CUDA streams must have finished before it is destroyed. After a move, every call
// on the source except assignment and destruction throws kInvalidArgument.
class Engine {
 public:
  // Throws kInvalidArgument for options or environment variables with unknown values.
  explicit Engine(const Options& options = {}) {
    dorajit_engine_options c_options{};
    c_options.struct_size = sizeof c_options;
    c_options.cache_dir = options.cache_dir ? options.cache_dir->c_str() : nullptr;
    c_options.tune_policy = static_cast<std::int32_t>(options.tune_policy);
    c_options.tune_seconds = options.tune_seconds;
    c_options.scratch_bytes = options.scratch_bytes;
    c_options.trust_device_pointers = options.trust_device_pointers ? 1 : 0;
    c_options.cpu_threads = options.cpu_threads;
    dorajit_engine* engine = nullptr;
    detail::check(
        [&](dorajit_error** error) { return dorajit_engine_create(&c_options, &engine, error); });
    engine_.reset(engine);
  }

  // out = (gain - 1) * base + gain * (scale * lora)
  //
  // lora, base, out: [..., num_cols], the same shape; gain: one element per channel, [num_cols] or
  // [1, C, 1, ...] as described in dorajit.h. out may be exactly lora or exactly base and may
  // overlap no other memory. `stream` is a CUstream or cudaStream_t of the tensors' device (null:
  // the legacy default stream). The call enqueues the work and returns without waiting, so the
  // memory must stay valid until the stream has run it. For CPU tensors `stream` is ignored and the
  // work is done on return. If the call throws, nothing was written.
  void compose(void* stream, const ConstTensorRef& lora, const ConstTensorRef& base,
               const ConstTensorRef& gain, double scale, const TensorRef& out) {
    static const Operation operation("compose");
    launch(stream, operation, {lora, base, gain, out}, {scale});
  }

  // Computes compose into out, and inner = scale * lora + base, which backward needs for d_gain.
  // out and inner may each be exactly lora or base, but not the same tensor. Otherwise as compose.
  void compose_inner(void* stream, const ConstTensorRef& lora, const ConstTensorRef& base,
                     const ConstTensorRef& gain, double scale, const TensorRef& out,
                     const TensorRef& inner) {
    static const Operation operation("compose_inner");
    launch(stream, operation, {lora, base, gain, out, inner}, {scale});
  }

  // d_lora = (gain * scale) * d_out, d_base = (gain - 1) * d_out, d_gain = sum of inner * d_out
  // over each channel.
  //
  // Outputs that `gradients` leaves out are not computed; at least one is required. d_gain needs
  // inner and a workspace of backward_workspace() bytes. d_lora and d_base may be exactly d_out or
  // inner, but not the same tensor; d_gain and the workspace must not overlap other memory.
  // Otherwise as compose.
  void backward(void* stream, const ConstTensorRef& d_out, const ConstTensorRef& gain, double scale,
                const Gradients& gradients) {
    static const Operation operation("backward");
    launch(stream, operation,
           {d_out, gradients.inner, gain, gradients.d_lora, gradients.d_base, gradients.d_gain},
           {scale}, {gradients.workspace, gradients.workspace_bytes});
  }

  // The workspace size, in bytes, that backward needs for d_gain. Independent of device and engine.
  static std::int64_t backward_workspace(const ConstTensorRef& d_out, const ConstTensorRef& gain) {
    return workspace_of(dorajit_backward_workspace, d_out, gain);
  }

  // out = result + ((gain - 1) * base + gain * (scale * lora)), base = result - bias: the output of
  // a layer with an adapter.
  //
  // lora, result, out: as lora, base and out of compose. bias: as gain; nullopt if result contains
  // no bias. inner: scale * lora + base, which residual_backward needs for d_gain. out and inner
  // may each be exactly lora or result, but not the same tensor. Otherwise as compose.
  void compose_residual(void* stream, const ConstTensorRef& lora, const ConstTensorRef& result,
                        const ConstTensorRef& gain, const std::optional<ConstTensorRef>& bias,
                        double scale, const TensorRef& out,
                        const std::optional<TensorRef>& inner = std::nullopt) {
    static const Operation operation("compose_residual");
    launch(stream, operation, {lora, result, gain, bias, out, inner}, {scale});
  }

  // d_lora = (gain * scale) * d_out, d_result = gain * d_out, d_gain = sum of inner * d_out over
  // each channel. Otherwise as backward, with residual_backward_workspace() bytes.
  void residual_backward(void* stream, const ConstTensorRef& d_out, const ConstTensorRef& gain,
                         double scale, const ResidualGradients& gradients) {
    static const Operation operation("residual_backward");
    launch(stream, operation,
           {d_out, gradients.inner, gain, gradients.d_lora, gradients.d_result, gradients.d_gain},
           {scale}, {gradients.workspace, gradients.workspace_bytes});
  }

  // The workspace size, in bytes, that residual_backward needs for d_gain.
  static std::int64_t residual_backward_workspace(const ConstTensorRef& d_out,
                                                  const ConstTensorRef& gain) {
    return workspace_of(dorajit_residual_backward_workspace, d_out, gain);
  }

  // norm = sqrt(max((w_norm_sq + 2 scale * cross) + scale^2 * ba_norm_sq, 0)), contiguous tensors
  // of one shape. norm may be exactly one of the others. Otherwise as compose.
  void norm_assembly(void* stream, const ConstTensorRef& w_norm_sq, const ConstTensorRef& cross,
                     const ConstTensorRef& ba_norm_sq, double scale, const TensorRef& norm) {
    static const Operation operation("norm_assembly");
    launch(stream, operation, {w_norm_sq, cross, ba_norm_sq, norm}, {scale});
  }

  // Calls any operation, under the rules of dorajit_launch (operation.h), which has the tensors,
  // types and workspace of those without a function of their own. tensors: in the order of the
  // operation's operands, nullopt for those that are left out; outputs are written.
  void launch(void* stream, const Operation& operation,
              std::initializer_list<std::optional<ConstTensorRef>> tensors,
              std::initializer_list<double> scalars, const Workspace& workspace = {}) {
    const detail::TensorList list(tensors);
    detail::check([&](dorajit_error** error) {
      return dorajit_launch(get(), stream, operation.get(), list.data(), list.size(),
                            scalars.begin(), static_cast<std::int32_t>(scalars.size()),
                            workspace.data, workspace.bytes, error);
    });
  }

  // The workspace size, in bytes, that launch() needs for these tensors.
  static std::int64_t workspace_bytes(
      const Operation& operation, std::initializer_list<std::optional<ConstTensorRef>> tensors) {
    const detail::TensorList list(tensors);
    std::int64_t bytes = 0;
    detail::check([&](dorajit_error** error) {
      return dorajit_operation_workspace(operation.get(), list.data(), list.size(), &bytes, error);
    });
    return bytes;
  }

  // Compiles, tunes (if the policy allows) and loads the kernel that a call with such tensors would
  // launch. Use it before a CUDA graph is captured, and before work that must not wait for a
  // compiler.
  //
  // tensors: in the order of the operation's operands (of backward: d_out, inner, gain, d_lora,
  // d_base, d_gain), nullopt for those that the calls will leave out. Their data is not accessed
  // and may be null, which stands for memory that is aligned to 16 bytes. scalars: as for launch;
  // those of the library's own operations may be left out.
  void warmup(const Operation& operation,
              std::initializer_list<std::optional<ConstTensorRef>> tensors,
              std::initializer_list<double> scalars = {}) {
    const detail::TensorList list(tensors);
    detail::check([&](dorajit_error** error) {
      return dorajit_warmup(get(), operation.get(), list.data(), list.size(), scalars.begin(),
                            static_cast<std::int32_t>(scalars.size()), error);
    });
  }

  // The config that calls with such tensors currently launch, and its source; nullopt until a call
  // or warmup() has prepared their problem. tensors, scalars: as for warmup. Does not compile, tune
  // or wait.
  std::optional<Explanation> explain(const Operation& operation,
                                     std::initializer_list<std::optional<ConstTensorRef>> tensors,
                                     std::initializer_list<double> scalars = {}) const {
    const detail::TensorList list(tensors);
    dorajit_explanation found{};
    found.struct_size = sizeof found;
    detail::check([&](dorajit_error** error) {
      return dorajit_explain(get(), operation.get(), list.data(), list.size(), scalars.begin(),
                             static_cast<std::int32_t>(scalars.size()), &found, error);
    });
    if (*found.config == '\0') return std::nullopt;
    return detail::explanation_of(found);
  }

  Statistics statistics() const {
    dorajit_statistics counts{};
    counts.struct_size = sizeof counts;
    detail::check(
        [&](dorajit_error** error) { return dorajit_engine_statistics(get(), &counts, error); });
    Statistics result;
    result.launches = counts.launches;
    result.compilations = counts.compilations;
    result.artifact_hits = counts.artifact_hits;
    result.builtin_kernels = counts.builtin_kernels;
    result.tuned_problems = counts.tuned_problems;
    result.trials = counts.trials;
    result.renewed_plans = counts.renewed_plans;
    return result;
  }

  // The same for all problems that calls and warmup() have prepared, in that order.
  std::vector<Explanation> plans() const {
    std::vector<Explanation> result;
    for (;;) {
      dorajit_explanation found{};
      found.struct_size = sizeof found;
      detail::check([&](dorajit_error** error) {
        return dorajit_explain_at(get(), static_cast<std::int64_t>(result.size()), &found, error);
      });
      if (*found.config == '\0') return result;
      result.push_back(detail::explanation_of(found));
    }
  }

  // The handle of the C interface, still owned by this object. Null after a move.
  dorajit_engine* get() const noexcept { return engine_.get(); }

 private:
  struct Destroy {
    void operator()(dorajit_engine* engine) const noexcept { dorajit_engine_destroy(engine); }
  };

  static std::int64_t workspace_of(decltype(dorajit_backward_workspace)* function,
                                   const ConstTensorRef& d_out, const ConstTensorRef& gain) {
    const DLTensor c_d_out = d_out.dl_tensor();
    const DLTensor c_gain = gain.dl_tensor();
    std::int64_t bytes = 0;
    detail::check(
        [&](dorajit_error** error) { return function(&c_d_out, &c_gain, &bytes, error); });
    return bytes;
  }

  std::unique_ptr<dorajit_engine, Destroy> engine_;
};

}  // namespace v0
}  // namespace dorajit

#endif  // DORAJIT_DORAJIT_HPP_
