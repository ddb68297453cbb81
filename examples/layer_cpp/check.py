"""Checks the files that `layer FOLDER` wrote against DoRA's definition in float64: check.py FOLDER."""

import pathlib
import sys

import numpy

# Of the largest element of a result. Each float32 step rounds by 6e-8, and a result takes a few steps.
BOUND = 1e-6


def expected_results(scale, weight, a, b, magnitude, x, d_out):
    """From the layer's dense weight g V, V = W + s B A; the norm of V is a constant of the gradients."""
    v = weight + scale * b @ a
    norm = numpy.linalg.norm(v, axis=1, keepdims=True)
    gain = magnitude / norm
    d_dense = d_out.T @ x
    d_v = gain * d_dense
    return {"out": x @ (gain * v).T, "d_x": d_out @ (gain * v), "d_a": scale * b.T @ d_v, "d_b": scale * d_v @ a.T,
            "d_magnitude": (d_dense * v).sum(1, keepdims=True) / norm}


def main():
    folder = pathlib.Path(sys.argv[1])

    def read(name, *shape):
        return numpy.fromfile(folder / f"{name}.f32", "<f4").astype(numpy.float64).reshape(shape)

    magnitude = read("magnitude", -1, 1)
    weight = read("weight", len(magnitude), -1)
    features = weight.shape[1]
    expected = expected_results(
        read("scale"), weight, read("a", -1, features), read("b", len(magnitude), -1), magnitude,
        read("x", -1, features), read("d_out", -1, len(magnitude)))
    errors = {name: abs(read(name, *right.shape) - right).max() / abs(right).max() for name, right in expected.items()}
    print("largest errors, of the largest element: "
          + ", ".join(f"{name} {error:.1e}" for name, error in errors.items()) + f"; allowed: {BOUND:.0e}")
    # NaN counts as an error, too.
    return 0 if all(error <= BOUND for error in errors.values()) else 1


if __name__ == "__main__":
    sys.exit(main())
