"""The autograd node of a DoRA linear layer (arXiv:2402.09353; in the form of arXiv:2603.22276, appendix A).

    out = g * (x W^T + s S B^T) + bias,    S = x A^T,    g = magnitude / ||W + s B A||

Forward has four launches: norms and gain, x W^T, S, and the composition with S B^T, which is written over the base
result (five launches where S B^T is a separate product; dorajit.operations.compositions). Backward computes u = g * d_out and
the gradient of the magnitude in one pass over the activations. The other gradients are matrix products that include the
scale:

    d_B = s u^T S,    t = u B,    d_A = s t^T x,    d_x = u W + s t A

Dropout has two meanings, both with x~ = mask * x / (1 - p) (dorajit.layers.dropout):

    low_rank    S = x~ A^T,    d_A = s t^T x~,    d_x = u W + s mask * (t A) / (1 - p)
    PEFT's      out = x W^T + (g - 1) x~ W^T + g s S B^T + bias
                    = g * (x~ W^T + s S B^T) + (x - x~) W^T + bias
                d_x = d_out W + mask * (v W + s t A) / (1 - p),    v = (g - 1) * d_out

The second line of PEFT's meaning needs no pass over the output beside the composition: the product of x - x~ is added by
the matrix product itself.
"""

import torch
import torch.nn.functional as F

from dorajit import _native, errors
from dorajit.control import state
from dorajit.layers import recomputation
from dorajit.norms import matrix_norms, norm, precision
from dorajit.operations import autograd, compositions, eligibility, expression

_NAMES = "weight", "lora_A", "lora_B"
_is_compiling = eligibility.is_compiling
_linear_forward, _linear_backward = _native.linear_forward, _native.linear_backward
_Parameter = torch.nn.Parameter


class Call:
    """What a pass of a layer needs beside x and the trained tensors. The extension module reads and writes it.

    Attributes:
        weight: [out, in], of x's element type; `base` itself: a forward pass dequantizes it, and drops it after its last
            use; None: `base` computes its own product.
        a, b: the factors in the element type of the low-rank result.
        divisor, gain: [out] each, gain = magnitude / divisor. None: the forward pass computes them.
        of_norm: the weight or `base`, A and B of which the norm is computed.
        magnitude: [out].
        scale: a float.
        base: the Quantized of the base layer, or None.
        dropout: the active Dropout, or None.
        low, inner, mask: S, `inner` and the mask of the forward pass, for a backward pass, which drops `inner` after its
            last use.
    """

    __slots__ = ("weight", "a", "b", "divisor", "gain", "scale", "base", "dropout", "of_norm", "magnitude", "low",
                 "inner", "mask")

    def __init__(self, weight, a, b, divisor, gain, scale, base=None, dropout=None, of_norm=None, magnitude=None,
                 low=None, inner=None, mask=None):
        self.weight, self.a, self.b, self.divisor, self.gain, self.scale = weight, a, b, divisor, gain, scale
        self.base, self.dropout, self.of_norm, self.magnitude = base, dropout, of_norm, magnitude
        self.low, self.inner, self.mask = low, inner, mask

    def dequantize(self, dtype):
        """Replaces `base` in `weight` and `of_norm` by the weight."""
        base = self.base
        self.weight = base.dense().to(dtype)
        if self.gain is None:
            self.of_norm = norm_operands(base.dense(), *self.of_norm[1:], self.a, self.b)
        base.release()


def norm_operands(weight, lora_A, lora_B, a, b):
    """The operands of the norm: those of the matrix that x is multiplied by, or exact ones. `a` and `b` are the factors
    as cast for the products."""
    return (weight, a, b) if a.dtype is weight.dtype else (weight, lora_A, lora_B)


def forward(x, call, bias, keeps_inner):
    """(output, S, inner or None, mask or None): launches without autograd. x has the element type of the product."""
    if call.base is not None and call.weight is call.base:
        call.dequantize(x.dtype)
    a = call.a
    given = dropped = x
    mask = rest = None
    if call.dropout is not None:
        dropped, mask = call.dropout.draw(x, a.dtype)
        if call.dropout.drops_base:
            given = dropped if dropped.dtype is x.dtype else dropped.to(x.dtype)
            rest = x - given
    if call.weight is not None and state.enabled and not _is_compiling():
        given_low = dropped if dropped.dtype is a.dtype else dropped.to(a.dtype)
        inner_type = _inner_type(x, a) if keeps_inner else None
        # If the composition is refused, the base layer of a GPU computes its own product.
        ends_weight = call.base is not None and rest is None and given.is_cuda
        try:
            made = _linear_forward(given, given_low, call, bias, inner_type, ends_weight)
        except errors.CaptureUnsafeError:  # the kernel of the norm is not loaded; PyTorch's operations can be captured
            if call.gain is not None:
                raise
            _compute_gain(call)
            made = _linear_forward(given, given_low, call, bias, inner_type, ends_weight)
        if made is not None:
            out, low, inner = made
            if rest is not None:
                _rows(out).addmm_(_rows(rest), call.weight.t())
            return out, low, inner, mask
    if call.gain is None:
        _compute_gain(call)
    result = call.base.module(given) if call.weight is None else F.linear(given, call.weight, bias)
    # A view that was created without a graph may not be written later; its base is not used otherwise.
    if result._is_view():
        result = torch.ops.aten._unsafe_view(result, result.shape)
    low = F.linear(dropped if dropped.dtype is a.dtype else dropped.to(a.dtype), a)
    out, inner = compositions.compose_low_rank(low, call.b, result, call.gain, bias, call.scale, keeps_inner)
    if rest is not None:
        _rows(out).addmm_(_rows(rest), call.weight.t())
    return out, low, inner, mask


def _inner_type(x, a):
    return a.dtype if a.dtype is x.dtype else torch.promote_types(a.dtype, x.dtype)


def _compute_gain(call):
    call.divisor, call.gain = norm.divisor_and_gain(*call.of_norm, call.magnitude, call.scale)


_native.configure_linear(matrix_norms.gain_type, compositions.serves_low_rank, _compute_gain)


class DoraLinear(torch.autograd.Function):
    """The node. Saves x, S, inner, the mask, gain and its divisor, each if a gradient needs it, and the weights.

    Weights that are parameters, which live as long as their module, are not saved but held: a checkpoint calls two
    hooks for each saved tensor, and none for those that are held. Other hooks may store copies, which later writes
    do not change, so under them the weights are saved. A quantized weight is dequantized again in the backward pass.
    """

    @staticmethod
    def forward(ctx, x, lora_A, lora_B, magnitude, bias, call):
        of_x, of_a, of_b, of_magnitude, _, _ = ctx.needs_input_grad
        hooks = recomputation.top_hooks(False)
        # The first run of a checkpoint saves nothing, but tensors of the same shapes and types as the second one.
        is_first = hooks is not None and recomputation.is_first_run(hooks)
        norms = None if hooks is None else recomputation.share_norms(hooks, is_first, call, lora_A, lora_B)
        out, low, inner, mask = forward(x, call, bias, of_magnitude and not is_first)
        recomputation.keep_norms(norms, call)
        if is_first and of_magnitude:
            dtype = _inner_type(x, call.a)
            inner = out.detach() if dtype is out.dtype else out.new_empty((), dtype=dtype).expand_as(out)
        ctx.set_materialize_grads(False)
        weight, a, b = call.weight if call.base is None else None, call.a, call.b
        held = versions = None
        if hooks is None or recomputation.is_of_checkpoint(hooks):
            # Under a checkpoint's hooks versions are not compared: it runs the forward pass again with the present
            # weights.
            held, versions, weight, a, b = hold(weight, a, b, hooks is None)
        # Second-order gradients lead back to the trained tensors.
        ctx.kept = (has_float_products(x, lora_A, lora_B, call), call.scale, held, versions,
                    (lora_A, lora_B, magnitude, bias), call.base, call.dropout, x.dtype)
        of_several = of_x + of_a + of_b + of_magnitude > 1  # second-order gradients of any two need x and the mask
        ctx.save_for_backward(weight, a, b, x if of_a or of_several else None, low if of_b else None,
                              mask if of_x or of_a or of_several else None, inner, call.gain,
                              call.divisor if of_magnitude else None)
        return out

    @staticmethod
    def backward(ctx, d_out):
        if d_out is None:
            return (None,) * 6
        if ctx.kept[0] is not None and may_launch() and not precision.is_autocast_enabled(d_out.device.type):
            found = _linear_backward(ctx, d_out, _backward)
            if found is not None:
                return found
        return _backward(ctx, d_out)


def _backward(ctx, d_out, saved=None):
    """The gradients of DoraLinear's inputs. `saved`: the saved tensors; under a checkpoint they can be had once."""
    _, scale, kept, versions, trained, base, dropout, x_dtype = ctx.kept
    weight, a, b, x, low, mask, inner, gain, divisor = ctx.saved_tensors if saved is None else saved
    if kept is not None:
        weight, a, b = held(ctx.needs_input_grad, kept, versions, (weight, a, b), torch.is_grad_enabled())
    call = Call(weight, a, b, divisor, gain, scale, base, dropout, low=low, inner=inner)
    del inner  # under a checkpoint nobody else has it, so that its memory is free after its last use
    found = differentiate(ctx.needs_input_grad[:5], d_out, x, mask, call, trained, x_dtype)
    return *found, None


def has_float_products(x, lora_A, lora_B, call):
    """Whether linear_backward gives d_A and d_B in float32, not rounded to the type of the products; None if it cannot
    compute the gradients."""
    dtype = call.a.dtype
    if dtype is not x.dtype:
        return None
    of_a, of_b = lora_A.dtype, lora_B.dtype
    if of_a is dtype and of_b is dtype:
        return False
    return True if of_a is of_b is torch.float32 and precision.is_mixed(call.a, call.a) else None


def hold(weight, a, b, has_versions):
    """(the parameters among the three, their versions or None, the other ones); None in place of those of the other kind."""
    is_weight, is_a, is_b = type(weight) is _Parameter, type(a) is _Parameter, type(b) is _Parameter
    kept = weight if is_weight else None, a if is_a else None, b if is_b else None
    versions = None
    if has_versions:
        versions = (weight._version if is_weight else None, a._version if is_a else None, b._version if is_b else None)
    return kept, versions, None if is_weight else weight, None if is_a else a, None if is_b else b


def held(wanted, kept, versions, saved, of_all):
    """The weight, A and B from what `hold` returned; saved: those that were not held. Raises a RuntimeError if one that the
    gradients need was written since; autograd raises the same for saved tensors. wanted: begins with whether the gradients
    of x and A are; of_all: all elements are read in any case."""
    if versions is not None and not _is_compiling():  # traced tensors have other versions
        of_x, of_a = wanted[:2]
        needed = of_x or of_all, of_x or of_all, of_x or of_a or of_all
        for name, one, version, is_needed in zip(_NAMES, kept, versions, needed):
            if one is not None and one._version != version and is_needed:
                raise RuntimeError(f"dora_linear: argument `{name}`, which its gradients need, was modified by an inplace "
                                   f"operation: it is at version {one._version}, expected is version {version}; "
                                   "write to it after the backward pass, or to a copy")
    return [other if one is None else one for one, other in zip(kept, saved)]


# The function that torch.autograd.Function.apply calls when no transform is active; calling it directly is faster.
apply = super(torch.autograd.Function, DoraLinear).apply


def differentiate(wanted, d_out, x, mask, call, trained, x_dtype):
    """The gradients of x, A, B, the magnitude and the bias, None where they are not wanted; differentiable if a graph is
    built. x and mask are None if no gradient needs them, as S and `inner` of the call. trained: A, B, the magnitude and the
    bias, to which second-order gradients lead back."""
    kind = d_out.device.type
    if precision.is_autocast_enabled(kind):  # use the element types of the forward pass
        with precision.without_autocast(kind):
            return differentiate(wanted, d_out, x, mask, call, trained, x_dtype)
    builds_graph = torch.is_grad_enabled()
    if call.base is not None and (wanted[0] or builds_graph):
        call.weight = call.base.dense().to(x_dtype)
        call.base.release()
    # Without x only one gradient is wanted, which depends on d_out alone.
    if not builds_graph or x is None:
        return gradients(wanted, d_out, x, mask, call, trained, x_dtype)
    inputs = [one for one, want in zip((x, *trained), wanted) if want]
    with torch.enable_grad():
        found = iter(torch.autograd.grad(formula(x, *trained, call, mask), inputs, d_out, create_graph=True))
    return tuple([next(found) if want else None for want in wanted])


def formula(x, lora_A, lora_B, magnitude, bias, call, mask):
    """The output in PyTorch's operations; the norm is a constant."""
    dtype = call.a.dtype
    given = x.to(dtype)
    base_input = x
    if mask is not None:
        given = mask.to(dtype) * given / (1 - call.dropout.p)
        if call.dropout.drops_base:
            base_input = given.to(x.dtype)
    low = F.linear(F.linear(given, lora_A.to(dtype)), lora_B.to(dtype))
    gain = call.gain
    if call.divisor is not None:  # the magnitude is trained
        gain = magnitude.reshape(-1).to(call.divisor.dtype) / call.divisor
    out = expression.compose_residual(low, F.linear(base_input, call.weight), gain, None, call.scale)[0]
    if base_input is not x:
        out = out + F.linear(x - base_input, call.weight)
    return (out if bias is None else out + bias).to(x.dtype)


def gradients(wanted, d_out, x, mask, call, trained, x_dtype):
    """`differentiate` without a graph."""
    types = [None if one is None else one.dtype for one in trained]
    d_out = eligibility.with_rows(d_out)
    of_x, of_a, of_b, of_magnitude, of_bias = wanted
    a, b, scale, dropout = call.a, call.b, call.scale, call.dropout
    dtype = a.dtype
    of_both = of_x or of_a or of_b
    is_mixed = dtype is not x_dtype
    drops_base = dropout is not None and dropout.drops_base
    if of_both and not is_mixed and d_out.dtype is x_dtype and may_launch():
        is_float = ((of_a and types[0] is torch.float32) or (of_b and types[1] is torch.float32)) and precision.is_mixed(a, a)
        like = trained[:2] if is_float else (a, b)  # float32, for products that are not rounded to 16 bits
        found = _linear_backward(_Context(wanted, x, mask, call, (*like, trained[2]), is_float), d_out, _Context.restore)
        if found is not None:
            d_x, d_a, d_b, d_magnitude = found[:4]
            return (d_x, d_a if d_a is None else d_a.to(types[0]), d_b if d_b is None else d_b.to(types[1]), d_magnitude,
                    _rows(d_out).sum(0).to(types[3]) if of_bias else None)
    through = d_x = d_a = d_b = d_magnitude = None
    if of_both or of_magnitude:
        has_d_lora = of_both and (is_mixed or drops_base)
        d_lora, u, d_magnitude = autograd.magnitude_backward(
            (d_out, call.inner, call.gain, call.divisor), scale,
            (has_d_lora, not drops_base and (of_x or (of_both and not is_mixed)), of_magnitude),
            (dtype, x_dtype, types[2]))
    if of_x and drops_base:
        _, u, _ = autograd.backward((d_out, None, call.gain), scale, (False, True, False), (x_dtype,))
    if of_both:
        left = scale if d_lora is None else 1.0  # d_lora includes the scale, u does not
        d_lora = _rows(u if d_lora is None else d_lora)
        through = d_lora @ b if of_x or of_a else None
        if of_b:
            d_b = _product(d_lora.t(), _rows(call.low), left, b, types[1])
        if of_a:
            dropped = x.to(dtype) if dropout is None else dropout.again(x, mask, dtype)
            d_a = _product(through.t(), _rows(dropped), left, a, types[0])
        if of_x:
            d_x = _gradient_of_x(d_out, u, through, left, call, mask, x_dtype)
    d_bias = _rows(d_out).sum(0).to(types[3]) if of_bias else None
    return d_x, d_a, d_b, d_magnitude, d_bias


def may_launch():
    return state.enabled and not torch.is_grad_enabled() and not _is_compiling()


class _Context:
    """The ctx of linear_backward for a Call; its saved tensors can be had once, so that `inner` is freed after its use."""

    __slots__ = "needs_input_grad", "kept", "_call", "_saved"

    def __init__(self, wanted, x, mask, call, trained, is_float):
        self.needs_input_grad = *wanted[:4], False
        self.kept = is_float, call.scale, None, None, trained, None, call.dropout
        self._call = call
        sums = (call.inner, call.gain, call.divisor) if wanted[3] else (None, call.gain, None)
        self._saved = call.weight, call.a, call.b, x, call.low, mask, *sums
        call.inner = None

    @property
    def saved_tensors(self):
        saved, self._saved = self._saved, None
        return saved

    def restore(self, _, saved):
        """Gives `inner` back to the call if linear_backward has not launched."""
        self._call.inner = saved[6]


def _gradient_of_x(d_out, u, through, left, call, mask, x_dtype):
    """The gradient of x: `u` is that of the base result that the gain multiplies, left * `through` that of S."""
    weight, a, dropout = call.weight, call.a, call.dropout
    d_x = _rows(u) @ weight
    if dropout is not None and not dropout.drops_base:
        term = (through @ a).to(x_dtype)
        dropout.add(d_x, term, _rows(mask), left)
    elif a.dtype is x_dtype:
        d_x.addmm_(through, a, alpha=left)
    else:
        d_x = d_x + (through @ a).to(x_dtype)
    if dropout is not None and dropout.drops_base:
        d_x = dropout.add(_rows(d_out).to(x_dtype) @ weight, d_x, _rows(mask))
    return d_x.view(*d_out.shape[:-1], weight.shape[1])


def _rows(tensor):
    return tensor if tensor.dim() == 2 else tensor.reshape(-1, tensor.shape[-1])


def _product(left, right, factor, like, dtype):
    """factor * left @ right in the element type `dtype`. `like` is any tensor with the product's shape and left's type."""
    if dtype is torch.float32 and precision.is_mixed(left, right) and not torch.is_grad_enabled():
        # Without rounding to 16 bits; it has no gradient.
        return precision.mixed_product(left, right, factor)
    return torch.addmm(like, left, right, beta=0, alpha=factor).to(dtype)
