"""The public functions. See docs/python.md and, for the numerics, docs/numerics.md.

The formulas are from arXiv:2603.22276: section 3.1 and appendix C (compose), section 4 (forward and
inner), section 3.2 and appendix C.2 (backward), section 2 and appendix C.3 (norm assembly).
"""

from collections.abc import Sequence
from typing import Optional

import torch
from torch import Tensor

from dorajit import _native, checks, errors
from dorajit.operations import autograd, compositions, expression, run
from dorajit.operations import torch_library  # registers the operators
from dorajit.control import state
from dorajit.operations.eligibility import AUTOGRAD, NOBODY, SOMEBODY, builds_graph, is_compiling, who_sees
from dorajit.operations.table import operations

# Module variables, because every call uses them and attribute look-ups take time.
_is_compiling, _who_sees = is_compiling, who_sees
_increment_version = torch.autograd.graph.increment_version
_compose, _compose_inner, _backward = operations["compose"], operations["compose_inner"], operations["backward"]
_compose_at_once = _compose.at_once
_compose_residual, _norm_assembly = operations["compose_residual"], operations["norm_assembly"]
_compose_residual_at_once = _compose_residual.at_once


def fused_dora_compose(lora: Tensor, base: Tensor, gain: Tensor, scale: float, inplace: bool = True) -> Tensor:
    """(gain - 1) * base + gain * (scale * lora), in one pass over memory.

    Args:
        lora: [..., out_features], or channels as in [N, C, H, W]; any floating point type. With
            `inplace` its elements are overwritten.
        base: has lora's shape and device; may have another floating point type.
        gain: magnitude / weight norm, broadcastable to lora's shape: [out_features],
            [1, out_features], [1, C, 1, 1]. It is used in its own type, never rounded to lora's.
        scale: a float. NaN and infinities propagate.
        inplace: write the result into lora, like an in-place operation of PyTorch (`add_`).

    Returns:
        A tensor of lora's shape and element type; lora itself with `inplace`. It is computed in
        float32 (float64 if an operand is float64) and rounded once. Differentiable.

    Raises:
        TypeError: an argument is not a floating point tensor; scale is not a float.
        ValueError: shapes or devices do not match, or lora overlaps another argument.
        RuntimeError: in place, lora is a leaf that requires grad, or an inference tensor.
        dorajit.CompileError: a compiler refused the kernel; `log` has its output.
        dorajit.CaptureUnsafeError: a CUDA graph is being captured and the kernel is not loaded.

    Thread-safe. On a GPU the kernel is enqueued on PyTorch's current stream.
    """
    if state.enabled and not _is_compiling():
        made = _compose_at_once(lora, base, gain, lora if inplace else True, scale)
        if type(made) is not int:
            return made
        if made == NOBODY:
            if not inplace:
                return compositions.compose(lora, base, gain, scale)[0]
            checks.not_frozen("fused_dora_compose", "lora", lora)
            compositions.compose(lora, base, gain, scale, out=lora)
            _increment_version(lora)
            return lora
        if made == AUTOGRAD and state.fused_backward:
            return autograd.compose(lora, base, gain, scale, inplace)
    result = run.observed("fused_dora_compose", _compose, (lora, base, gain), scale)[0]
    if not inplace:
        return result
    if not _is_compiling():  # copy_ would write before it raises
        checks.not_frozen("fused_dora_compose", "lora", lora)
    return lora.copy_(result)


def _called(function, operation, inputs, scale, outputs):
    """The outputs of a call that has no autograd node: where a graph is built, it is that of the operator.
    `outputs` as for Operation.launch."""
    made = SOMEBODY
    if state.enabled and not _is_compiling():
        made = operation.at_once(*inputs, *outputs, scale)
        if type(made) is not int:
            return made if type(made) is tuple else (made,)
    more = (outputs, getattr(inputs[0], "dtype", None)) if operation.makes_gradients else ()
    if made == NOBODY:
        return run.outputs(operation, inputs, (scale,), more)
    return run.observed(function, operation, inputs, scale, more)


def fused_dora_compose_autograd(lora: Tensor, base: Tensor, gain: Tensor, scale: float) -> Tensor:
    """The composition for training: never in place, with a fused backward pass.

    Saves `scale * lora + base` for the backward pass if gain requires grad, and otherwise no tensor of
    that size. With PEFT_DORA_FUSED_BACKWARD=0 the graph is that of the plain expression.

    Arguments, results and errors are those of fused_dora_compose with inplace=False.
    """
    return fused_dora_compose(lora, base, gain, scale, False)


def fused_dora_compose_residual(lora: Tensor, result: Tensor, gain: Tensor, scale: float,
                                bias: Optional[Tensor] = None) -> Tensor:
    """result + ((gain - 1) * base + gain * (scale * lora)) with base = result - bias: the output of a layer with an
    adapter, in one pass over memory forward and backward.

    Args:
        lora, gain, scale: as for fused_dora_compose.
        result: the output of the base layer, of lora's shape and device; may have another element type.
        bias: the base layer's bias, which is part of result but is not scaled: base = result - bias. One
            element per channel. None: no bias.

    Returns:
        A new tensor of lora's shape, in the element type of PyTorch's result + lora. It is
        computed in float32 (float64 if an operand is float64) and rounded once. Differentiable; with a
        bias that requires grad, and in torch.func transforms, it runs as several operations.

    Errors are those of fused_dora_compose.
    """
    if state.enabled and not _is_compiling():
        if bias is None and getattr(lora, "dtype", None) is getattr(result, "dtype", None):
            seen = _compose_residual_at_once(lora, result, gain, None, True, None, scale)
            if type(seen) is not int:
                return seen[0]
        else:
            seen = _who_sees(lora, result, gain, scale) if bias is None else _who_sees(lora, result, gain, bias, scale)
        if seen == NOBODY:
            return compositions.compose_residual(lora, result, gain, bias, scale, False)[0]
        if seen == AUTOGRAD and state.fused_backward and not builds_graph(bias):
            return autograd.compose_residual(lora, result, gain, bias, scale)
    if bias is not None and builds_graph(bias):
        if not _is_compiling():
            checks.operands("fused_dora_compose_residual", _compose_residual, (lora, result, gain, bias))
        if bias.numel() != gain.numel():  # checked here too, so that a compiler that stops here shows the message
            raise ValueError(f"fused_dora_compose_residual: argument `bias` has shape {tuple(bias.shape)} but `gain` "
                             f"has {tuple(gain.shape)}; give both one element per channel")
        base = expression.without_bias(result, bias, gain)
        return result + fused_dora_compose(lora.to(expression.sum_type(lora, result)), base, gain, scale, False)
    return run.observed("fused_dora_compose_residual", _compose_residual, (lora, result, gain, bias), scale)[0]


def fused_dora_forward_and_inner(lora: Tensor, base: Tensor, gain: Tensor, scale: float) -> tuple[Tensor, Tensor]:
    """The composition, and the `inner` tensor of its backward pass, from one read of the operands.

    Returns:
        (out, inner): out as from fused_dora_compose; inner = scale * lora + base, in lora's shape and
        element type. Both are differentiable.

    Arguments and errors are those of fused_dora_compose.
    """
    return _called("fused_dora_forward_and_inner", _compose_inner, (lora, base, gain), scale, (True, True))


class FusedDoRAComposeFunction:
    """The composition with its own backward pass, called like a torch.autograd.Function.

        out = (gain - 1) * base + gain * (scale * lora)
    """

    @staticmethod
    def apply(lora: Tensor, base: Tensor, gain: Tensor, scale: float) -> Tensor:
        """See fused_dora_compose_autograd."""
        return fused_dora_compose(lora, base, gain, scale, False)


def compose_backward(d_out: Tensor, inner: Optional[Tensor], gain: Tensor, scale: float,
                     needs_lora_grad: bool = True, needs_base_grad: bool = True,
                     needs_mag_grad: bool = True) -> tuple[Optional[Tensor], ...]:
    """The gradients of the composition, in one launch.

        d_lora = (gain * scale) * d_out
        d_base = (gain - 1) * d_out
        d_mag  = sum of inner * d_out over each channel, along one fixed tree (docs/numerics.md)

    Args:
        d_out: the gradient of the result; any strides.
        inner: scale * lora + base, of d_out's shape, from fused_dora_forward_and_inner; may be None without needs_mag_grad.
        gain, scale: as in the forward pass.
        needs_lora_grad, needs_base_grad, needs_mag_grad: which gradients are computed.

    Returns:
        (d_lora, d_base, d_mag), None for those that are not needed. d_lora and d_base have d_out's
        shape and type, d_mag those of gain.

    Errors are those of fused_dora_compose.
    """
    wanted = bool(needs_lora_grad), bool(needs_base_grad), bool(needs_mag_grad)
    if inner is None and needs_mag_grad:
        raise TypeError("compose_backward: argument `inner` is None, but the gradient of gain is summed from "
                        "it; pass it, or needs_mag_grad=False")
    inputs = d_out, inner if wanted[2] else None, gain
    return _called("compose_backward", _backward, inputs, scale, wanted)


def fused_norm_assembly(w_norm_sq: Tensor, cross: Tensor, ba_norm_sq: Tensor, scale: float) -> tuple[Tensor]:
    """The row norms of W + scale B A from their factored terms.

        norm = sqrt(max((w_norm_sq + 2 scale * cross) + scale^2 * ba_norm_sq, 0))

    Args:
        w_norm_sq: squared norms of W's rows, [out_features].
        cross: dot products of the rows of W with those of B A, of the same shape and device.
        ba_norm_sq: squared norms of the rows of B A, of the same shape and device.
        scale: a float.

    Returns:
        (norm,), of w_norm_sq's shape and type. NaN stays NaN. Differentiable.

    Errors are those of fused_dora_compose.
    """
    terms = w_norm_sq, cross, ba_norm_sq
    return _called("fused_norm_assembly", _norm_assembly, terms, scale, (True,))


def warmup(operation: str, *tensors: Optional[Tensor], inplace: bool = False,
           wanted: Sequence[bool] = (), types: Optional[Sequence[torch.dtype]] = None) -> None:
    """Compiles, tunes and loads the kernels that calls with such tensors will launch.

    Use it before a CUDA graph is captured, and before work that must not wait for a compiler. Elements
    are neither read nor written.

    Args:
        operation: the name of an operation:
            "compose" or "compose_inner" with (lora, base, gain); "backward" with
            (d_out, inner, gain); "norm_assembly" with (w_norm_sq, cross, ba_norm_sq).
            fused_dora_compose_autograd with a trained magnitude uses "compose_inner" and "backward", with a
            frozen one "compose" and "backward". fused_dora_compose_residual uses "compose_residual" with
            (lora, result, gain) and the bias if there is one, in training and inference, and
            "residual_backward" with (d_out, inner, gain); layers use "magnitude_backward" with
            (d_out, inner, gain, divisor). To warm up a layer, run one step
            with its shapes and types instead.
        tensors: the inputs of the operation, as the calls will pass them. Optional ones are last, or None.
        inplace: whether the composition will write into lora.
        wanted: which gradients a backward pass will compute, for instance of lora, base and the magnitude;
            all if it is empty. Without that of the magnitude, inner may be None.
        types: the element types of lora and the base result in the forward pass, which their gradients will
            have; None: that of d_out.

    Raises:
        ValueError, TypeError: the errors of the call itself for these tensors.
        dorajit.UnsupportedError: such calls run in PyTorch.
        dorajit.Error: a kernel could not be compiled or loaded.
    """
    if not isinstance(operation, str) or operation not in operations:
        raise ValueError(f"warmup: argument `operation` is {operation!r}; give one of {', '.join(map(repr, operations))}")
    described = operations[operation]
    most = len(described.inputs)
    least = most - sum(not one.is_required for one in described.inputs) * described.is_composition
    if not least <= len(tensors) <= most:
        counts = str(most) if least == most else f"{least} to {most}"
        raise TypeError(f"warmup: {operation} has {counts} tensors, not {len(tensors)}")
    named = [one.name for one in described.outputs]
    typed = [one.name for one in described.outputs if not one.is_sum]
    types = () if types is None else types
    for argument, value, names in ("wanted", wanted, named), ("types", types, typed):
        if not isinstance(value, (tuple, list)) or (described.makes_gradients and len(value) not in (0, len(names))):
            raise TypeError(f"warmup: argument `{argument}` is {value!r}; give one for each of {', '.join(names)}")
    wanted = wanted or (True,) * len(named)
    inputs = (*tensors, *(None,) * (most - len(tensors)))
    sums = [one.name for one, want in zip(described.outputs, wanted) if one.is_sum and want]
    missing = [one.name for one, tensor in zip(described.inputs, inputs) if one.is_for_sum and tensor is None]
    if sums and missing:
        raise TypeError(f"warmup: argument `{missing[0]}` is None, but {sums[0]} is summed from it; pass it")
    inputs = described.needed(inputs, bool(sums))
    checks.operands("warmup", described, inputs)
    for outputs in _warmup_outputs(described, inputs, inplace, wanted, types):
        answer, _ = run.planned(described, inputs, outputs)
        if answer.reason is not None:
            raise errors.UnsupportedError(f"warmup: {operation} runs in PyTorch: {answer.reason}", errors.UNSUPPORTED)
        _native.warmup(operation, answer.operands)


def _warmup_outputs(operation, inputs, inplace, wanted, types):
    """The outputs of the expected calls, as for run.launch: with and without the optional ones."""
    if operation.makes_gradients:
        given = iter(types or (inputs[0].dtype,) * len(operation.outputs))
        types = [operation.model_of(one, inputs).dtype if one.is_sum else next(given) for one in operation.outputs]
        return [tuple(dtype if want else None for dtype, want in zip(types, wanted))]
    dtype = expression.output_types(operation, inputs)[0]
    first, *rest = operation.outputs
    made = [inputs[0] if inplace and first.name == "out" else dtype]
    every = tuple(made + [dtype] * len(rest))
    required = tuple(made + [dtype if one.is_required else None for one in rest])
    return [required] if required == every else [required, every]
