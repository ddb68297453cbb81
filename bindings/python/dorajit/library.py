"""The operators dorajit::* of torch.library, for torch.compile, torch.export and dispatch modes.

Each operation of the library is one, with its inputs, its scale and, where it makes gradients, which are
wanted and the element types of those that are free:

    dorajit::compose(lora, base, gain, scale) -> out
    dorajit::compose_inner(lora, base, gain, scale) -> (out, inner)
    dorajit::backward(d_out, inner?, gain, scale, wanted, base_dtype) -> the gradients wanted

One more is there for an output that may be left out, as `compose_residual_inner` beside
`compose_residual`, and `compose_(lora!, base, gain, scale)` writes into lora's memory. Each runs a kernel
where one will do and PyTorch elsewhere, as the functions do. Those that autograd knows a backward pass
for are differentiable; that of a composition is dorajit::backward or residual_backward.
"""

import functools

import torch

from dorajit import autograd, checks, eligibility, expression, registration, run
from dorajit.operation import operations

_ops = torch.ops.dorajit
_library = registration.Library("dorajit", "DEF")


# --- schemas, and what they run ------------------------------------------------------------------

_NAMES = {"cross": "cross_term"}  # of operands that operators call otherwise than the table
# Element types of gradients that a call names; the others are those of their inputs.
_FREE_TYPES = {"backward": ("base_dtype",), "residual_backward": ("lora_dtype", "result_dtype")}


def _schema(name, operation, num_outputs):
    inputs = [f"Tensor{'' if one.is_required else '?'} {_NAMES.get(one.name, one.name)}"
              for one in operation.inputs]
    if operation.makes_gradients:
        types = [f"ScalarType {one}" for one in _FREE_TYPES.get(operation.name, ())]
        return f"{name}({', '.join([*inputs, 'float scale', 'bool[] wanted', *types])}) -> Tensor[]"
    results = ", ".join(["Tensor"] * num_outputs)
    return f"{name}({', '.join([*inputs, 'float scale'])}) -> {results if num_outputs == 1 else f'({results})'}"


def _output_types(operation, num_outputs, inputs, more):
    """The element type of each output, None where it is left out. `more` are the arguments after the
    scale."""
    if operation.makes_gradients:
        wanted, *free = more
        types = [operation.model_of(one, inputs).dtype for one in operation.outputs]
        matrices = [i for i, one in enumerate(operation.outputs) if one.is_matrix]
        for i, dtype in zip(matrices[len(matrices) - len(free):], free):
            types[i] = dtype
        return [dtype if want else None for dtype, want in zip(types, wanted)]
    dtype = expression.result_type(operation.name, *inputs)
    return [dtype] * num_outputs + [None] * (len(operation.outputs) - num_outputs)


def _outputs_of(operation, inputs, outputs):
    """What an operator returns: the outputs that are there, laid out as its fake implementation promises."""
    outputs = outputs if isinstance(outputs, (tuple, list)) else (outputs,)
    made = [_laid_out(one, operation.model_of(operand, inputs))
            for operand, one in zip(operation.outputs, outputs) if one is not None]
    return made if operation.makes_gradients else made[0] if len(made) == 1 else tuple(made)


def _laid_out(result, like):
    """The result with the strides that the fake implementations promise."""
    if like.layout is not torch.strided:
        return result
    strides = torch.empty_like(like, device="meta").stride()  # which takes no memory
    if result.stride() == strides:
        return result
    return torch.empty_strided(like.shape, strides, dtype=result.dtype, device=result.device).copy_(result)


def _split(operation, arguments):
    count = len(operation.inputs)
    return arguments[:count], arguments[count], arguments[count + 1:]


def _run(operation, num_outputs, *arguments):
    inputs, scale, more = _split(operation, arguments)
    types = _output_types(operation, num_outputs, inputs, more)
    return _outputs_of(operation, inputs, run.outputs(operation, inputs, scale, types))


def _fake(operation, num_outputs, *arguments):
    inputs, _, more = _split(operation, arguments)
    checks.operands(operation.name, operation, inputs)
    types = _output_types(operation, num_outputs, inputs, more)
    made = [torch.empty_like(operation.model_of(operand, inputs), dtype=dtype)
            for operand, dtype in zip(operation.outputs, types) if dtype is not None]
    return made if operation.makes_gradients else made[0] if len(made) == 1 else tuple(made)


def _expression(operation, num_outputs, *arguments):
    inputs, scale, more = _split(operation, arguments)
    checks.operands(operation.name, operation, inputs)
    types = _output_types(operation, num_outputs, inputs, more)
    made = [one for one in expression.outputs(operation.name, inputs, scale, types) if one is not None]
    return made if operation.makes_gradients else made[0] if len(made) == 1 else tuple(made)


def _compose_into(lora, base, gain, scale):
    checks.not_frozen("compose_", lora)
    run.compose(lora, base, gain, scale, lora)


def _fake_compose_into(*arguments):
    _fake(operations["compose"], 1, *arguments)


# --- how they are differentiated -----------------------------------------------------------------

class _Composition:
    """How the composition is differentiated, with and without inner as an output, by itself or over a
    base result.

    Operands are lora, the base result, gain, and more that have no gradients, the scale last.
    """

    def __init__(self, compose_inner, backward, types):
        self._compose_inner = compose_inner  # name of the operator
        self._backward = backward            # of autograd
        self._types = types                  # (lora, base) -> what backward takes

    def _keep(self, ctx, inputs):
        lora, base, _, *more = inputs
        if any(ctx.needs_input_grad[3:]):
            raise RuntimeError("compose_residual: argument `bias` requires grad, for which the operator "
                               "has no formula; call dorajit.fused_dora_compose_residual")
        ctx.scale, ctx.types, ctx.more = more[-1], self._types(lora, base), len(more)

    def save(self, ctx, inputs, output):
        self._keep(ctx, inputs)
        lora, base, gain, *biases, _ = inputs
        # inner is computed again, if it is needed: callers that know they need it use the other form.
        ctx.save_for_backward(gain, *((lora, base, *biases) if ctx.needs_input_grad[2] else ()))

    def differentiate(self, ctx, d_out):
        gain, *operands = ctx.saved_tensors
        inner = None
        if operands:
            lora, base, *biases = operands
            inner = getattr(_ops, self._compose_inner)(lora, base, gain, *biases, ctx.scale)[1]
        found = self._backward(d_out, inner, gain, ctx.scale, ctx.needs_input_grad, *ctx.types)
        return *found, *(None,) * ctx.more

    def save_inner(self, ctx, inputs, output):
        self._keep(ctx, inputs)
        ctx.set_materialize_grads(False)
        ctx.save_for_backward(inputs[2], output[1] if ctx.needs_input_grad[2] else None)

    def differentiate_inner(self, ctx, d_out, d_inner):
        return *autograd.gradients(ctx, d_out, d_inner, self._backward), *(None,) * ctx.more


_composition = _Composition("compose_inner", autograd.backward, lambda lora, base: (base.dtype,))
_over_residual = _Composition("compose_residual_inner", autograd.residual_backward,
                              lambda lora, result: (lora.dtype, result.dtype))


def _save_for_backward(ctx, inputs, output):
    d_out, inner, gain, ctx.scale, ctx.wanted, *types = inputs
    ctx.types = len(types)
    ctx.save_for_backward(d_out, gain, inner)


def _differentiate_backward(ctx, gradients, is_residual=False):
    d_out, gain, inner = ctx.saved_tensors
    given = iter(gradients)
    gradients = [next(given) if want else None for want in ctx.wanted]
    return *expression.second_backward(d_out, inner, gain, ctx.scale, gradients,
                                       ctx.needs_input_grad[:3], is_residual), *(None,) * (2 + ctx.types)


def _differentiate_residual_backward(ctx, gradients):
    return _differentiate_backward(ctx, gradients, True)


def _save_for_norm_assembly(ctx, inputs, output):
    *terms, ctx.scale = inputs
    ctx.save_for_backward(*terms)


def _differentiate_norm_assembly(ctx, d_norm):
    terms = ctx.saved_tensors
    return *expression.norm_assembly_backward(d_norm, *terms, ctx.scale, ctx.needs_input_grad[:3]), None


# --- registration --------------------------------------------------------------------------------

_DIFFERENTIABLE = {
    "compose": (_composition.differentiate, _composition.save),
    "compose_inner": (_composition.differentiate_inner, _composition.save_inner),
    "backward": (_differentiate_backward, _save_for_backward),
    "norm_assembly": (_differentiate_norm_assembly, _save_for_norm_assembly),
    "compose_residual": (_over_residual.differentiate, _over_residual.save),
    "compose_residual_inner": (_over_residual.differentiate_inner, _over_residual.save_inner),
    "residual_backward": (_differentiate_residual_backward, _save_for_backward),
}


def _define(name, schema, run_it, fake):
    _library.define(schema, tags=(torch.Tag.pt2_compliant_tag,))
    # Below autograd and for every device: what has no kernels there runs in PyTorch.
    _library.impl(name, run_it, "CompositeExplicitAutograd")
    torch.library.register_fake(f"dorajit::{name}", fake, lib=_library)


def _variants(operation):
    """Name -> how many outputs it makes."""
    required = sum(one.is_required for one in operation.outputs)
    yield operation.name, required
    if required:
        for count, output in enumerate(operation.outputs[required:], required + 1):
            yield f"{operation.name}_{output.name}", count


for _operation in operations.values():
    for _name, _count in _variants(_operation):
        _define(_name, _schema(_name, _operation, _count), functools.partial(_run, _operation, _count),
                functools.partial(_fake, _operation, _count))
        if _name in _DIFFERENTIABLE:
            _library.register_autograd(_name, functools.partial(_expression, _operation, _count),
                                       *_DIFFERENTIABLE[_name])
_define("compose_", "compose_(Tensor(a!) lora, Tensor base, Tensor gain, float scale) -> ()",
        _compose_into, _fake_compose_into)
# Of the two that which keeps inner: the other keeps lora, to be written.
_library.register_in_place("compose_", lambda *operands: _ops.compose_inner(*operands)[0])


# --- calls through them --------------------------------------------------------------------------

def compose(lora, base, gain, scale, inplace):
    """fused_dora_compose as an operator; traceable."""
    if inplace:
        if eligibility.builds_graph(lora, base, gain):
            return lora.copy_(compose(lora, base, gain, scale, False))
        _ops.compose_(lora, base, gain, scale)
        return lora
    if _keeps_inner(gain):
        return _ops.compose_inner(lora, base, gain, scale)[0]
    return _ops.compose(lora, base, gain, scale)


def _keeps_inner(gain):
    """Whether inner is made for a backward pass. Not in a trace of torch.jit, which compares it with one
    that builds no graph."""
    return (torch.is_grad_enabled() and gain.requires_grad
            and (eligibility.is_compiling() or not eligibility.is_jit_tracing()))


def compose_inner(lora, base, gain, scale):
    """As compose, for fused_dora_forward_and_inner."""
    return _ops.compose_inner(lora, base, gain, scale)


def backward(d_out, inner, gain, scale, wanted):
    """As compose, for compose_backward."""
    results = _ops.backward(d_out, inner if wanted[2] else None, gain, scale, wanted, d_out.dtype)
    placed, position = [], 0
    for want in wanted:
        placed.append(results[position] if want else None)
        position += int(want)
    return tuple(placed)


def norm_assembly(w_norm_sq, cross_term, ba_norm_sq, scale):
    """As compose, for fused_norm_assembly."""
    return _ops.norm_assembly(w_norm_sq, cross_term, ba_norm_sq, scale)


def compose_residual(lora, result, gain, bias, scale):
    """As compose, for fused_dora_compose_residual."""
    if _keeps_inner(gain):
        return _ops.compose_residual_inner(lora, result, gain, bias, scale)[0]
    return _ops.compose_residual(lora, result, gain, bias, scale)
