"""Gated MLPs of transformers over PEFT's DoRA layers as one node (dorajit.layers.gated_mlp).

Their classes are found by the source of `forward` at the first call of a patched model, because a class may do anything
under a known name.
"""

import ast
import inspect
import textwrap
from typing import NamedTuple

import torch

from dorajit.control import state
from dorajit.distributed import gather
from dorajit.layers import gated_mlp, modules, recomputation
from dorajit.operations import eligibility
from dorajit.peft import linear


class _Form(NamedTuple):
    """A forward."""

    parameter: str
    projections: tuple  # the children that are multiplied by
    activation: str     # the child that is the activation


_SEPARATE = _Form("x", ("gate_proj", "up_proj", "down_proj"), "act_fn")
_JOINT = _Form("hidden_states", ("gate_up_proj", "down_proj"), "activation_fn")  # rows of gate, then those of up
# Bodies of `forward`, without docstrings: Llama, Mistral, Qwen2, Qwen3, Gemma, and Liger's in their place; Phi-3, GLM.
_SOURCES = {
    "down_proj = self.down_proj(self.act_fn(self.gate_proj(x)) * self.up_proj(x))\nreturn down_proj": _SEPARATE,
    "return self.down_proj(self.act_fn(self.gate_proj(x)) * self.up_proj(x))": _SEPARATE,
    "return self.down_proj(LigerSiLUMulFunction.apply(self.gate_proj(x), self.up_proj(x)))": _SEPARATE,
    """up_states = self.gate_up_proj(hidden_states)
gate, up_states = up_states.chunk(2, dim=-1)
up_states = up_states * self.activation_fn(gate)
return self.down_proj(up_states)""": _JOINT,
}
_forms = {}  # class -> its form, or None; a dictionary, which compilers read
_FORMS = {ast.dump(ast.parse(source)): form for source, form in _SOURCES.items()}
# (module, class) of the activation -> its name in gated_mlp.ACTIVATIONS
_ACTIVATIONS = {("torch.nn.modules.activation", "SiLU"): "silu", ("transformers.activations", "SiLUActivation"): "silu",
                ("transformers.activations", "GELUActivation"): "gelu", ("transformers.activations", "GELUTanh"): "gelu_tanh",
                ("transformers.activations", "PytorchGELUTanh"): "gelu_tanh"}


def _form_of(kind):
    """The form of this class's forward, None for an unknown one."""
    forward = vars(kind).get("forward")
    if not inspect.isfunction(forward):
        return None
    try:
        parsed = ast.parse(textwrap.dedent(inspect.getsource(forward))).body
    except (OSError, SyntaxError, TypeError):
        return None
    if not parsed or not isinstance(parsed[0], ast.FunctionDef):  # the file has changed since it was imported
        return None
    body = parsed[0].body
    if isinstance(body[0], ast.Expr) and isinstance(body[0].value, ast.Constant):
        body = body[1:]
    form = _FORMS.get(ast.dump(ast.Module(body, [])))
    is_whole = form is not None and list(inspect.signature(forward).parameters) == ["self", form.parameter]
    return form if is_whole else None


def classes_of(modules):
    """The classes of the gated MLPs over PEFT's DoRA layers among these modules."""
    found = set()
    for module in modules:
        kind = type(module)
        if kind not in _forms:
            _forms[kind] = _form_of(kind)
        if _forms[kind] is not None and all(getattr(module._modules.get(name), "lora_magnitude_vector", None)
                                            for name in _forms[kind].projections):
            found.add(kind)
    return found


def forward(original, self, *args, **kwargs):
    """The forward of such a class."""
    given = *args, *kwargs.values()
    out = at_once(self, *given) if len(given) == 1 else ""
    return original(self, *args, **kwargs) if type(out) is str else out


def at_once(module, x):
    """The MLP's output by one node; a text that tells why its layers have to be called one by one."""
    form = _forms[type(module)]
    given = _layers(module, form, x)
    if type(given) is str:
        return given
    made = gated_mlp.at_once(given, x, _activation(module._modules[form.activation]))
    if type(made) is not str and not eligibility.is_compiling():
        for layer, *_ in given:
            recomputation.note(layer)
    return made


def joined(module):
    """The names of a module's children that would run as one node; for dorajit.layers.explain."""
    form = _forms.get(type(module))
    layers = [module._modules.get(name) for name in form.projections] if form else ()
    if not layers or not all(layers):
        return ()
    if not all(gather.is_here(one) for layer in layers for one in layer.parameters()):
        return ()
    given = _layers(module, form, next(layers[0].parameters()))  # of x the type alone is asked
    if type(given) is str:
        return ()
    _, weight, a, *_ = given[0]
    x = a.new_empty((1, a.shape[1]), dtype=weight.dtype or a.dtype)
    return () if gated_mlp.why_apart(given, x) else form.projections


def _layers(module, form, x):
    """For each of gate, up and down the arguments of gated_mlp.at_once; a text that tells why they are called one by one."""
    if not state.joins_mlp:
        return "DORAJIT_MLP=0 or patch_peft(mlp=False) leaves them apart"
    children = module._modules
    if _activation(children.get(form.activation)) is None:
        return "its activation is not silu or gelu, or has hooks"
    if modules.has_global_hook():
        return "global module hooks run; remove them"
    given = []
    for name in form.projections:
        layer = children[name]
        if modules.has_own_call(layer):
            return f"{name} has hooks or a forward of its own"
        if not linear.layers.is_installed(type(layer).forward):
            return f"{name} is not patched"
        parts = linear.parts(layer, x)
        if type(parts) is str:
            return parts
        given.append((parts[0], *parts[2:]))
    return given if form is _SEPARATE else _halves(*given)


def _halves(joint, down):
    """gate, up and down of a layer that computes gate and up, and of down."""
    layer, weight, a, b, magnitude, scale, bias, *others = joint
    if not isinstance(weight, torch.Tensor) or bias is not None or any(one is not None for one in others):
        return "gate and up are one layer, which has a quantized weight, a bias, dropout or kept gains"
    if not eligibility.builds_graph(a, b, magnitude):
        return "gate and up are one layer, whose gain is kept where nothing is trained"
    return [*((layer, *half) for half in zip(weight.chunk(2), (a, a), b.chunk(2), magnitude.chunk(2), (scale, scale),
                                             (None, None))), down]


def _activation(module):
    if module is None or modules.has_own_call(module):
        return None
    return _ACTIVATIONS.get((type(module).__module__, type(module).__name__))
