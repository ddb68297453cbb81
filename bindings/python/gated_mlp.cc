// The launches of a backward pass of a gated MLP (dorajit/layers/gated_mlp.py) in one call.
#include <Python.h>

#include <array>
#include <cstddef>
#include <optional>
#include <stdexcept>

#include "bindings/python/linear_gradients.h"
#include "bindings/python/module_parts.h"

namespace dorajit::python {
namespace {

namespace py = pybind11;

enum Layer : std::size_t { kGate, kUp, kDown, kLayers };

// The arguments that are not operands of a layer.
struct Mlp {
  py::object d_out, x, e, u;
  std::array<PyObject*, kLayers> calls;
  PyObject* trained;  // tuple: A and B of each layer, then the magnitudes
  PyObject* wanted;   // tuple of bools: of x, then as `trained`
  NativeOperation* activation_backward;
  bool is_float;
  bool writes_over;  // e and u
};

// In the order of Mlp::wanted.
using Found = std::array<py::object, 1 + 3 * kLayers>;
constexpr std::size_t of_a(Layer layer) { return 1 + 2 * layer; }
constexpr std::size_t of_b(Layer layer) { return 2 + 2 * layer; }
constexpr std::size_t of_magnitude(Layer layer) { return 1 + 2 * kLayers + layer; }

bool is_wanted(const Mlp& mlp, std::size_t which) {
  return PyTuple_GET_ITEM(mlp.wanted, static_cast<Py_ssize_t>(which)) == Py_True;
}

PyObject* trained_one(const Mlp& mlp, std::size_t which) {
  return PyTuple_GET_ITEM(mlp.trained, static_cast<Py_ssize_t>(which - 1));
}

PyObject* like(const Mlp& mlp, std::size_t which) {
  return is_wanted(mlp, which) ? trained_one(mlp, which) : Py_None;
}

Pass pass_of(const Mlp& mlp, Layer layer) {
  const Products& of = products();
  PyObject* const call = mlp.calls[layer];
  return {.d_out = mlp.d_out,
          .x = mlp.x,
          .mask = part(call, of.mask),
          .weight = part(call, of.weight),
          .a = part(call, of.a),
          .b = part(call, of.b),
          .low = part(call, of.low),
          .inner = py::none(),
          .gain = part(call, of.gain),
          .divisor = py::none(),
          .scale = part(call, of.scale),
          .base = part(call, of.base),
          .dropout = part(call, of.dropout),
          .like_a = like(mlp, of_a(layer)),
          .like_b = like(mlp, of_b(layer)),
          .is_float = mlp.is_float};
}

// The pass over the output of down and its products, except d_A, which needs the input of down.
// Returns the gradient of that input, a matrix; empty if no kernel takes the tensors.
std::optional<py::object> pass_down(const Mlp& mlp, Pass& down, Found& found) {
  const Products& of = products();
  static NativeOperation& magnitude_backward = operation_named("magnitude_backward");
  PyObject* const call = mlp.calls[kDown];
  py::object type = py::none();
  if (is_wanted(mlp, of_magnitude(kDown))) {
    type = part(trained_one(mlp, of_magnitude(kDown)), of.dtype);
    down.inner = part(call, of.inner);
    down.divisor = part(call, of.divisor);
  }
  set_part(call, of.inner, Py_None);
  const py::object made = launch(magnitude_backward,
                                 std::array{mlp.d_out.ptr(), down.inner.ptr(), down.gain.ptr(),
                                            down.divisor.ptr(), Py_None, Py_True, type.ptr()},
                                 down.scale.ptr());
  if (!made) {
    set_part(call, of.inner, down.inner.ptr());
    return std::nullopt;
  }
  down.inner = py::none();
  found[of_magnitude(kDown)] = borrowed(PyTuple_GET_ITEM(made.ptr(), 2));
  const py::object u = rows_of(PyTuple_GET_ITEM(made.ptr(), 1));
  PyObject* const like_a = down.like_a;
  down.of_x = true;
  down.like_a = Py_None;
  const Gradients gradients = finish(down, u, u, down.scale.ptr(), false);
  found[of_b(kDown)] = gradients.b;
  down.of_x = false;
  down.like_a = like_a;
  down.like_b = Py_None;
  return gradients.x;
}

// (act(e) * u, the gradients of the products of gate and up, those of both magnitudes) over d_a.
py::object pass_activation(const Mlp& mlp, const py::object& d_a, const Pass& gate,
                           const Pass& up) {
  const Products& of = products();
  const py::object e = rows_of(mlp.e.ptr());
  const py::object u = rows_of(mlp.u.ptr());
  py::object type = py::none();
  std::array<py::object, 2> magnitudes = {py::none(), py::none()};
  if (is_wanted(mlp, of_magnitude(kGate)) || is_wanted(mlp, of_magnitude(kUp))) {
    type = part(trained_one(mlp, of_magnitude(kGate)), of.dtype);
    for (const Layer layer : {kGate, kUp}) magnitudes[layer] = part(mlp.calls[layer], of.magnitude);
  }
  const py::object made =
      launch(*mlp.activation_backward,
             std::array{d_a.ptr(), e.ptr(), u.ptr(), gate.gain.ptr(), up.gain.ptr(),
                        magnitudes[kGate].ptr(), magnitudes[kUp].ptr(), d_a.ptr(),
                        mlp.writes_over ? e.ptr() : Py_True, mlp.writes_over ? u.ptr() : Py_True,
                        type.ptr(), type.ptr()},
             of.one);
  if (!made)
    throw std::runtime_error("no kernel takes the activation's tensors, but one took its output");
  return made;
}

std::optional<Found> run(const Mlp& mlp) {
  Pass down = pass_of(mlp, kDown);
  if (!is_unobserved(std::array{mlp.d_out.ptr(), down.gain.ptr()}, down.scale.ptr())) return {};
  Found found;
  found.fill(py::none());
  auto d_a = pass_down(mlp, down, found);
  if (!d_a) return {};
  std::array passes = {pass_of(mlp, kGate), pass_of(mlp, kUp)};
  const py::object made = pass_activation(mlp, *d_a, passes[kGate], passes[kUp]);
  d_a.reset();
  down.x = borrowed(PyTuple_GET_ITEM(made.ptr(), 0));
  if (!down.mask.is_none()) down.mask = rows_of(down.mask.ptr());
  found[of_a(kDown)] = finish(down, py::none(), py::none(), down.scale.ptr(), false).a;
  down.x = py::none();
  PyTuple_SetItem(made.ptr(), 0, Py_NewRef(Py_None));  // the tuple is ours alone
  for (const Layer layer : {kGate, kUp}) {
    Pass& pass = passes[layer];
    const py::object d = borrowed(PyTuple_GET_ITEM(made.ptr(), static_cast<Py_ssize_t>(1 + layer)));
    pass.of_x = is_wanted(mlp, 0);
    if (layer == kUp && pass.of_x) pass.into = found[0];
    const Gradients gradients = finish(pass, d, d, pass.scale.ptr(), false);
    found[of_a(layer)] = gradients.a;
    found[of_b(layer)] = gradients.b;
    if (pass.of_x) found[0] = gradients.x;
    if (is_wanted(mlp, of_magnitude(layer))) {
      found[of_magnitude(layer)] =
          borrowed(PyTuple_GET_ITEM(made.ptr(), static_cast<Py_ssize_t>(3 + layer)));
    }
  }
  return found;
}

// (d_out, x, e, u, gate, up, down, trained, wanted, operation, is_float, writes_over) -> tuple or
// None.
PyObject* gated_mlp_gradients(PyObject*, PyObject* const* arguments, Py_ssize_t count) noexcept {
  if (count != 12) {
    PyErr_Format(PyExc_TypeError, "gated_mlp_gradients takes 12 arguments, not %zd", count);
    return nullptr;
  }
  return with_python_errors([&]() -> PyObject* {
    const char* const operation = PyUnicode_AsUTF8(arguments[9]);
    if (operation == nullptr) throw py::error_already_set();
    const Mlp mlp{.d_out = borrowed(arguments[0]),
                  .x = borrowed(arguments[1]),
                  .e = borrowed(arguments[2]),
                  .u = borrowed(arguments[3]),
                  .calls = {arguments[4], arguments[5], arguments[6]},
                  .trained = arguments[7],
                  .wanted = arguments[8],
                  .activation_backward = &operation_named(operation),
                  .is_float = arguments[10] == Py_True,
                  .writes_over = arguments[11] == Py_True};
    TorchTensor d_out;
    if (!d_out.read(mlp.d_out) || d_out.dl().ndim < 2) return none();
    auto found = run(mlp);
    if (!found) return none();
    if (is_wanted(mlp, 0)) found->front() = in_shape_of(found->front(), d_out.dl());
    const py::object made = owned(PyTuple_New(static_cast<Py_ssize_t>(found->size())));
    for (std::size_t i = 0; i < found->size(); ++i) {
      PyTuple_SET_ITEM(made.ptr(), static_cast<Py_ssize_t>(i), (*found)[i].release().ptr());
    }
    return py::object(made).release().ptr();
  });
}

}  // namespace

void add_gated_mlp(py::module_& module) {
  static std::array methods = {
      fast_method(
          "gated_mlp_gradients", gated_mlp_gradients,
          "gated_mlp_gradients($module, d_out, x, e, u, gate, up, down, trained, wanted, "
          "operation, is_float, writes_over, /)\n--\n\n"
          "The launches of a backward pass of a gated MLP with the Calls of its layers: the "
          "gradients of x and `trained` (A and B of each layer, then the magnitudes), None where "
          "`wanted` is not true; None if something observes the call or no kernel takes the "
          "tensors. is_float: the gradients of A and B are not rounded to the type of the "
          "products. "
          "writes_over: e and u are overwritten."),
      PyMethodDef{},
  };
  if (PyModule_AddFunctions(module.ptr(), methods.data()) != 0) throw py::error_already_set();
}

}  // namespace dorajit::python
