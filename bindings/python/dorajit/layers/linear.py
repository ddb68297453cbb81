"""A linear layer with a DoRA adapter: what of it runs as one autograd node (dorajit.layers.node), as one operator under
torch.compile, or composed of several calls."""

from typing import NamedTuple, Optional

import torch
import torch.nn.functional as F
from torch import Tensor

from dorajit import checks
from dorajit.layers import node
from dorajit.layers.modules import Quantized, dense
from dorajit.norms import frozen, norm, precision
from dorajit.operations import api, eligibility, gain
from dorajit.control import state
from dorajit.operations.eligibility import AUTOGRAD, NOBODY, SOMEBODY

_NAME = "dora_linear"
# Module variables, because every call uses them and attribute look-ups take time.
_is_compiling = eligibility.is_compiling
_who_sees = eligibility.who_sees
_is_autocast_enabled = torch.is_autocast_enabled


def dora_linear(x: Tensor, weight: Tensor, lora_A: Tensor, lora_B: Tensor, magnitude: Tensor, scale: float,
                bias: Optional[Tensor] = None) -> Tensor:
    """x (g * (W + s B A))^T + bias, with g = magnitude / ||W + s B A|| per row: a DoRA layer, arXiv:2402.09353.

    The norm is a constant for autograd (section 4.3). A call that only autograd observes, with a frozen weight and
    bias, is one autograd node, and under torch.compile one operator
    (dorajit.layers.linear_operator). Any other call runs as torch.nn.functional.linear, dorajit.weight_norm and
    dorajit.fused_dora_compose_residual; its results differ only by rounding.

    Args:
        x: [..., in_features].
        weight: [out_features, in_features], of x's element type, with any strides.
        lora_A, lora_B: [rank, in_features], [out_features, rank], of one element type. If it is not x's, the low-rank
            result has it, and is added to the base result in float32.
        magnitude: one element per row of weight, of any floating point type; it is not cast.
        scale: a float.
        bias: [out_features], or None. It is not scaled.

    Under autocast x, weight, bias and both factors are cast as by torch.nn.functional.linear, each once; so are both
    factors over a 16-bit x after dorajit.set_low_rank_dtype("base"). The norm uses the weight as it is. It uses the cast
    factors if they have the weight's type, else the factors as they are.

    Returns:
        [..., out_features], in the type of torch.nn.functional.linear(x, weight, bias), rounded once from float32
        (float64 for float64 tensors). Differentiable any number of times.

    Raises:
        TypeError: scale is not a float; magnitude or bias is not a tensor of floating point numbers.
        ValueError: shapes or devices do not match.
        RuntimeError: x, weight and bias have different element types; also errors of PyTorch's matrix products, as for
            sparse tensors.
    """
    scale = checks.float_scale(_NAME, scale)
    if x.shape[-1:] != weight.shape[1:]:
        raise ValueError(f"{_NAME}: argument `x` has shape {tuple(x.shape)}, but `weight` has "
                         f"{tuple(weight.shape)}; give both as many columns")
    try:
        out = at_once(None, x, weight, lora_A, lora_B, magnitude, scale, bias)
        return _composed(x, weight, lora_A, lora_B, magnitude, scale, bias) if type(out) is str else out
    except (RuntimeError, TypeError, ValueError):
        if bias is not None:
            _check_bias(bias, x, weight)
        raise


def at_once(*given, **more):
    """dora_linear as one node, as launches without a node where no graph is built, or as one operator under
    torch.compile; a text that tells why if the call has to be composed. The arguments are those of `prepare`. The composed
    call also raises errors for wrong arguments."""
    made = prepare(*given, **more)
    if type(made) is Traced:
        return torch.ops.dorajit.dora_linear(made.x, *made.parameters(), made.bias, made.scale, made.dtype,
                                             made.keeps_inner)[0]
    if type(made) is not Prepared:  # a text, or the answer to a question
        return made
    x, call, bias, seen, product, result = made
    if seen != AUTOGRAD:
        out = node.forward(x, call, bias, False)[0]
    else:
        out = node.apply(x, *given[3:5], call.magnitude, bias, call)
    return out if result is product else out.to(result)


class Prepared(NamedTuple):
    """A call that runs as one node. x and bias have the element type of the product."""

    x: Tensor
    call: node.Call
    bias: Optional[Tensor]
    seen: int  # NOBODY or AUTOGRAD
    product: Optional[torch.dtype]  # the element types of the product and the output under autocast; None: as given
    result: Optional[torch.dtype]


class Traced(NamedTuple):
    """A call that runs as one operator under torch.compile (dorajit.layers.linear_operator)."""

    x: Tensor
    weight: Tensor   # as given
    product: Tensor  # the weight in the element type of the product, which x and the bias have
    lora_A: Tensor   # as given
    lora_B: Tensor
    magnitude: Tensor  # [out]
    bias: Optional[Tensor]
    scale: float
    dtype: torch.dtype  # of the low-rank result

    def parameters(self):
        return self.weight, self.product, self.lora_A, self.lora_B, self.magnitude

    @property
    def keeps_inner(self):
        return eligibility.builds_graph(self.magnitude)


def prepare(layer, x, weight, lora_A, lora_B, magnitude, scale, bias, kept=None, dropout=None, is_question=False):
    """A Prepared, under torch.compile a Traced; a text that tells why if the call has to be composed.

    Args:
        layer: the module whose gain is kept in `kept`, by default inside dorajit.frozen_weights; None: it is not kept.
        weight: a matrix, or a Quantized.
        dropout: the active Dropout, or None.
        is_question: nothing is computed, and the result is (element type of the base product, that of the low-rank
            product) if the call does not have to be composed.
    """
    if not state.enabled:
        return eligibility.why_switched_off()
    base = weight if type(weight) is Quantized else None
    tensors = (x, lora_A, lora_B, magnitude) if base is not None else (x, weight, lora_A, lora_B, magnitude)
    if bias is not None:
        tensors = *tensors, bias
    is_traced = _is_compiling()
    if is_traced and (base is not None or dropout is not None or (bias is not None and bias.requires_grad)):
        return "torch.compile traces a quantized base, dropout or a trained bias; leave out torch.compile"
    seen = _who_sees_traced(tensors) if is_traced else _who_sees(*tensors, scale)
    if seen == SOMEBODY:
        return "a mode, a tracer, a transform or a subclass of torch.Tensor observes the layer"
    if seen == AUTOGRAD and (not state.fused_backward or (base is None and weight.requires_grad)):
        return eligibility.why_switched_off(*tensors) or "the base weight is trained; freeze it"
    channels = magnitude if magnitude.dim() == 1 else magnitude.reshape(-1)
    kind = x.device.type
    dtype = lora_A.dtype
    product = result = None  # the element types of the product and the output; None: as given
    if kind != "meta" and _is_autocast_enabled(kind):  # raises for devices without autocast
        product = result = torch.get_autocast_dtype(kind)
        dtype = dtype if dtype is torch.float64 else product
    if base is not None and base.keeps_type:
        if product is None and base.dtype is torch.float16 and x.dtype is torch.float32:
            # PEFT's adapter has a float32 result; in float16 its gradients would vanish.
            return "x is float32, but the base layer computes in float16; use bfloat16, or autocast"
        product, result = product or base.dtype, x.dtype
    of_base = x.dtype if product is None or x.dtype is torch.float64 else product
    if dtype is not of_base and of_base in gain.HALVES and state.low_rank_dtype == "base":
        dtype = dtype if dtype is torch.float64 else of_base
    if is_question:
        return of_base, dtype
    matrix = weight
    if product is not None:
        x = _cast(x, product)
        bias = bias if bias is None else _cast(bias, product)
        matrix = weight if base is not None else _cast(weight, product)
    if bias is not None:
        if base is not None and bias.dtype is not x.dtype:  # such layers add a bias of any type
            bias = bias.to(x.dtype)
        bias = bias.contiguous()
    if is_traced:
        return Traced(x, weight, matrix, lora_A, lora_B, channels, bias, scale, dtype)
    a = lora_A if lora_A.dtype is dtype else lora_A.detach().to(dtype)
    b = lora_B if lora_B.dtype is dtype else lora_B.detach().to(dtype)
    divisor = factor = None
    if kept is None and layer is not None:
        kept = frozen.of(layer)
    if kept is not None:
        operands = weight if base is None else base.stored, lora_A, lora_B, magnitude
        divisor, factor = kept.made(operands, (scale, dtype), lambda: norm.divisor_and_gain(
            *node.norm_operands(dense(weight), lora_A, lora_B, a, b), channels, scale))
    call = node.Call(matrix, a, b, divisor, factor, scale, base, dropout)
    if base is not None:
        # If the gain was kept and no graph is built, the base layer's own product is the faster one. On a CPU that of
        # bitsandbytes would change the layout of the weight, which its dequantization then reads wrongly.
        # PEFT's dropout needs a second product of the weight.
        is_dense = (factor is None or seen == AUTOGRAD or base.is_dense() or not x.is_cuda
                    or (dropout is not None and dropout.drops_base))
        call.weight = base if is_dense else None
        if not is_dense:
            base.release()
    call.magnitude = channels
    if factor is None:
        call.of_norm = (base, lora_A, lora_B) if base is not None else node.norm_operands(weight, lora_A, lora_B, a, b)
    return Prepared(x, call, bias, seen, product, result)


def _check_bias(bias, x, weight):
    """Raises an error that names the bias if it is the cause of PyTorch's error, which does not."""
    checks.tensors(_NAME, bias=bias)
    checks.same_device(_NAME, weight=weight, bias=bias)
    if bias.shape != weight.shape[:1]:
        raise ValueError(f"{_NAME}: argument `bias` has shape {tuple(bias.shape)}, which does not match `weight` of "
                         f"{tuple(weight.shape)}; give it ({weight.shape[0]},)")
    if bias.dtype != weight.dtype == x.dtype and not _is_autocast_enabled(x.device.type):
        raise RuntimeError(f"{_NAME}: argument `bias` has elements of {bias.dtype}, but `weight` of {weight.dtype}; give "
                           "both one type")


def _who_sees_traced(tensors):
    """eligibility.who_sees under torch.compile. The operator takes only matrices."""
    if (any(type(one) not in checks.PLAIN for one in tensors) or any(one.dim() != 2 for one in tensors[1:4])
            or eligibility.why_expression(*tensors) is not None):
        return SOMEBODY
    return AUTOGRAD if eligibility.builds_graph(*tensors) else NOBODY


def _cast(tensor, dtype):
    """The tensor as cast by autocast."""
    return tensor if tensor.dtype is dtype or tensor.dtype is torch.float64 else tensor.to(dtype)


def _composed(x, weight, lora_A, lora_B, magnitude, scale, bias):
    result = F.linear(x, weight, bias)
    with precision.of_adapter(result):
        lora = F.linear(F.linear(x.to(lora_A.dtype), lora_A), lora_B)
        norms = norm.weight_norm(weight, *norm.factors_of_layer(weight, lora_A, lora_B), scale)
    factor = gain.gain(magnitude, norms).reshape(-1)
    return api.fused_dora_compose_residual(lora, result, factor, scale, bias).to(result.dtype)
