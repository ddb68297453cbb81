"""A linear layer with a DoRA adapter (arXiv:2402.09353; in the form of arXiv:2603.22276, appendix A) as one autograd
node.

Forward has four launches: norms and gain, x W^T, S = x A^T, and the composition with S B^T, which is written
over the base result (five launches where S B^T is a separate product; dorajit.layers.low_rank). Backward computes
u = g * d_out and the gradient of the magnitude in one pass over the activations. The other gradients are matrix
products that include the scale:

    d_B = s u^T S,    t = u B,    d_A = s t^T x,    d_x = u W + s t A
"""

from typing import Optional

import torch
import torch.nn.functional as F
from torch import Tensor

from dorajit import checks, cpp_extension
from dorajit.layers import low_rank, saved_output, tiers
from dorajit.norms import frozen, norm, precision, recomputation
from dorajit.operations import autograd, eligibility, gain
from dorajit.control import state
from dorajit.operations.eligibility import AUTOGRAD, NOBODY, SOMEBODY

_NAME = "dora_linear"
_WEIGHTS = "weight", "lora_A", "lora_B"
# Module variables, because every call uses them and attribute look-ups take time.
_is_compiling = eligibility.is_compiling
_who_sees = eligibility.who_sees
_is_autocast_enabled = torch.is_autocast_enabled
_Parameter = torch.nn.Parameter


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

    Under autocast x, weight, bias and both factors are cast as by torch.nn.functional.linear, each once. The norm
    uses the weight as it is. It uses the cast factors if they have the weight's type, else the factors as they are.

    Returns:
        [..., out_features], in the type of torch.nn.functional.linear(x, weight, bias), rounded once from float32
        (float64 for float64 tensors). Differentiable any number of times.

    Raises:
        TypeError: scale is not a float.
        ValueError: shapes or devices do not match.
        RuntimeError: x and weight have different element types; also errors of PyTorch's matrix products.
    """
    if type(scale) is not float and (not _is_compiling() or isinstance(scale, (bool, Tensor))):
        scale = checks.scale(_NAME, scale)
    if x.shape[-1:] != weight.shape[1:]:
        raise ValueError(f"{_NAME}: argument `x` has shape {tuple(x.shape)}, but `weight` has "
                         f"{tuple(weight.shape)}; give both as many columns")
    out = at_once(None, x, weight, lora_A, lora_B, magnitude, scale, bias)
    return _composed(x, weight, lora_A, lora_B, magnitude, scale, bias) if out is None else out


def at_once(layer, x, weight, lora_A, lora_B, magnitude, scale, bias, gains=None):
    """dora_linear as one node, as launches without a node where no graph is built, or as one operator under
    torch.compile. None if the call has to be composed; the composed call also raises errors for wrong arguments.

    Args:
        layer: the module for which the gain is kept for recomputation; None: it is not kept.
        gains: a function that returns (divisor, gain), for a caller that caches them; None: they are computed.
    """
    if not state.enabled:
        return None
    tensors = (x, weight, lora_A, lora_B, magnitude) if bias is None else (x, weight, lora_A, lora_B, magnitude,
                                                                           bias)
    is_traced = _is_compiling()
    seen = _who_sees_traced(tensors, gains) if is_traced else _who_sees(*tensors, scale)
    if seen == SOMEBODY:
        return None
    if seen == AUTOGRAD and (not state.fused_backward or weight.requires_grad
                             or (bias is not None and bias.requires_grad)):
        return None
    channels = magnitude if magnitude.dim() == 1 else magnitude.reshape(-1)
    kind = x.device.type
    dtype = lora_A.dtype
    product_weight = weight
    if kind != "meta" and _is_autocast_enabled(kind):  # raises for devices without autocast
        cast = torch.get_autocast_dtype(kind)
        x, product_weight = _cast(x, cast), _cast(weight, cast)
        bias = bias if bias is None else _cast(bias, cast)
        dtype = dtype if dtype is torch.float64 else cast
    if is_traced:
        return torch.ops.dorajit.dora_linear(x, weight, product_weight, lora_A, lora_B, channels, bias, scale, dtype,
                                             eligibility.builds_graph(channels))[0]
    a = lora_A if lora_A.dtype is dtype else lora_A.detach().to(dtype)
    b = lora_B if lora_B.dtype is dtype else lora_B.detach().to(dtype)
    if gains is not None:
        divisor, factor = gains(layer, weight, lora_A, lora_B, channels, scale)
    else:
        divisor, factor = _gains(layer, weight, lora_A, lora_B, channels, scale, a, b)
    if seen != AUTOGRAD:
        return forward(x, product_weight, a, b, factor, bias, scale, False)[0]
    saves_output = state.saves_outputs and saved_output.serves(x, dtype, weight, bias, magnitude,
                                                               (x, lora_A, lora_B))
    if cpp_extension.module is not None:
        out = cpp_extension.module.linear(
            x, product_weight, a, b, factor, bias, scale, _is_one_launch(x, b), lora_A, lora_B, channels, divisor,
            _has_float_products(a, lora_A.dtype, lora_B.dtype), saves_output)
        if out is not None:
            return out
    return _apply(x, lora_A, lora_B, channels, product_weight, (a, b), divisor, factor, bias, scale, saves_output)


def _who_sees_traced(tensors, gains):
    """eligibility.who_sees under torch.compile. The operator computes norms and gain itself, and takes only
    matrices."""
    if (gains is not None or any(type(one) not in checks.PLAIN for one in tensors)
            or any(one.dim() != 2 for one in tensors[1:4]) or eligibility.why_expression(*tensors) is not None):
        return SOMEBODY
    return AUTOGRAD if eligibility.builds_graph(*tensors) else NOBODY


def _cast(tensor, dtype):
    """The tensor as cast by autocast."""
    return tensor if tensor.dtype is dtype or tensor.dtype is torch.float64 else tensor.to(dtype)


def _gains(layer, weight, lora_A, lora_B, magnitude, scale, a, b):
    """(divisor, gain). `a` and `b` are the factors as cast for the products."""
    factors = of_norm(weight, lora_A, lora_B, a, b)
    if layer is None or (frozen.of(layer) is None and recomputation.is_only_pass()):
        return norm.divisor_and_gain(weight, *factors, magnitude, scale)
    return recomputation.norms(layer, (weight, lora_A, lora_B, magnitude), (scale, factors[0].dtype),
                               lambda: norm.divisor_and_gain(weight, *factors, magnitude, scale))


def of_norm(weight, lora_A, lora_B, a, b):
    """norm.factors_of_layer, for a caller that has cast the factors already."""
    return (a, b) if a.dtype is weight.dtype else (lora_A, lora_B)


def _composed(x, weight, lora_A, lora_B, magnitude, scale, bias):
    result = F.linear(x, weight, bias)
    lora = F.linear(F.linear(x.to(lora_A.dtype), lora_A), lora_B)
    norms = norm.weight_norm(weight, *norm.factors_of_layer(weight, lora_A, lora_B), scale)
    factor = gain.gain(magnitude.reshape(-1), norms)
    return tiers.total(lora, result, factor, scale, bias).to(result.dtype)


def _is_one_launch(x, b):
    return x.is_cuda and low_rank.serves(x.device, b.dtype, *b.shape)


def _has_float_products(a, type_of_a, type_of_b):
    """Whether the extension computes float32 gradients of 16-bit factors as precision.mixed_product does."""
    return not type_of_a is type_of_b is a.dtype and precision.is_mixed(a, a)


def forward(x, weight, lora_A, lora_B, factor, bias, scale, keeps_inner):
    """(output, S, inner or None). The factors have the element type of the low-rank result."""
    if cpp_extension.module is not None and not _is_compiling():
        made = cpp_extension.module.forward(x, weight, lora_A, lora_B, factor, bias, scale, _is_one_launch(x, lora_B),
                                            keeps_inner)
        if made is not None:
            return made
    result = F.linear(x, weight, bias)
    # A view that was created without a graph may not be written later; its base is not used otherwise.
    if result._is_view():
        result = torch.ops.aten._unsafe_view(result, result.shape)
    low = F.linear(x if x.dtype is lora_A.dtype else x.to(lora_A.dtype), lora_A)
    out, inner = low_rank.compose_over(low, lora_B, result, factor, bias, scale, keeps_inner)
    return out, low, inner


class DoraLinear(torch.autograd.Function):
    """The node. Saves x, S, inner or the output, gain and its divisor, each if a gradient needs it, and the weights.

    Weights that are parameters, which live as long as their module, are not saved but held: a checkpoint calls two
    hooks for each saved tensor, and none for those that are held. Other hooks may store copies, which later writes
    do not change, so under them the weights are saved.
    """

    @staticmethod
    def forward(ctx, x, lora_A, lora_B, magnitude, weight, factors, divisor, factor, bias, scale, saves_output):
        a, b = factors  # passed as a tuple, so that autograd does not treat them as further inputs
        of_x, of_a, of_b, of_magnitude = wanted = ctx.needs_input_grad[:4]
        out, low, inner = forward(x, weight, a, b, factor, bias, scale, of_magnitude and not saves_output)
        ctx.set_materialize_grads(False)
        ctx.scale = scale
        # Second-order gradients lead back to these.
        ctx.trained = lora_A, lora_B, magnitude
        ctx.x_dtype = x.dtype
        weights = weight, a, b
        holds = not recomputation.is_under_other_hooks()
        ctx.held = [one if holds and type(one) is _Parameter else None for one in weights]
        # Under a checkpoint's hooks versions are not compared: it runs the forward pass again with the present weights.
        ctx.versions = None if recomputation.top_hooks(False) is not None else [
            None if one is None else one._version for one in ctx.held]
        others = (one if held is None else None for one, held in zip(weights, ctx.held))
        of_output = None
        ctx.watch = None
        if saves_output:
            inner = out.data  # autograd raises an error for writes to a tensor that shares the version counter
            of_output = saved_output.divisor(magnitude, divisor)
            ctx.watch = saved_output.Watch(out)
        # of_output comes before the matrix, so that a checkpoint that is run again without it raises an error.
        ctx.save_for_backward(*others, x if of_a or sum(wanted) > 1 else None, low if of_b else None, of_output,
                              inner, factor, divisor if of_magnitude else None)
        return out

    @staticmethod
    def backward(ctx, d_out):
        if d_out is None:
            return (None,) * 11
        *others, x, low, of_output, inner, factor, divisor = ctx.saved_tensors
        # Second-order gradients compute inner from the inputs in any case.
        derives = ctx.watch is not None and not torch.is_grad_enabled()
        is_lost = derives and ctx.watch.is_written(inner, d_out)
        weights = _weights(ctx, others, is_lost)
        if is_lost:
            inner = saved_output.inner(x, *weights, ctx.scale)
        elif derives:
            divisor = of_output
        saved = x, *weights, low, inner, factor, divisor
        found = differentiate(ctx.needs_input_grad[:4], d_out, saved, ctx.trained, ctx.scale, ctx.x_dtype)
        return *found, *(None,) * 7


def _weights(ctx, others, of_inner):
    """The weight, A and B of a node; `others` are the saved ones. `of_inner`: inner is computed from them.

    Raises:
        RuntimeError: a held one, whose elements the gradients need, was written since the forward pass; autograd raises
            the same for saved tensors.
    """
    if ctx.versions is not None and not _is_compiling():  # traced tensors have other versions
        of_x, of_a = ctx.needs_input_grad[:2]
        of_all = of_inner or torch.is_grad_enabled()  # second-order gradients
        needed = of_x or of_all, of_x or of_all, of_x or of_a or of_all
        for name, one, version, is_needed in zip(_WEIGHTS, ctx.held, ctx.versions, needed):
            if is_needed and one is not None and one._version != version:
                raise RuntimeError(f"{_NAME}: argument `{name}`, which its gradients need, was modified by an inplace "
                                   f"operation: it is at version {one._version}, expected is version {version}; "
                                   "write to it after the backward pass, or to a copy")
    return [other if one is None else one for one, other in zip(ctx.held, others)]


# The function that torch.autograd.Function.apply calls when no transform is active; calling it directly is faster.
_apply = super(torch.autograd.Function, DoraLinear).apply


def differentiate(wanted, d_out, saved, trained, scale, x_dtype):
    """`gradients` of a node that saved these tensors, differentiable if a graph is built."""
    kind = d_out.device.type
    if kind != "meta" and _is_autocast_enabled(kind):  # use the element types of the forward pass
        with precision.without_autocast(kind):
            return differentiate(wanted, d_out, saved, trained, scale, x_dtype)
    if torch.is_grad_enabled():
        saved = with_graph(wanted, saved, trained, scale)
    return gradients(wanted, d_out, *saved, scale, x_dtype, [one.dtype for one in trained])


cpp_extension.load(differentiate)


def gradients(wanted, d_out, x, weight, a, b, low, inner, factor, divisor, scale, x_dtype, types):
    """The gradients of x, A, B and the magnitude, None where they are not wanted.

    Args:
        a, b: the factors in the element type of the low-rank result.
        types: the element types of A, B and the magnitude, which their gradients have.
    """
    of_x, of_a, of_b, of_magnitude = wanted
    type_of_a, type_of_b, type_of_magnitude = types
    dtype = a.dtype
    if (cpp_extension.module is not None and dtype is x_dtype and not torch.is_grad_enabled()
            and not _is_compiling()):
        found = cpp_extension.module.gradients(d_out, x, weight, a, b, low, inner, factor, divisor, scale, *wanted,
                                               *types, _has_float_products(a, type_of_a, type_of_b))
        if found is not None:
            return found
    is_mixed = dtype is not x_dtype
    of_both = of_x or of_a or of_b
    d_lora, u, d_magnitude = autograd.magnitude_backward(
        (d_out, inner, factor, divisor), scale,
        (is_mixed and of_both, of_x or (of_both and not is_mixed), of_magnitude), (dtype, x_dtype, type_of_magnitude))
    d_x = d_a = d_b = None
    if of_both:
        rows = _rows(u if d_lora is None else d_lora)
        d_lora, left = rows, 1.0 if is_mixed else scale  # d_lora includes the scale, u does not
        through = d_lora @ b if of_x or of_a else None
        if of_b:
            d_b = _product(d_lora.t(), _rows(low), left, b, type_of_b)
        if of_a:
            d_a = _product(through.t(), _rows(x).to(dtype), left, a, type_of_a)
        if of_x:
            d_x = _rows(u) @ weight
            if is_mixed:
                d_x = d_x + (through @ a).to(x_dtype)
            else:
                d_x.addmm_(through, a, alpha=left)
            d_x = d_x.view(*d_out.shape[:-1], weight.shape[1])
    return d_x, d_a, d_b, d_magnitude


def _rows(tensor):
    return tensor if tensor.dim() == 2 else tensor.reshape(-1, tensor.shape[-1])


def _product(left, right, factor, like, dtype):
    """factor * left @ right in the element type `dtype`. `like` is any tensor with the product's shape and left's
    type."""
    if torch.is_grad_enabled():
        return (factor * (left @ right)).to(dtype)
    if dtype is torch.float32 and precision.is_mixed(left, right):  # without rounding to 16 bits
        return precision.mixed_product(left, right, factor)
    return torch.addmm(like, left, right, beta=0, alpha=factor).to(dtype)


def with_graph(wanted, saved, trained, scale):
    """The saved tensors with the same elements, but with the graph that computes them from the inputs."""
    x, weight, a, b, low, inner, factor, divisor = saved
    lora_A, lora_B, magnitude = trained
    def attached(value, source):  # a value that has the source's type is the source itself
        return value if value.dtype is source.dtype else value + (source - source.detach()).to(value.dtype)
    with precision.without_autocast(a.device.type):
        a, b = attached(a, lora_A), attached(b, lora_B)
        if wanted[3]:
            factor = factor + (magnitude - magnitude.detach()).to(divisor.dtype) / divisor
        if x is not None and (low is not None or inner is not None):
            made = F.linear(x.to(a.dtype), a)
            low = None if low is None else made
            if inner is not None:
                inner = (scale * F.linear(made, b).to(inner.dtype) + F.linear(x, weight).to(inner.dtype))
    return x, weight, a, b, low, inner, factor, divisor
