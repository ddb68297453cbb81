// The composition, by itself and over a base result, as a node of autograd's graph: what
// dorajit/autograd.py does in Python, for plain tensors and kernels that take them as they are.
// Anything else is left to Python. Compiled against the PyTorch that it serves (__init__.py), with
// its C++ interface for custom functions.
#include <c10/core/impl/VirtualGuardImpl.h>
#include <torch/csrc/DynamicTypes.h>
#include <torch/csrc/Exceptions.h>
#include <torch/csrc/autograd/custom_function.h>
#include <torch/csrc/autograd/python_variable.h>
#include <torch/csrc/utils/pybind.h>

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>

#include "calls.h"

namespace dorajit::python {
namespace {

using at::Tensor;
using torch::autograd::AutogradContext;
using torch::autograd::variable_list;

// Set by configure() and never dropped.
const NodeCalls* calls = nullptr;
PyObject* differentiate = nullptr;  // of autograd.py: backward, wherever this may not do it

struct ElementType {
  std::uint8_t code;
  std::uint8_t bits;
};

std::optional<ElementType> element_type(at::ScalarType type) {
  constexpr std::uint8_t kFloat = 2;
  constexpr std::uint8_t kBfloat = 4;
  switch (type) {
    case at::kFloat:
      return ElementType{kFloat, 32};
    case at::kHalf:
      return ElementType{kFloat, 16};
    case at::kDouble:
      return ElementType{kFloat, 64};
    case at::kBFloat16:
      return ElementType{kBfloat, 16};
    default:
      return std::nullopt;
  }
}

// Whether what the tensor holds is in its memory, and nobody wants to see what is done to it.
bool is_plain(const Tensor& tensor) {
  return tensor.layout() == at::kStrided && tensor.has_storage() && !tensor.is_neg() &&
         !tensor._is_zerotensor() && !tensor.unsafeGetTensorImpl()->is_python_dispatch() &&
         (tensor.is_cpu() || tensor.is_cuda());
}

// One call of the extension. The tensors that are added have to outlive it.
class Call {
 public:
  Call(NodeOperation operation, double scale) : call_{} {
    call_.operation = operation;
    call_.scale = scale;
  }
  Call(const Call&) = delete;
  Call& operator=(const Call&) = delete;

  // An operand; undefined: none. False if no kernel takes it.
  bool add(const Tensor& tensor) {
    if (!tensor.defined()) return skip();
    return is_plain(tensor) && place(tensor, const_cast<void*>(tensor.const_data_ptr()));
  }

  // A tensor that was just allocated, to be written; undefined: none.
  bool add_result(const Tensor& tensor) {
    return tensor.defined() ? place(tensor, tensor.mutable_data_ptr()) : skip();
  }

  void set_workspace(const Tensor& bytes) {
    call_.workspace = bytes.mutable_data_ptr();
    call_.workspace_bytes = bytes.numel();
  }

  const NodeTensor& operator[](std::size_t i) const { return tensors_[i]; }

  // Whether it was done; if not, nothing was. Raises what fails on every way.
  bool run(const at::Device& device, bool has_gil) {
    if (device.is_cuda()) {
      call_.stream = c10::impl::VirtualGuardImpl(device.type()).getStream(device).native_handle();
    }
    void* error = nullptr;
    const std::int32_t outcome =
        (has_gil ? calls->run_with_gil : calls->run_without_gil)(call_, &error);
    if (outcome == kNodeDone) return true;
    if (outcome == kNodeServedOtherwise) return false;
    const pybind11::gil_scoped_acquire gil;
    calls->raise(outcome, error);
    python_error raised;
    raised.persist();
    throw raised;
  }

 private:
  static constexpr std::int64_t kMostDims = 16;

  struct Extents {
    std::array<std::int64_t, kMostDims> shape;
    std::array<std::int64_t, kMostDims> strides;
  };

  bool skip() {
    ++count_;
    return true;
  }

  bool place(const Tensor& tensor, void* data) {
    const auto type = element_type(tensor.scalar_type());
    if (!type || tensor.dim() > kMostDims) return false;
    // The tensor may be resized while the kernel is compiled.
    Extents& extents = extents_[count_];
    std::ranges::copy(tensor.sizes(), extents.shape.begin());
    std::ranges::copy(tensor.strides(), extents.strides.begin());
    constexpr std::int32_t kCpu = 1;
    constexpr std::int32_t kCuda = 2;
    tensors_[count_] = {.data = data,
                        .shape = extents.shape.data(),
                        .strides = extents.strides.data(),
                        .dims = static_cast<std::int32_t>(tensor.dim()),
                        .device_type = tensor.is_cuda() ? kCuda : kCpu,
                        .device_index = tensor.is_cuda() ? tensor.get_device() : 0,
                        .type_code = type->code,
                        .type_bits = type->bits};
    call_.tensors[count_] = &tensors_[count_];
    ++count_;
    return true;
  }

  NodeCall call_;
  std::array<NodeTensor, kMostNodeTensors> tensors_;
  std::array<Extents, kMostNodeTensors> extents_;
  std::size_t count_ = 0;
};

// A forward pass.
struct Composed {
  bool is_residual;
  double scale;
  Tensor lora;
  Tensor base;  // or the result
  Tensor gain;
  Tensor bias;     // undefined: none
  Tensor out{};    // undefined until compute() has made it
  Tensor inner{};  // as out; undefined if gain needs no gradient
};

// Whether a kernel did it. Needs the GIL.
bool compute(Composed& call) {
  const at::AutoDispatchBelowADInplaceOrView below_autograd;
  const auto& [is_residual, scale, lora, base, gain, bias, ignored, also_ignored] = call;
  // Of two types the sum would have the wider.
  if (is_residual && lora.scalar_type() != base.scalar_type()) return false;
  if (lora.sizes() != base.sizes()) return false;
  const bool keeps_inner = gain.requires_grad();
  const auto operation = is_residual   ? NodeOperation::kComposeResidual
                         : keeps_inner ? NodeOperation::kComposeInner
                                       : NodeOperation::kCompose;
  Call kernel(operation, scale);
  if (!kernel.add(lora) || !kernel.add(base) || !kernel.add(gain)) return false;
  Tensor channels = bias;
  if (is_residual) {
    if (bias.defined() && bias.dim() != gain.dim() && bias.numel() == gain.numel()) {
      channels = bias.reshape(gain.sizes());
    }
    if (!kernel.add(channels)) return false;
  }
  call.out = at::empty_like(lora);
  if (keeps_inner) call.inner = at::empty_like(lora);
  kernel.add_result(call.out);
  if (is_residual || keeps_inner) kernel.add_result(call.inner);
  return kernel.run(lora.device(), true);
}

// What a backward pass starts from.
struct Kept {
  bool is_residual;
  double scale;
  Tensor gain;
  Tensor inner;                // undefined unless gain's gradient is wanted
  std::array<bool, 3> wanted;  // of lora, base and gain
  at::ScalarType lora_type;
  at::ScalarType base_type;
};

using Gradients = std::array<Tensor, 3>;

// The gradients through out by a kernel, undefined where none is wanted; nothing if Python has to
// see to it.
std::optional<Gradients> try_to_differentiate(const Tensor& d_out, const Kept& kept) {
  if (kept.wanted[2] && (!kept.inner.defined() || d_out.sizes() != kept.inner.sizes())) return {};
  const auto operation =
      kept.is_residual ? NodeOperation::kResidualBackward : NodeOperation::kBackward;
  Call kernel(operation, kept.scale);
  if (!kernel.add(d_out) || !kernel.add(kept.wanted[2] ? kept.inner : Tensor()) ||
      !kernel.add(kept.gain)) {
    return {};
  }
  const at::ScalarType lora_type = kept.is_residual ? kept.lora_type : d_out.scalar_type();
  Gradients gradients;
  if (kept.wanted[0]) gradients[0] = at::empty_like(d_out, d_out.options().dtype(lora_type));
  if (kept.wanted[1]) gradients[1] = at::empty_like(d_out, d_out.options().dtype(kept.base_type));
  if (kept.wanted[2]) gradients[2] = at::empty_like(kept.gain);
  for (const Tensor& one : gradients) {
    if (!kernel.add_result(one)) return {};
  }
  Tensor workspace;
  if (kept.wanted[2]) {
    const std::int64_t bytes = calls->workspace_bytes(kernel[0], kernel[2]);
    if (bytes < 0) return {};
    if (bytes > 0) {
      workspace = at::empty({bytes}, d_out.options().dtype(at::kByte));
      kernel.set_workspace(workspace);
    }
  }
  if (!kernel.run(d_out.device(), false)) return {};
  return gradients;
}

// The same through out and inner, by autograd.py; either may be undefined.
Gradients differentiate_in_python(const Tensor& d_out, const Tensor& d_inner, const Kept& kept) {
  namespace py = pybind11;
  const py::gil_scoped_acquire gil;
  const auto type = [](at::ScalarType one) {
    return py::reinterpret_borrow<py::object>(reinterpret_cast<PyObject*>(torch::getTHPDtype(one)));
  };
  try {
    const py::tuple found = py::handle(differentiate)(
        kept.is_residual, d_out, d_inner, py::make_tuple(kept.gain, kept.inner), kept.scale,
        py::make_tuple(kept.wanted[0], kept.wanted[1], kept.wanted[2]), type(kept.lora_type),
        type(kept.base_type));
    Gradients gradients;
    for (std::size_t i = 0; i < gradients.size(); ++i) {
      if (!found[i].is_none()) gradients[i] = found[i].cast<Tensor>();
    }
    return gradients;
  } catch (py::error_already_set& error) {
    error.restore();
    python_error raised;
    raised.persist();
    throw raised;
  }
}

struct Composition : torch::autograd::Function<Composition> {
  // Compiled autograd may trace backward: tensors without memory go to Python, operation by
  // operation.
  static constexpr bool is_traceable = true;

  static variable_list forward(AutogradContext* ctx, const Tensor& lora, const Tensor& base,
                               const Tensor& gain, const Composed& call) {
    ctx->set_materialize_grads(false);
    ctx->save_for_backward({gain, call.inner});
    ctx->saved_data["scale"] = call.scale;
    ctx->saved_data["is_residual"] = call.is_residual;
    ctx->saved_data["lora_type"] = static_cast<std::int64_t>(lora.scalar_type());
    ctx->saved_data["base_type"] = static_cast<std::int64_t>(base.scalar_type());
    // inner is an output as well, so that a graph of the backward pass leads back through it.
    if (call.inner.defined()) return {call.out, call.inner};
    return {call.out};
  }

  static variable_list backward(AutogradContext* ctx, const variable_list& gradients) {
    const variable_list saved = ctx->get_saved_variables();
    const auto type = [&](const char* name) {
      return static_cast<at::ScalarType>(ctx->saved_data[name].toInt());
    };
    const Kept kept = {
        .is_residual = ctx->saved_data["is_residual"].toBool(),
        .scale = ctx->saved_data["scale"].toDouble(),
        .gain = saved[0],
        .inner = saved[1],
        .wanted = {ctx->needs_input_grad(0), ctx->needs_input_grad(1), ctx->needs_input_grad(2)},
        .lora_type = type("lora_type"),
        .base_type = type("base_type")};
    const Tensor& d_out = gradients[0];
    const Tensor d_inner = gradients.size() > 1 ? gradients[1] : Tensor();
    std::optional<Gradients> found;
    if (d_out.defined() && !d_inner.defined() && !at::GradMode::is_enabled()) {
      found = try_to_differentiate(d_out, kept);
    }
    if (!found) found = differentiate_in_python(d_out, d_inner, kept);
    return {(*found)[0], (*found)[1], (*found)[2], Tensor()};
  }
};

// The result as a node of the graph, or None if Python has to see to it.
PyObject* compose(Composed& call) {
  if (!compute(call)) Py_RETURN_NONE;
  try {
    return THPVariable_Wrap(Composition::apply(call.lora, call.base, call.gain, call)[0]);
  } catch (...) {
    // A hook of saved tensors has raised, as those of checkpoints do when they have what they want.
    // The node still holds the tensors it was to save, of which inner would hold the node.
    call.out.detach_();
    if (call.inner.defined()) call.inner.detach_();
    throw;
  }
}

bool are_tensors(PyObject* const* arguments, Py_ssize_t count) {
  for (Py_ssize_t i = 0; i < count; ++i) {
    if (!THPVariable_Check(arguments[i])) {
      PyErr_Format(PyExc_TypeError, "argument %zd is no tensor", i);
      return false;
    }
  }
  return true;
}

PyObject* compose(PyObject* /*module*/, PyObject* const* arguments, Py_ssize_t count) {
  HANDLE_TH_ERRORS
  TORCH_CHECK_TYPE(count == 4, "takes lora, base, gain and scale");
  if (!are_tensors(arguments, 3)) return nullptr;
  Composed call = {.is_residual = false,
                   .scale = PyFloat_AsDouble(arguments[3]),
                   .lora = THPVariable_Unpack(arguments[0]),
                   .base = THPVariable_Unpack(arguments[1]),
                   .gain = THPVariable_Unpack(arguments[2]),
                   .bias = {}};
  if (PyErr_Occurred() != nullptr) return nullptr;
  return compose(call);
  END_HANDLE_TH_ERRORS
}

PyObject* compose_residual(PyObject* /*module*/, PyObject* const* arguments, Py_ssize_t count) {
  HANDLE_TH_ERRORS
  TORCH_CHECK_TYPE(count == 5, "takes lora, result, gain, bias and scale");
  const bool has_bias = arguments[3] != Py_None;
  if (!are_tensors(arguments, has_bias ? 4 : 3)) return nullptr;
  Composed call = {.is_residual = true,
                   .scale = PyFloat_AsDouble(arguments[4]),
                   .lora = THPVariable_Unpack(arguments[0]),
                   .base = THPVariable_Unpack(arguments[1]),
                   .gain = THPVariable_Unpack(arguments[2]),
                   .bias = has_bias ? THPVariable_Unpack(arguments[3]) : Tensor()};
  if (PyErr_Occurred() != nullptr) return nullptr;
  return compose(call);
  END_HANDLE_TH_ERRORS
}

// (capsule of NodeCalls, Python's backward)
PyObject* configure(PyObject* /*module*/, PyObject* const* arguments, Py_ssize_t count) {
  HANDLE_TH_ERRORS
  TORCH_CHECK_TYPE(count == 2, "takes a capsule and a function");
  const void* const given = PyCapsule_GetPointer(arguments[0], kNodeCallsName);
  if (given == nullptr) return nullptr;
  calls = static_cast<const NodeCalls*>(given);
  differentiate = Py_NewRef(arguments[1]);
  Py_RETURN_NONE;
  END_HANDLE_TH_ERRORS
}

PyMethodDef method(const char* name, _PyCFunctionFast function, const char* documentation) {
  // Python's own way to keep functions of several signatures in one field.
  return {name, reinterpret_cast<PyCFunction>(reinterpret_cast<void (*)()>(function)),
          METH_FASTCALL, documentation};
}

}  // namespace
}  // namespace dorajit::python

PyMODINIT_FUNC PyInit_dorajit_autograd_node() {
  namespace node = dorajit::python;
  static PyMethodDef methods[] = {
      node::method("configure", node::configure, "(calls, differentiate) -> None"),
      node::method("compose", node::compose, "(lora, base, gain, scale) -> Tensor | None"),
      node::method("compose_residual", node::compose_residual,
                   "(lora, result, gain, bias, scale) -> Tensor | None"),
      {}};
  static PyModuleDef module{};
  module.m_base = PyModuleDef_HEAD_INIT;
  module.m_name = "dorajit_autograd_node";
  module.m_size = -1;
  module.m_methods = methods;
  return PyModule_Create(&module);
}
