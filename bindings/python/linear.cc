// The launches of a forward pass of a DoRA linear layer (dorajit/layers/node.py) in one call.
#include <Python.h>

#include <array>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <map>
#include <span>

#include "bindings/python/linear_products.h"
#include "bindings/python/module_parts.h"
#include "bindings/python/native_operation.h"
#include "bindings/python/torch_tensor.h"

namespace dorajit::python {
namespace {

namespace py = pybind11;

// False for a view whose storage was resized to zero bytes, as FSDP does.
bool has_memory(PyObject* tensor, const DLTensor& read) {
  const Products& of = products();
  // Launches refuse the address of freed memory, null, except of a view behind its beginning, whose
  // address is its offset.
  constexpr auto kMaxOffset = std::uintptr_t{1} << 38;
  if (std::bit_cast<std::uintptr_t>(read.data) >= kMaxOffset) return true;
  if (PyLong_AsLongLong(call_method(of.offset, std::array{tensor}).ptr()) == 0) return true;
  const py::object storage = call_method(of.storage, std::array{tensor});
  return PyLong_AsLongLong(call_method(of.nbytes, std::array{storage.ptr()}).ptr()) != 0;
}

// A Python function that answers a question about up to four matrices and vectors on one device.
// Answers are kept: they depend on element types, shapes, the device, and whether rows are
// contiguous. Used under the GIL.
class Question {
 public:
  void set(const py::function& function) { function_ = function.inc_ref().ptr(); }

  // Borrowed. `read` are the tensors as read.
  PyObject* answer(std::span<PyObject* const> tensors, std::span<const TorchTensor> read) {
    Key key{};
    key[0] = read[0].dl().device.device_type | std::int64_t{read[0].dl().device.device_id} << 32;
    for (std::size_t i = 0; i < read.size(); ++i) write(read[i].dl(), &key[1 + 3 * i]);
    const auto found = answers_.find(key);
    if (found != answers_.end()) return found->second;
    if (answers_.size() == kMaxAnswers) answers_.clear();  // their references are few and stay
    PyObject* const made =
        owned(PyObject_Vectorcall(function_, tensors.data(), tensors.size(), nullptr))
            .release()
            .ptr();
    return answers_[key] = made;
  }

 private:
  static constexpr std::size_t kMaxAnswers = 4096;
  using Key = std::array<std::int64_t, 13>;

  static void write(const DLTensor& tensor, std::int64_t* to) {
    const std::int64_t rows = tensor.ndim > 0 ? tensor.shape[0] : 1;
    const std::int64_t cols = tensor.ndim > 1 ? tensor.shape[1] : 1;
    const bool has_rows = tensor.ndim < 2 || ((cols <= 1 || tensor.strides[1] == 1) &&
                                              (rows <= 1 || tensor.strides[0] >= cols));
    to[0] = tensor.dtype.code | tensor.dtype.bits << 8 | tensor.ndim << 16 | int{has_rows} << 24;
    to[1] = rows;
    to[2] = cols;
  }

  PyObject* function_ = nullptr;
  std::map<Key, PyObject*> answers_;
};

// What dorajit/layers/node.py decides.
struct Rules {
  Question gain_type;      // (weight, A, B, magnitude) -> the element type of the gain, or None
  Question is_one_launch;  // (B) -> whether compose_low_rank is used
  PyObject* compute_gain = nullptr;
};

Rules& rules() {
  static Rules all;
  return all;
}

// Computes divisor and gain into the call. False: no kernel takes the tensors.
bool launch_norm(PyObject* call, PyObject* scale) {
  const Products& of = products();
  static NativeOperation& weight_norm = operation_named("weight_norm");
  const py::object operands = part(call, of.of_norm);
  const py::object magnitude = part(call, of.magnitude);
  const std::array read = {PyTuple_GetItem(operands.ptr(), 0), PyTuple_GetItem(operands.ptr(), 1),
                           PyTuple_GetItem(operands.ptr(), 2), magnitude.ptr()};
  std::array<TorchTensor, 4> tensors;
  for (std::size_t i = 0; i < read.size(); ++i) {
    if (read[i] == nullptr) throw py::error_already_set();
    if (!tensors[i].read(read[i]) || !has_memory(read[i], tensors[i].dl())) return false;
  }
  if (PyFloat_AsDouble(scale) == 0) return false;
  PyObject* const type = rules().gain_type.answer(read, tensors);
  if (type == Py_None) return false;
  const py::object made =
      launch(weight_norm,
             std::array{read[0], read[1], read[2], read[3], Py_None, Py_None, type, type}, scale);
  if (!made) return false;
  set_part(call, of.gain, PyTuple_GET_ITEM(made.ptr(), 2));
  set_part(call, of.divisor, PyTuple_GET_ITEM(made.ptr(), 3));
  return true;
}

bool uses_one_launch(PyObject* b) {
  TorchTensor read;
  if (!read.read(b)) return false;
  return rules().is_one_launch.answer(std::span(&b, 1), std::span(&read, 1)) == Py_True;
}

// (x, given, call, bias, inner_type, ends_weight) -> (out, S, inner) or None.
PyObject* linear_forward(PyObject*, PyObject* const* arguments, Py_ssize_t count) noexcept {
  if (count != 6) {
    PyErr_Format(PyExc_TypeError, "linear_forward takes 6 arguments, not %zd", count);
    return nullptr;
  }
  const auto [x, given, call_of, bias, inner_type, ends_weight] = std::to_array(
      {arguments[0], arguments[1], arguments[2], arguments[3], arguments[4], arguments[5]});
  return with_python_errors([&]() -> PyObject* {
    const Products& of = products();
    static NativeOperation& compose_low_rank = operation_named("compose_low_rank");
    static NativeOperation& compose_residual = operation_named("compose_residual");
    const py::object scale = part(call_of, of.scale);
    if (part(call_of, of.gain).is_none() && !launch_norm(call_of, scale.ptr())) {
      owned(PyObject_CallOneArg(rules().compute_gain, call_of));
    }
    py::object out = call(of.linear, std::array{x, part(call_of, of.weight).ptr(), bias});
    if (ends_weight == Py_True) {  // its memory can be that of inner
      set_part(call_of, of.weight, Py_None);
      set_part(call_of, of.of_norm, Py_None);
    }
    // Autograd forbids writing to a view later that was created without a graph.
    if (call_method(of.is_view, std::array{out.ptr()}).ptr() == Py_True) {
      out = owned(PyObject_CallOneArg(of.without_view, out.ptr()));
    }
    const py::object b = part(call_of, of.b);
    const bool is_one_launch = uses_one_launch(b.ptr());
    // compose_residual needs two results of one shape; PyTorch multiplies matrices in less host
    // time.
    const py::object rows =
        is_one_launch ? rows_of(given) : py::reinterpret_borrow<py::object>(given);
    const py::object low = call(of.linear, std::array{rows.ptr(), part(call_of, of.a).ptr()});
    const py::object gain = part(call_of, of.gain);
    py::object made;
    if (is_one_launch) {
      made =
          launch(compose_low_rank,
                 std::array{low.ptr(), b.ptr(), out.ptr(), gain.ptr(), bias, out.ptr(), inner_type},
                 scale.ptr());
    } else {
      const py::object lora = call(of.linear, std::array{low.ptr(), b.ptr()});
      // inner is written over lora if it has its type.
      const bool is_over = inner_type != Py_None && lora.attr(of.dtype).ptr() == inner_type;
      made = launch(compose_residual,
                    std::array{lora.ptr(), out.ptr(), gain.ptr(), bias, out.ptr(),
                               is_over ? lora.ptr() : inner_type},
                    scale.ptr());
    }
    if (!made) return none();
    return PyTuple_Pack(3, out.ptr(), low.ptr(), PyTuple_GET_ITEM(made.ptr(), 1));
  });
}

}  // namespace

void add_linear(py::module_& module) {
  static std::array methods = {
      fast_method(
          "linear_forward", linear_forward,
          "linear_forward($module, x, given, call, bias, inner_type, ends_weight, /)\n--\n\n"
          "The launches of a forward pass with a dorajit.layers.node.Call that nothing observes: "
          "(output, S = given A^T, as a matrix if compose_low_rank is used, inner or None); None "
          "if "
          "no kernel takes the tensors. Divisor and gain are computed into the call if it has "
          "none, "
          "also if the result is None. ends_weight: the weight is dropped after the product."),
      PyMethodDef{},
  };
  if (PyModule_AddFunctions(module.ptr(), methods.data()) != 0) throw py::error_already_set();
  module.def(
      "configure_linear",
      [](const py::function& gain_type, const py::function& is_one_launch,
         const py::function& compute_gain) {
        rules().gain_type.set(gain_type);
        rules().is_one_launch.set(is_one_launch);
        rules().compute_gain = compute_gain.inc_ref().ptr();
      },
      py::arg("gain_type"), py::arg("is_one_launch"), py::arg("compute_gain"),
      "Passes functions of Python: (weight, A, B, magnitude) -> the element type of the gain that "
      "the kernel weight_norm computes, or None; (B) -> whether compose_low_rank is used; and one "
      "that computes a call's divisor and gain by other means. Answers of the first two are kept.");
  module.def(
      "configure_products",
      [](const py::object& linear, const py::object& mm, const py::object& addmm,
         const py::object& float32, const py::object& without_view) {
        Products& of = products();
        of.linear = linear.inc_ref().ptr();
        of.mm = mm.inc_ref().ptr();
        of.addmm = addmm.inc_ref().ptr();
        of.float32 = float32.inc_ref().ptr();
        of.without_view = without_view.inc_ref().ptr();
      },
      py::arg("linear"), py::arg("mm"), py::arg("addmm"), py::arg("float32"),
      py::arg("without_view"),
      "Passes PyTorch's matrix products, torch.float32, and a function that returns a view's "
      "memory "
      "as a tensor that is no view.");
}

}  // namespace dorajit::python
