// Tensors of the C++ interface (dorajit.hpp): views of memory that the caller owns.
#ifndef DORAJIT_TENSOR_REF_HPP_
#define DORAJIT_TENSOR_REF_HPP_

#include <dorajit/dorajit.h>

#include <cstddef>
#include <cstdint>
#include <dorajit/error.hpp>
#include <initializer_list>
#include <optional>
#include <string>
#include <type_traits>
#include <utility>

namespace dorajit {
inline namespace v0 {

// Integers and float8 are served by own kernels (own_kernel.hpp) alone.
enum class ElementType {
  kFloat32,
  kFloat16,
  kBfloat16,
  kFloat64,
  kInt8,
  kInt16,
  kInt32,
  kInt64,
  kUint8,
  kBool,
  kUint16,
  kUint32,
  kUint64,
  kFloat8E4m3fn,
  kFloat8E5m2
};

// Where a tensor's memory is.
struct Device {
  DLDeviceType type = kDLCPU;
  int index = 0;

  static Device cpu() noexcept { return {}; }
  static Device cuda(int index = 0) noexcept { return {kDLCUDA, index}; }
};

// Up to eight sizes or strides, stored without an allocation.
class Dims {
 public:
  static constexpr std::size_t kMaxDims = 8;

  Dims(std::initializer_list<std::int64_t> values) : Dims(values.begin(), values.size()) {}

  // From a std::vector<std::int64_t>, std::array<std::int64_t, N> or a similar container.
  template <class Container,
            class = std::enable_if_t<std::is_convertible<
                decltype(std::declval<const Container&>().data()), const std::int64_t*>::value>>
  Dims(const Container& values) : Dims(values.data(), values.size()) {}

  // Throws kInvalidArgument for more than kMaxDims values.
  Dims(const std::int64_t* values, std::size_t count) : count_(count) {
    if (count > kMaxDims) {
      throw Error(Status::kInvalidArgument,
                  "a tensor of " + std::to_string(count) +
                      " dimensions: give at most 8, or flatten the leading ones");
    }
    for (std::size_t i = 0; i < count; ++i) values_[i] = values[i];
  }

  const std::int64_t* data() const noexcept { return values_; }
  std::size_t size() const noexcept { return count_; }

 private:
  std::int64_t values_[kMaxDims] = {};
  std::size_t count_ = 0;
};

// A view of a tensor that the caller owns. Copies are shallow; nothing is allocated. Throws
// kInvalidArgument if the number of strides differs from the number of sizes.
//
// `Memory` is void for a writable tensor (TensorRef) and const void for a read-only one
// (ConstTensorRef). A TensorRef converts to a ConstTensorRef.
template <class Memory>
class BasicTensorRef {
 public:
  // Compact, row-major: shape [..., num_cols]. `data` is the address of the first element on
  // `device` and may be null for a tensor without elements.
  BasicTensorRef(Memory* data, const Dims& shape, ElementType type, Device device = {})
      : shape_(shape), strides_({}), has_strides_(false) {
    set(const_cast<void*>(static_cast<const void*>(data)), type, device);
  }

  // With a stride for each dimension, in elements. The last stride must be 1, and the other
  // dimensions must flatten into rows with a constant stride, except for kernels of one's own,
  // whose descriptions have the strides.
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

  // From a tensor of another library. Throws kInvalidArgument for more than eight dimensions.
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

  // Deleted for temporaries: the DLTensor points at sizes and strides in this object.
  DLTensor dl_tensor() const&& = delete;
  DLTensor dl_tensor() const& noexcept {
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
    const auto int_code = static_cast<std::uint8_t>(kDLInt);
    constexpr std::uint8_t kBoolCode = 6;           // kDLBool, which DLPack has since 0.8
    constexpr std::uint8_t kFloat8E4m3fnCode = 10;  // those of float8 it has since 1.1
    constexpr std::uint8_t kFloat8E5m2Code = 12;
    switch (type) {
      case ElementType::kFloat16:
        return {float_code, 16, 1};
      case ElementType::kBfloat16:
        return {static_cast<std::uint8_t>(kDLBfloat), 16, 1};
      case ElementType::kFloat64:
        return {float_code, 64, 1};
      case ElementType::kInt8:
        return {int_code, 8, 1};
      case ElementType::kInt16:
        return {int_code, 16, 1};
      case ElementType::kInt32:
        return {int_code, 32, 1};
      case ElementType::kInt64:
        return {int_code, 64, 1};
      case ElementType::kUint8:
        return {static_cast<std::uint8_t>(kDLUInt), 8, 1};
      case ElementType::kUint16:
        return {static_cast<std::uint8_t>(kDLUInt), 16, 1};
      case ElementType::kUint32:
        return {static_cast<std::uint8_t>(kDLUInt), 32, 1};
      case ElementType::kUint64:
        return {static_cast<std::uint8_t>(kDLUInt), 64, 1};
      case ElementType::kBool:
        return {kBoolCode, 8, 1};
      case ElementType::kFloat8E4m3fn:
        return {kFloat8E4m3fnCode, 8, 1};
      case ElementType::kFloat8E5m2:
        return {kFloat8E5m2Code, 8, 1};
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

namespace detail {

// The tensors of an operation, some of which may be left out.
class TensorList {
 public:
  TensorList(std::initializer_list<std::optional<ConstTensorRef>> tensors) {
    for (const std::optional<ConstTensorRef>& tensor : tensors) {
      if (tensor && count_ < kMaxTensors) {
        tensors_[count_] = tensor->dl_tensor();
        pointers_[count_] = &tensors_[count_];
      }
      ++count_;
    }
  }
  TensorList(const TensorList&) = delete;
  TensorList& operator=(const TensorList&) = delete;

  // For more than kMaxTensors tensors only the count is read, which no operation accepts.
  const DLTensor* const* data() const noexcept { return pointers_; }
  std::int32_t size() const noexcept { return static_cast<std::int32_t>(count_); }

 private:
  static constexpr std::size_t kMaxTensors = 12;  // no operation has more

  DLTensor tensors_[kMaxTensors] = {};
  const DLTensor* pointers_[kMaxTensors] = {};
  std::size_t count_ = 0;
};

}  // namespace detail

}  // namespace v0
}  // namespace dorajit

#endif  // DORAJIT_TENSOR_REF_HPP_
