#include <dorajit/own_kernel.h>

#include <array>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <string>
#include <vector>

#include "bindings/python/eligibility.h"
#include "bindings/python/module_parts.h"
#include "bindings/python/native_call.h"
#include "bindings/python/native_operation.h"
#include "bindings/python/torch_tensor.h"

namespace dorajit::python {
namespace {

namespace py = pybind11;

constexpr std::size_t kMaxTensors = 12;
constexpr std::size_t kMaxScalars = 12;
constexpr const char* kKernelCapsule = "dorajit.own_kernel";

struct NativeKernel {
  NativeOperation operation;
  std::vector<bool> is_tensor;  // by argument of a call
  bool has_workspace;
  std::string json;  // the description
};

// -1 with a Python error for what is no number.
double to_double(PyObject* number) {
  // For an int, PyFloat_AsDouble() would make a float first.
  return PyLong_CheckExact(number) ? PyLong_AsDouble(number) : PyFloat_AsDouble(number);
}

// The arguments of a call, as Python passes them: in the description's order.
class Arguments {
 public:
  // `self` is the capsule of a kernel. Throws error_already_set.
  Arguments(PyObject* self, PyObject* const* arguments, Py_ssize_t count) {
    kernel_ = static_cast<NativeKernel*>(PyCapsule_GetPointer(self, kKernelCapsule));
    if (kernel_ == nullptr) throw py::error_already_set();
    const auto wanted = static_cast<Py_ssize_t>(kernel_->is_tensor.size());
    if (count != wanted) {
      PyErr_Format(PyExc_TypeError, "%s takes %zd arguments, not %zd", kernel_->operation.info.name,
                   wanted, count);
      throw py::error_already_set();
    }
    for (Py_ssize_t i = 0; i < count; ++i) {
      if (kernel_->is_tensor[static_cast<std::size_t>(i)]) {
        objects_[num_tensors_] = arguments[i];
        const auto& operand = kernel_->operation.operands[static_cast<std::size_t>(num_tensors_)];
        if (arguments[i] == Py_None && operand.presence == DORAJIT_OPERAND_OPTIONAL) {
          pointers_[num_tensors_++] = nullptr;
          continue;
        }
        const bool is_read = tensors_[num_tensors_].read(arguments[i], Torch::kTypes);
        if (!is_read && refused_ < 0) refused_ = i;
        pointers_[num_tensors_] = &tensors_[num_tensors_].dl();
        ++num_tensors_;
        continue;
      }
      scalars_[num_scalars_] = to_double(arguments[i]);
      if (scalars_[num_scalars_] == -1 && PyErr_Occurred() != nullptr) {
        throw py::error_already_set();
      }
      ++num_scalars_;
    }
  }
  Arguments(const Arguments&) = delete;
  Arguments& operator=(const Arguments&) = delete;

  // The argument that is no tensor of PyTorch that a kernel could take, or -1.
  [[nodiscard]] Py_ssize_t refused() const { return refused_; }

  [[nodiscard]] py::object launch() const {
    if (is_recorded(std::span(objects_).first(static_cast<std::size_t>(num_tensors_)))) {
      check([&](dorajit_error** error) {
        return note_problem(kernel_->operation.handle,
                            {pointers_.data(), static_cast<std::size_t>(num_tensors_)},
                            {scalars_.data(), static_cast<std::size_t>(num_scalars_)},
                            kernel_->json.c_str(), *error);
      });
      return py::none();
    }
    void* const stream = current_stream(pointers_[0]->device);
    std::int64_t bytes = 0;
    TorchMemory workspace;
    if (kernel_->has_workspace) {
      check([&](dorajit_error** error) {
        return dorajit_kernel_workspace(kernel_->operation.handle, pointers_.data(), num_tensors_,
                                        scalars_.data(), num_scalars_, &bytes, error);
      });
      if (bytes > 0) workspace = TorchMemory(objects_[0], bytes);
    }
    run([&](dorajit_engine* engine, dorajit_error** error) {
      return dorajit_launch(engine, stream, kernel_->operation.handle, pointers_.data(),
                            num_tensors_, scalars_.data(), num_scalars_, workspace.data(), bytes,
                            error);
    });
    for (std::size_t i = 0; i < kernel_->operation.operands.size(); ++i) {
      if (kernel_->operation.operands[i].is_output == 0 || pointers_[i] == nullptr) continue;
      owned(PyObject_CallOneArg(torch().count_change, objects_[i]));
    }
    return py::none();
  }

  [[nodiscard]] py::object warm_up() const {
    run([&](dorajit_engine* engine, dorajit_error** error) {
      return dorajit_warmup(engine, kernel_->operation.handle, pointers_.data(), num_tensors_,
                            scalars_.data(), num_scalars_, error);
    });
    return py::none();
  }

  [[nodiscard]] py::object explain() const {
    dorajit_explanation found{};
    found.struct_size = sizeof found;
    run([&](dorajit_engine* engine, dorajit_error** error) {
      return dorajit_explain(engine, kernel_->operation.handle, pointers_.data(), num_tensors_,
                             scalars_.data(), num_scalars_, &found, error);
    });
    if (*found.config == '\0') return py::none();
    return described(found);
  }

 private:
  NativeKernel* kernel_ = nullptr;
  std::array<TorchTensor, kMaxTensors> tensors_;
  std::array<const DLTensor*, kMaxTensors> pointers_{};
  std::array<PyObject*, kMaxTensors> objects_{};
  std::array<double, kMaxScalars> scalars_{};
  std::int32_t num_tensors_ = 0;
  std::int32_t num_scalars_ = 0;
  Py_ssize_t refused_ = -1;
};

// What kUse returns; the number of an argument that cannot be read instead of doing anything.
template <py::object (Arguments::*kUse)() const>
PyObject* with_arguments(PyObject* self, PyObject* const* arguments, Py_ssize_t count) noexcept {
  return with_python_errors([&]() -> PyObject* {
    const Arguments call(self, arguments, count);
    if (call.refused() >= 0) return PyLong_FromSsize_t(call.refused());
    return (call.*kUse)().release().ptr();
  });
}

py::object function_of(PyMethodDef& method, const py::capsule& kernel) {
  return owned(PyCFunction_NewEx(&method, kernel.ptr(), nullptr));
}

py::tuple make_kernel(const std::string& json, const py::sequence& is_tensor, bool has_workspace) {
  const dorajit_operation* handle = nullptr;
  check([&](dorajit_error** error) { return dorajit_kernel_create(json.c_str(), &handle, error); });
  auto* const kernel = new NativeKernel{NativeOperation(handle), {}, has_workspace, json};
  const py::capsule self(kernel, kKernelCapsule, [](PyObject* capsule) {
    delete static_cast<NativeKernel*>(PyCapsule_GetPointer(capsule, kKernelCapsule));
  });
  for (const auto& one : is_tensor) kernel->is_tensor.push_back(one.cast<bool>());
  // Python keeps their addresses.
  static PyMethodDef call =
      fast_method("kernel", with_arguments<&Arguments::launch>, "Launches the kernel.");
  static PyMethodDef warm_up =
      fast_method("warmup", with_arguments<&Arguments::warm_up>, "Makes a launch ready.");
  static PyMethodDef explain =
      fast_method("explain", with_arguments<&Arguments::explain>, "Says what is launched.");
  return py::make_tuple(function_of(call, self), function_of(warm_up, self),
                        function_of(explain, self));
}

}  // namespace

void add_own_kernels(py::module_& module) {
  module.def(
      "make_kernel", &make_kernel, py::arg("json"), py::arg("is_tensor"), py::arg("has_workspace"),
      "(launch, warmup, explain) of the kernel of a description, functions of its arguments. Each "
      "returns the number of an argument that is no tensor which it can read.");
}

}  // namespace dorajit::python
