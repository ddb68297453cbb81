// dorajit for C++17: the C interface (dorajit.h) with owners, exceptions and tensor views.
//
// Header only: an application and the library may use different standard libraries. What dorajit.h
// says of tensors, streams, numerics and threads holds here too.
#ifndef DORAJIT_DORAJIT_HPP_
#define DORAJIT_DORAJIT_HPP_

#include <dorajit/dorajit.h>

#include <cstddef>
#include <cstdint>
#include <initializer_list>
#include <memory>
#include <optional>
#include <stdexcept>
#include <string>
#include <type_traits>
#include <utility>

namespace dorajit {
// Inline, so that translation units compiled against different versions may meet in one process.
inline namespace v0 {

// The status codes of the C interface, which says when each is returned.
enum class Status : std::int32_t {
  kOk = DORAJIT_OK,
  kInvalidArgument = DORAJIT_INVALID_ARGUMENT,
  kUnsupported = DORAJIT_UNSUPPORTED,
  kWrongDevice = DORAJIT_WRONG_DEVICE,
  kNoDriver = DORAJIT_NO_DRIVER,
  kNoCompiler = DORAJIT_NO_COMPILER,
  kCompileError = DORAJIT_COMPILE_ERROR,
  kDriverError = DORAJIT_DRIVER_ERROR,
  kOutOfMemory = DORAJIT_OUT_OF_MEMORY,
  kCaptureUnsafe = DORAJIT_CAPTURE_UNSAFE,
  kIoError = DORAJIT_IO_ERROR,
  kInternal = DORAJIT_INTERNAL
};

// "INVALID_ARGUMENT" and so on. Static.
inline const char* status_name(Status status) {
  return dorajit_status_name(static_cast<dorajit_status>(status));
}

// What every function here throws. what() names the argument, call or file, and what to do.
class Error : public std::runtime_error {
 public:
  Error(Status status, const std::string& message, std::string log = {})
      : std::runtime_error(message),
        status_(status),
        log_(std::make_shared<const std::string>(std::move(log))) {}

  Status status() const noexcept { return status_; }

  // The compiler's whole log for kCompileError, else empty.
  const std::string& log() const noexcept { return *log_; }

 private:
  Status status_;
  std::shared_ptr<const std::string> log_;  // shared, so that copying an Error does not throw
};

enum class ElementType { kFloat32, kFloat16, kBfloat16, kFloat64 };

// Where a tensor's memory is.
struct Device {
  DLDeviceType type = kDLCPU;
  int index = 0;

  static Device cpu() noexcept { return {}; }
  static Device cuda(int index = 0) noexcept { return {kDLCUDA, index}; }
};

// Up to eight sizes or strides, held in place.
class Dims {
 public:
  static constexpr std::size_t kMost = 8;

  Dims(std::initializer_list<std::int64_t> values) : Dims(values.begin(), values.size()) {}

  // A std::vector<std::int64_t>, std::array<std::int64_t, N> or the like.
  template <class Container,
            class = std::enable_if_t<std::is_convertible<
                decltype(std::declval<const Container&>().data()), const std::int64_t*>::value>>
  Dims(const Container& values) : Dims(values.data(), values.size()) {}

  // kInvalidArgument for more than kMost of them.
  Dims(const std::int64_t* values, std::size_t count) : count_(count) {
    if (count > kMost) {
      throw Error(Status::kInvalidArgument,
                  "a tensor of " + std::to_string(count) +
                      " dimensions: give at most 8, or flatten the leading ones");
    }
    for (std::size_t i = 0; i < count; ++i) values_[i] = values[i];
  }

  const std::int64_t* data() const noexcept { return values_; }
  std::size_t size() const noexcept { return count_; }

 private:
  std::int64_t values_[kMost] = {};
  std::size_t count_ = 0;
};

// A tensor that somebody else owns. Copies are shallow; nothing is allocated. kInvalidArgument for
// strides that are not as many as the sizes.
//
// `Memory` is void for a tensor that may be written (TensorRef), const void for one that is only
// read (ConstTensorRef). A TensorRef serves as a ConstTensorRef.
template <class Memory>
class BasicTensorRef {
 public:
  // Compact, row-major: shape [..., num_cols]. `data` is the address of the first element on
  // `device` and may be null for a tensor without elements.
  BasicTensorRef(Memory* data, const Dims& shape, ElementType type, Device device = {})
      : shape_(shape), strides_({}), has_strides_(false) {
    set(const_cast<void*>(static_cast<const void*>(data)), type, device);
  }

  // With a stride for each dimension, in elements. The last must be 1; the others must flatten into
  // rows that lie a constant stride apart.
  BasicTensorRef(Memory* data, const Dims& shape, const Dims& strides, ElementType type,
                 Device device = {})
      : shape_(shape), strides_(strides), has_strides_(true) {
    if (strides.size() != shape.size()) {
      throw Error(Status::kInvalidArgument,
                  "a tensor of " + std::to_string(shape.size()) + " dimensions with " +
                      std::to_string(strides.size()) + " strides: give one for each");
    }
    set(const_cast<void*>(static_cast<const void*>(data)), type, device);
  }

  // A tensor of another library. kInvalidArgument for more than eight dimensions.
  BasicTensorRef(const DLTensor& tensor)
      : tensor_(tensor),
        shape_(dims_of(tensor.shape, tensor.ndim)),
        strides_(dims_of(tensor.strides, tensor.ndim)),
        has_shape_(tensor.shape != nullptr),
        has_strides_(tensor.strides != nullptr) {}

  // From a TensorRef to a ConstTensorRef.
  template <class Other, class = std::enable_if_t<std::is_void<Other>::value &&
                                                  !std::is_same<Memory, Other>::value &&
                                                  std::is_const<Memory>::value>>
  BasicTensorRef(const BasicTensorRef<Other>& other) : BasicTensorRef(other.dl_tensor()) {}

  // Its sizes and strides live in this object.
  DLTensor dl_tensor() const noexcept {
    DLTensor tensor = tensor_;
    tensor.shape = has_shape_ ? const_cast<std::int64_t*>(shape_.data()) : nullptr;
    tensor.strides = has_strides_ ? const_cast<std::int64_t*>(strides_.data()) : nullptr;
    return tensor;
  }

 private:
  static Dims dims_of(const std::int64_t* values, int count) {
    return Dims(values, values == nullptr || count < 0 ? 0 : static_cast<std::size_t>(count));
  }

  static DLDataType dl_type(ElementType type) noexcept {
    const auto float_code = static_cast<std::uint8_t>(kDLFloat);
    switch (type) {
      case ElementType::kFloat16:
        return {float_code, 16, 1};
      case ElementType::kBfloat16:
        return {static_cast<std::uint8_t>(kDLBfloat), 16, 1};
      case ElementType::kFloat64:
        return {float_code, 64, 1};
      case ElementType::kFloat32:
        break;
    }
    return {float_code, 32, 1};
  }

  void set(void* data, ElementType type, Device device) noexcept {
    tensor_.data = data;
    tensor_.device.device_type = device.type;
    tensor_.device.device_id = device.index;
    tensor_.ndim = static_cast<int>(shape_.size());
    tensor_.dtype = dl_type(type);
  }

  DLTensor tensor_{};
  Dims shape_;
  Dims strides_;
  bool has_shape_ = true;
  bool has_strides_;
};

using TensorRef = BasicTensorRef<void>;
using ConstTensorRef = BasicTensorRef<const void>;

// What to do about a problem that has not been tuned yet.
enum class TunePolicy : std::int32_t {
  kFromEnvironment = DORAJIT_TUNE_FROM_ENVIRONMENT,  // DORAJIT_TUNE, else kFirstUse
  kFirstUse = DORAJIT_TUNE_FIRST_USE,                // its first call tunes it
  kOff = DORAJIT_TUNE_OFF                            // use what is known, tune nothing
};

struct Options {
  // Absolute. Nothing: from the environment. Empty: keep nothing on disk.
  std::optional<std::string> cache_dir;
  TunePolicy tune_policy = TunePolicy::kFromEnvironment;
  double tune_seconds = 0;         // per problem; 0: from the environment, else 2
  std::int64_t scratch_bytes = 0;  // for tuning; 0: from the environment, else min(2 GiB, free / 4)
};

// What an engine has done so far; see dorajit_statistics.
struct Statistics {
  std::int64_t launches = 0;
  std::int64_t compilations = 0;
  std::int64_t artifact_hits = 0;
  std::int64_t builtin_kernels = 0;
  std::int64_t tuned_problems = 0;
  std::int64_t trials = 0;
};

// What Engine::backward is to compute, and what it needs for that.
struct Gradients {
  std::optional<TensorRef> d_lora;
  std::optional<TensorRef> d_base;
  std::optional<TensorRef> d_gain;      // as many contiguous elements as the gain
  std::optional<ConstTensorRef> inner;  // for d_gain, as compose_inner wrote it
  void* workspace = nullptr;            // for d_gain; on the tensors' device, aligned to 16 bytes
  std::int64_t workspace_bytes = 0;
};

enum class Operation : std::int32_t {
  kCompose = DORAJIT_OP_COMPOSE,
  kComposeInner = DORAJIT_OP_COMPOSE_INNER,
  kBackward = DORAJIT_OP_BACKWARD,
  kNormAssembly = DORAJIT_OP_NORM_ASSEMBLY
};

// Compiles, tunes and launches kernels. Any number of threads may use one engine at once. Work that
// it enqueued on CUDA streams must have finished before it is destroyed. Of an engine that was
// moved from, every call but assignment and destruction is kInvalidArgument.
class Engine {
 public:
  // kInvalidArgument for options or environment variables with unknown values.
  explicit Engine(const Options& options = {}) {
    dorajit_engine_options c_options{};
    c_options.struct_size = sizeof c_options;
    c_options.cache_dir = options.cache_dir ? options.cache_dir->c_str() : nullptr;
    c_options.tune_policy = static_cast<std::int32_t>(options.tune_policy);
    c_options.tune_seconds = options.tune_seconds;
    c_options.scratch_bytes = options.scratch_bytes;
    dorajit_engine* engine = nullptr;
    dorajit_error* error = nullptr;
    check(dorajit_engine_create(&c_options, &engine, &error), error);
    engine_.reset(engine);
  }

  // out = (gain - 1) * base + gain * (scale * lora)
  //
  // lora, base, out: [..., num_cols], the same shape; gain: one element per channel, [num_cols] or
  // [1, C, 1, ...] as dorajit.h says. out may be exactly lora or exactly base and may overlap
  // nothing else. `stream` is a CUstream or cudaStream_t of the tensors' device (null: the legacy
  // default stream): the work is enqueued on it and not waited for, so the memory must stay valid
  // until the stream has run it. For CPU tensors it is ignored and the work is done on return. When
  // this throws nothing was written.
  void compose(void* stream, const ConstTensorRef& lora, const ConstTensorRef& base,
               const ConstTensorRef& gain, double scale, const TensorRef& out) {
    const DLTensor c_lora = lora.dl_tensor();
    const DLTensor c_base = base.dl_tensor();
    const DLTensor c_gain = gain.dl_tensor();
    const DLTensor c_out = out.dl_tensor();
    dorajit_error* error = nullptr;
    check(dorajit_compose(get(), stream, &c_lora, &c_base, &c_gain, scale, &c_out, &error), error);
  }

  // compose into out, and inner = scale * lora + base, which backward needs for d_gain. out and
  // inner may each be exactly lora or base, but not the same one. Otherwise as compose.
  void compose_inner(void* stream, const ConstTensorRef& lora, const ConstTensorRef& base,
                     const ConstTensorRef& gain, double scale, const TensorRef& out,
                     const TensorRef& inner) {
    const DLTensor c_lora = lora.dl_tensor();
    const DLTensor c_base = base.dl_tensor();
    const DLTensor c_gain = gain.dl_tensor();
    const DLTensor c_out = out.dl_tensor();
    const DLTensor c_inner = inner.dl_tensor();
    dorajit_error* error = nullptr;
    check(dorajit_compose_inner(get(), stream, &c_lora, &c_base, &c_gain, scale, &c_out, &c_inner,
                                &error),
          error);
  }

  // d_lora = (gain * scale) * d_out, d_base = (gain - 1) * d_out, d_gain = sum of inner * d_out
  // over each channel.
  //
  // What `gradients` leaves out is not computed; at least one must be there. d_gain needs inner and
  // a workspace of backward_workspace() bytes. d_lora and d_base may be exactly d_out or inner, but
  // not the same one; d_gain and the workspace overlap nothing. Otherwise as compose.
  void backward(void* stream, const ConstTensorRef& d_out, const ConstTensorRef& gain, double scale,
                const Gradients& gradients) {
    const DLTensor c_d_out = d_out.dl_tensor();
    const DLTensor c_gain = gain.dl_tensor();
    const OptionalTensor inner(gradients.inner);
    const OptionalTensor d_lora(gradients.d_lora);
    const OptionalTensor d_base(gradients.d_base);
    const OptionalTensor d_gain(gradients.d_gain);
    dorajit_error* error = nullptr;
    check(dorajit_backward(get(), stream, &c_d_out, inner.get(), &c_gain, scale, d_lora.get(),
                           d_base.get(), d_gain.get(), gradients.workspace,
                           gradients.workspace_bytes, &error),
          error);
  }

  // Bytes of workspace that backward needs for d_gain, whatever the device and the engine.
  static std::int64_t backward_workspace(const ConstTensorRef& d_out, const ConstTensorRef& gain) {
    const DLTensor c_d_out = d_out.dl_tensor();
    const DLTensor c_gain = gain.dl_tensor();
    std::int64_t bytes = 0;
    dorajit_error* error = nullptr;
    check(dorajit_backward_workspace(&c_d_out, &c_gain, &bytes, &error), error);
    return bytes;
  }

  // norm = sqrt(max((w_norm_sq + 2 scale * cross) + scale^2 * ba_norm_sq, 0)), contiguous tensors
  // of one shape. norm may be exactly one of the others. Otherwise as compose.
  void norm_assembly(void* stream, const ConstTensorRef& w_norm_sq, const ConstTensorRef& cross,
                     const ConstTensorRef& ba_norm_sq, double scale, const TensorRef& norm) {
    const DLTensor c_w = w_norm_sq.dl_tensor();
    const DLTensor c_cross = cross.dl_tensor();
    const DLTensor c_ba = ba_norm_sq.dl_tensor();
    const DLTensor c_norm = norm.dl_tensor();
    dorajit_error* error = nullptr;
    check(dorajit_norm_assembly(get(), stream, &c_w, &c_cross, &c_ba, scale, &c_norm, &error),
          error);
  }

  // Makes ready what a call of the operation with such tensors would launch: before a CUDA graph is
  // captured, and before work that must not wait for a compiler.
  //
  // tensors: in the order of the C function's parameters, outputs last (of backward: d_out, inner,
  // gain, d_lora, d_base, d_gain), nothing for those that the calls will leave out. Their data may
  // be null, which stands for memory that is aligned to 16 bytes; it is not touched.
  void warmup(Operation operation, std::initializer_list<std::optional<ConstTensorRef>> tensors) {
    constexpr std::size_t kMost = 8;
    DLTensor c_tensors[kMost] = {};
    const DLTensor* pointers[kMost] = {};
    std::size_t count = 0;
    for (const std::optional<ConstTensorRef>& tensor : tensors) {
      if (tensor && count < kMost) {
        c_tensors[count] = tensor->dl_tensor();
        pointers[count] = &c_tensors[count];
      }
      ++count;
    }
    dorajit_error* error = nullptr;
    check(dorajit_warmup(get(), static_cast<std::int32_t>(operation), pointers,
                         static_cast<std::int32_t>(count), &error),
          error);
  }

  Statistics statistics() const {
    dorajit_statistics counts{};
    counts.struct_size = sizeof counts;
    dorajit_error* error = nullptr;
    check(dorajit_engine_statistics(get(), &counts, &error), error);
    Statistics result;
    result.launches = counts.launches;
    result.compilations = counts.compilations;
    result.artifact_hits = counts.artifact_hits;
    result.builtin_kernels = counts.builtin_kernels;
    result.tuned_problems = counts.tuned_problems;
    result.trials = counts.trials;
    return result;
  }

  // Of the C interface; stays this object's. Null after a move.
  dorajit_engine* get() const noexcept { return engine_.get(); }

 private:
  struct Destroy {
    void operator()(dorajit_engine* engine) const noexcept { dorajit_engine_destroy(engine); }
    void operator()(dorajit_error* error) const noexcept { dorajit_error_destroy(error); }
  };

  // A DLTensor that may be left out.
  class OptionalTensor {
   public:
    template <class Ref>
    explicit OptionalTensor(const std::optional<Ref>& ref) : has_value_(ref.has_value()) {
      if (ref) tensor_ = ref->dl_tensor();
    }

    const DLTensor* get() const noexcept { return has_value_ ? &tensor_ : nullptr; }

   private:
    DLTensor tensor_{};
    bool has_value_;
  };

  static void check(dorajit_status status, dorajit_error* error) {
    if (status == DORAJIT_OK) return;
    const std::unique_ptr<dorajit_error, Destroy> owner(error);
    throw Error(static_cast<Status>(status), dorajit_error_message(error),
                dorajit_error_log(error));
  }

  std::unique_ptr<dorajit_engine, Destroy> engine_;
};

}  // namespace v0
}  // namespace dorajit

#endif  // DORAJIT_DORAJIT_HPP_
