// The gradients of a DoRA linear layer behind the pass over its output: shared by the backward
// passes of the linear layer and of the gated MLP.
#pragma once

#include <Python.h>

#include <array>
#include <cstdint>
#include <span>
#include <stdexcept>

#include "bindings/python/eligibility.h"
#include "bindings/python/linear_products.h"
#include "bindings/python/torch_tensor.h"

namespace dorajit::python {

// The operands, as dorajit.layers.node names them. None: not needed, or not wanted.
struct Pass {
  pybind11::object d_out, x, mask, weight, a, b, low, inner, gain, divisor, scale;
  pybind11::object base;       // the Quantized that dequantizes `weight`, or None
  pybind11::object dropout;    // the active Dropout, or None
  PyObject* like_a = Py_None;  // of d_A's shape and type
  PyObject* like_b = Py_None;
  pybind11::object magnitude_type = pybind11::none();  // of d_magnitude
  pybind11::object through{};  // gradient of S before the scale, once it is known
  pybind11::object into{};     // a gradient of x, to which this one is added
  bool of_x = false;
  bool is_float = false;  // d_A and d_B are float32, not rounded to the type of the factors
};

struct Gradients {
  pybind11::object x = pybind11::none();  // a matrix
  pybind11::object a = pybind11::none();
  pybind11::object b = pybind11::none();
  pybind11::object magnitude = pybind11::none();
};

inline pybind11::object borrowed(PyObject* one) {
  return pybind11::reinterpret_borrow<pybind11::object>(one);
}

// alpha * left @ right: of left's type, or float32 without rounding to it. `like` has the result's
// shape and type.
inline pybind11::object product(PyObject* like, PyObject* left, PyObject* right, PyObject* alpha,
                                bool is_float) {
  const Products& of = products();
  if (is_float) {
    return call(of.addmm, std::array{like, left, right, of.zero, alpha, of.float32},
                of.beta_alpha_type);
  }
  return call(of.addmm, std::array{like, left, right, of.zero, alpha}, of.beta_alpha);
}

// The weight, of which nobody else keeps a dequantized copy.
inline pybind11::object weight_of(const Pass& pass) {
  const Products& of = products();
  if (pass.base.is_none()) return pass.weight;
  const pybind11::object made = call_method(of.dense, std::array{pass.base.ptr()});
  call_method(of.release, std::array{pass.base.ptr()});
  return call_method(of.to, std::array{made.ptr(), part(pass.d_out.ptr(), of.dtype).ptr()});
}

// The gradient of x, a matrix. `u` is that of the base product, alpha * t that of S.
inline pybind11::object gradient_of_x(const Pass& pass, const pybind11::object& u,
                                      const pybind11::object& through, PyObject* alpha,
                                      bool drops_base) {
  const Products& of = products();
  const pybind11::object weight = weight_of(pass);
  pybind11::object d_x = pass.into;
  if (d_x) {
    call_method(of.add_product, std::array{d_x.ptr(), u.ptr(), weight.ptr()});
  } else {
    d_x = call(of.mm, std::array{u.ptr(), weight.ptr()});
  }
  const bool drops_low = !pass.dropout.is_none() && !drops_base;
  if (!drops_low) {
    call_method(of.add_product, std::array{d_x.ptr(), through.ptr(), pass.a.ptr(), alpha},
                of.alpha);
  }
  if (pass.dropout.is_none()) return d_x;
  const pybind11::object mask = rows_of(pass.mask.ptr());
  if (drops_low) {
    const pybind11::object term = call(of.mm, std::array{through.ptr(), pass.a.ptr()});
    return call_method(of.add,
                       std::array{pass.dropout.ptr(), d_x.ptr(), term.ptr(), mask.ptr(), alpha});
  }
  const pybind11::object given =
      call(of.mm, std::array{rows_of(pass.d_out.ptr()).ptr(), weight.ptr()});
  return call_method(of.add, std::array{pass.dropout.ptr(), given.ptr(), d_x.ptr(), mask.ptr()});
}

// The gradients of x, A and B that the pass asks for. `u` is that of the base product, alpha *
// d_lora that of S B^T.
inline Gradients finish(Pass& pass, const pybind11::object& u, const pybind11::object& d_lora,
                        PyObject* alpha, bool drops_base) {
  const Products& of = products();
  Gradients found;
  if (!pass.through && (pass.of_x || pass.like_a != Py_None)) {
    pass.through = call(of.mm, std::array{d_lora.ptr(), pass.b.ptr()});
  }
  if (pass.like_b != Py_None) {
    found.b = product(pass.like_b, transposed(d_lora.ptr()).ptr(), rows_of(pass.low.ptr()).ptr(),
                      alpha, pass.is_float);
  }
  if (pass.like_a != Py_None) {
    const pybind11::object dropped =
        pass.dropout.is_none()
            ? pass.x
            : call_method(of.again, std::array{pass.dropout.ptr(), pass.x.ptr(), pass.mask.ptr(),
                                               part(pass.a.ptr(), of.dtype).ptr()});
    found.a = product(pass.like_a, transposed(pass.through.ptr()).ptr(),
                      rows_of(dropped.ptr()).ptr(), alpha, pass.is_float);
  }
  if (pass.of_x) found.x = gradient_of_x(pass, u, pass.through, alpha, drops_base);
  return found;
}

// Whether nothing observes launches with these tensors.
inline bool is_unobserved(std::span<PyObject* const> tensors, PyObject* scale) {
  const int seen = who_sees(tensors, std::span(&scale, 1));
  if (seen < 0) throw pybind11::error_already_set();
  return seen == kNobody;
}

// The matrix in the shape of the layer's input.
inline pybind11::object in_shape_of(const pybind11::object& matrix, const DLTensor& d_out) {
  if (d_out.ndim == 2) return matrix;
  const Products& of = products();
  TorchTensor read;
  if (!read.read_result(matrix)) throw std::runtime_error("the gradient of x cannot be read");
  const int last = d_out.ndim - 1;
  const pybind11::object sizes = owned(PyTuple_New(d_out.ndim));
  for (int i = 0; i <= last; ++i) {
    const std::int64_t size = i == last ? read.dl().shape[1] : d_out.shape[i];
    PyTuple_SET_ITEM(sizes.ptr(), i, PyLong_FromLongLong(size));
  }
  return call_method(of.view, std::array{matrix.ptr(), sizes.ptr()});
}

}  // namespace dorajit::python
