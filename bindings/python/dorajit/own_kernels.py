"""Kernels of the user's own: CUDA C++ that is compiled, tuned and launched as the library's are."""

import json
import pathlib
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Optional, Union

import torch

from dorajit import _native, control, errors

_INTEGERS = tuple(f"{sign}int{bits}" for sign in ("", "u") for bits in (8, 16, 32, 64))
_ELEMENT_TYPES = ("float32", "bfloat16", "float16", "float64", "float8_e4m3fn", "float8_e5m2", *_INTEGERS, "bool")
_NATIVE_TYPES = {"__half": "float16", "__nv_bfloat16": "bfloat16", "__nv_fp8_e4m3": "float8_e4m3fn",
                 "__nv_fp8_e5m2": "float8_e5m2"}
# The scalars of a description, and their types in schemas.
_PYTHON_TYPES = {**dict.fromkeys(_INTEGERS, "int"), "bool": "bool", "float32": "float", "float64": "float"}
Expressions = Union[str, int, Sequence[Union[str, int]]]


def _plain(value):
    """A value of a description as JSON has it: of NumPy's numbers, of element types, of sequences."""
    if isinstance(value, torch.dtype):
        return str(value).removeprefix("torch.")
    return value.item() if hasattr(value, "item") else list(value)


class Kernel:
    """CUDA C++ that is compiled with NVRTC, tuned on first use and launched on PyTorch's current stream.

        scale = dorajit.Kernel(
            name="scale", source=CUDA_CPP, entry="scale<BLOCK>",
            arguments=[("x", "in", "T[n]"), ("out", "out", "T[n]"), ("n", "int64"), ("factor", "float32")],
            types={"T": ["float32", "bfloat16"]}, parameters={"BLOCK": [128, 256]}, default={"BLOCK": 256},
            grid="ceil_div(n, BLOCK)", block="BLOCK", key=["T", "bucket(n)"])
        scale(x, out, x.numel(), 2.0)

    docs/own_kernels.md walks through a kernel, docs/own_kernel_format.md says what each field may be.

    Args:
        name: in messages and results.
        source: CUDA C++, or the path of a file that ends in .cu or .cuh.
        entry: the __global__ function, with its template arguments.
        arguments: of the function, in its order: (name, "in", "out" or "inout", "T[n, m]") of a tensor, whose
            dimensions are names, numbers and expressions, with strides as in "T[n:row_stride, m / 2]",
            (name, type) of a scalar, (name, type, value for tuning) of one that configs do not depend on,
            (name, "workspace", "float32[elements]") of memory that each call gets and nobody passes,
            (name, "tensor_map", {"of": tensor, "box": [...], "swizzle": 128}) of a CUtensorMap, which nobody passes.
        grid, block: expressions, one for each axis.
        cluster: blocks of a cluster, an expression for each axis.
        cooperative: whether all blocks of the grid run at once, so that they may wait for each other.
        launches: for calls of several launches, in place of entry, grid, block, shared_memory, cluster and
            cooperative: dictionaries of these.
        types: the element types that a name of `arguments` may stand for.
        parameters: the values to try of each; template arguments of `entry`, or macros.
        default: the config that runs when nothing is known, and that says which bits are right: values, or
            expressions of the sizes.
        constraint: which configs may run on which sizes.
        shared_memory: dynamic, in bytes.
        key: what a config is chosen for: types, and integers exactly or by "bucket(n)"; None: all, exactly.
        tolerance: how far from the default's an output of a config may be, relative to the larger of the
            element and the root mean square of the output; None: no bit may differ.
        limits: what the values of an integer tensor stay below, as {"index": "rows"}: tuning makes up values
            from 0 to below it, or to 127 without one.
        ranges: what the values of a floating-point tensor lie in, as {"v": (0, 1)}: tuning makes up values that
            are evenly distributed there, or normally around 0 without one.
        headers: texts that the source includes, by name.
        include: folders of files that it includes; "cuda" is that of the CUDA Toolkit.
        options: of NVRTC.
        unaligned: tensors that may begin at any element, and need not be aligned to 16 bytes.

    Raises:
        dorajit.InvalidArgumentError: the description cannot be served; the message names the field.
        OSError: the source's file cannot be read.
    """

    def __init__(self, *, name: str, source: str, arguments: Sequence[Sequence[Any]],
                 entry: Optional[str] = None, grid: Optional[Expressions] = None, block: Optional[Expressions] = None,
                 launches: Optional[Sequence[Mapping[str, Any]]] = None,
                 types: Optional[Mapping[str, Sequence[str]]] = None,
                 parameters: Optional[Mapping[str, Sequence[int]]] = None,
                 default: Optional[Mapping[str, Union[str, int]]] = None, constraint: str = "",
                 shared_memory: Optional[Union[str, int]] = None, key: Optional[Sequence[str]] = None,
                 tolerance: Optional[float] = None, headers: Optional[Mapping[str, str]] = None,
                 options: Sequence[str] = (), limits: Optional[Mapping[str, Union[str, int]]] = None,
                 ranges: Optional[Mapping[str, Sequence[float]]] = None, include: Sequence[str] = (),
                 cluster: Optional[Expressions] = None, cooperative: Optional[bool] = None,
                 unaligned: Sequence[str] = ()) -> None:
        launch = {"entry": entry, "grid": grid, "block": block, "shared_memory": shared_memory, "launches": launches,
                  "cluster": cluster, "cooperative": cooperative}
        description = {"name": name, "source": source, "arguments": arguments,
                       **{field: value for field, value in launch.items() if value is not None}, "types": types or {},
                       "parameters": parameters or {}, "default": default or {}, "constraint": constraint, "key": key,
                       "tolerance": tolerance, "headers": headers or {}, "options": options,
                       "limits": limits or {}, "ranges": ranges or {}, "include": include, "unaligned": unaligned}
        if isinstance(source, str) and source.endswith((".cu", ".cuh")) and "\n" not in source:
            path = pathlib.Path(source)
            try:
                description.update(source=path.read_text(encoding="utf-8-sig"), file=path.name)
            except UnicodeDecodeError as error:
                raise errors.InvalidArgumentError(f"{path} is not UTF-8: {error}") from None
        self._make(description)

    @classmethod
    def from_json(cls, text: str) -> "Kernel":
        """The kernel of a description as JSON, as to_json() gives it."""
        kernel = cls.__new__(cls)
        kernel._make(json.loads(text))
        return kernel

    def to_json(self) -> str:
        """The description, for the command line and for C and C++."""
        return self._json

    def _make(self, description):
        try:
            self._json = json.dumps(description, default=_plain, allow_nan=False)
        except (TypeError, ValueError) as error:
            raise errors.InvalidArgumentError(f"kernel description: {error}") from None
        try:
            self.name = description.get("name")
            given = [tuple(one) for one in description.get("arguments") or ()]
            arguments = [one for one in given if one[1:2] not in (("workspace",), ("tensor_map",))]
            has_workspace = any(one[1:2] == ("workspace",) for one in given)
            is_tensor = [len(one) > 1 and one[1] not in _PYTHON_TYPES for one in arguments]
        except (AttributeError, TypeError):
            arguments, is_tensor, has_workspace = [], [], False  # the next call says what is wrong
        self._call, self._warm_up, self._explain = _native.make_kernel(self._json, is_tensor, has_workspace)
        self._arguments = arguments

    def __repr__(self):
        listed = ", ".join(" ".join(map(str, one)) for one in self._arguments)
        return f"dorajit.Kernel({self.name}: {listed})"

    def __call__(self, *arguments: Any) -> None:
        """Enqueues a call on the current stream of the tensors' device. "out" and "inout" tensors are
        written; nothing is differentiated (as_torch_op).

        Args:
            arguments: as described: tensors of PyTorch, or of another library that has DLPack, and numbers;
                None for a tensor that is optional ("T[n]?") and left out.

        Raises:
            TypeError, ValueError, dorajit.Error: an argument is not as described, by its name, or the
                kernel cannot be compiled or launched.
        """
        if self._call(*arguments) is not None:
            self._run(self._call, arguments)

    def warmup(self, *arguments: Any) -> None:
        """Compiles, tunes and loads what a call with such arguments launches: before a CUDA graph is
        captured, and before work that must not wait for a compiler. Nothing is read or written."""
        self._run(self._warm_up, arguments)

    def tune(self, *arguments: Any) -> Optional[dict[str, Any]]:
        """Tunes what a call with such arguments launches, whatever DORAJIT_TUNE says, unless its winner is
        known, and explains the result. Engines that have made the problem ready keep what they run."""
        with control.tuning("first_use"):
            self.warmup(*arguments)
            return self.explain(*arguments)

    def explain(self, *arguments: Any) -> Optional[dict[str, Any]]:
        """What calls with such arguments launch by now: problem, config, its source, the device's
        fingerprint, and how often it has changed. None before a call or warm-up."""
        return self._run(self._explain, arguments)

    def as_torch_op(self, name: str, *, shapes: Mapping[str, Callable[..., Sequence[int]]],
                    dtypes: Optional[Mapping[str, Callable[..., torch.dtype]]] = None,
                    backward: Optional[Callable[..., Any]] = None,
                    setup_context: Optional[Callable[..., None]] = None) -> Callable[..., Any]:
        """Registers the kernel as an operator of torch.library, which torch.compile keeps whole.

        The operator takes the arguments that are not "out", and returns those, or a tuple of them, newly
        allocated; "inout" tensors are written. Optional "out" tensors are always computed.

        Args:
            name: "library::operator".
            shapes: of each "out", a function of the operator's arguments.
            dtypes: the same for its element type. Where it is left out, the type that the description says, or
                that of the first tensor of the same name of `types`, or of the first tensor.
            backward, setup_context: as torch.library.register_autograd has them; None: no gradient.
        """
        arguments = self._arguments
        outputs = [one[0] for one in arguments if one[1] == "out"]
        inputs = [one for one in arguments if one[1] != "out"]
        missing = [one for one in outputs if one not in shapes]
        if missing:
            raise ValueError(f"as_torch_op: argument `shapes` has none for `{missing[0]}`; give a function of "
                             f"{', '.join(one[0] for one in inputs)}")
        names_of_types = {one[0]: one[2].partition("[")[0].strip() for one in arguments if one[1] not in _PYTHON_TYPES}
        tensors = [place for place, one in enumerate(inputs) if one[1] in ("in", "inout")]
        if not outputs and not any(one[1] == "inout" for one in inputs):
            raise ValueError(f"as_torch_op: {self.name} writes nothing")
        library, _, operator = name.partition("::")
        if not operator:
            raise ValueError(f"as_torch_op: argument `name` is {name!r}; give \"library::operator\"")

        def type_of(output, values):
            if output in (dtypes or {}):
                return dtypes[output](*values)
            name = _NATIVE_TYPES.get(names_of_types[output], names_of_types[output])
            if name in _ELEMENT_TYPES:
                return getattr(torch, name)
            given = [place for place in tensors if values[place] is not None]
            same = [place for place in given if names_of_types[inputs[place][0]] == name]
            return values[(same or given)[0]].dtype

        def allocate(*values):
            first = values[tensors[0]]
            return [first.new_empty(tuple(shapes[one](*values)), dtype=type_of(one, values)) for one in outputs]

        def result_of(made):
            return None if not made else made[0] if len(made) == 1 else tuple(made)

        def run(*values):
            made = allocate(*values)
            given, written = iter(values), iter(made)
            self(*(next(written) if one[1] == "out" else next(given) for one in arguments))
            return result_of(made)

        # The schema is written out, as the functions have no annotations to take it from.
        typed = ", ".join(
            f"Tensor{'(' + chr(ord('a') + place) + '!)' if one[1] == 'inout' else ''}"
            f"{'?' if one[2].endswith('?') else ''} {one[0]}"
            if place in tensors else f"{_PYTHON_TYPES[one[1]]} {one[0]}" for place, one in enumerate(inputs))
        results = {0: "()", 1: "Tensor"}.get(len(outputs), f"({', '.join(['Tensor'] * len(outputs))})")
        # Compiled code may lay out what it passes in another way, unless it is told that the strides are arguments, too.
        has_strides = any(":" in one[2] for one in arguments if one[1] in ("in", "inout"))
        exact = getattr(torch.Tag, "needs_exact_strides", torch.Tag.needs_fixed_stride_order)
        torch.library.define(name, f"({typed}) -> {results}", tags=(exact,) if has_strides else ())
        torch.library.impl(name, "cuda")(run)
        torch.library.register_fake(name)(lambda *values: result_of(allocate(*values)))
        if backward is not None:
            torch.library.register_autograd(name, backward, setup_context=setup_context)
        return getattr(getattr(torch.ops, library), operator)

    def _run(self, function, arguments):
        """With tensors of other libraries as PyTorch's, which share their memory."""
        answer = function(*arguments)
        if not isinstance(answer, int):
            return answer
        converted = [torch.from_dlpack(one)
                     if hasattr(one, "__dlpack__") and not isinstance(one, torch.Tensor) else one
                     for one in arguments]
        answer = function(*converted)
        if isinstance(answer, int):
            raise errors.UnsupportedError(
                f"{self.name}: argument `{self._arguments[answer][0]}` is no dense tensor of a CUDA device with "
                f"elements of one of {', '.join(_ELEMENT_TYPES)}, but a "
                f"{type(arguments[answer]).__name__}",
                errors.UNSUPPORTED)
        return answer
