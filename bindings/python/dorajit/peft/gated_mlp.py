"""Gated MLPs of transformers over PEFT's DoRA layers as one node (dorajit.layers.gated_mlp).

Their classes are found by the source of `forward` at the first call of a patched model, because a class may do anything
under a known name.
"""

import ast
import functools
import inspect
import textwrap

import torch

from dorajit.control import state
from dorajit.distributed import gather
from dorajit.layers import gated_mlp, modules, recomputation
from dorajit.operations import eligibility
from dorajit.peft import linear

_PROJECTIONS = "gate_proj", "up_proj", "down_proj"
# Bodies of `forward(self, x)`, without docstrings: Llama, Mistral, Qwen2, Qwen3, Gemma, and Liger's in their place.
_SOURCES = (
    "down_proj = self.down_proj(self.act_fn(self.gate_proj(x)) * self.up_proj(x))\nreturn down_proj",
    "return self.down_proj(self.act_fn(self.gate_proj(x)) * self.up_proj(x))",
    "return self.down_proj(LigerSiLUMulFunction.apply(self.gate_proj(x), self.up_proj(x)))",
)
_KNOWN = {ast.dump(ast.parse(source)) for source in _SOURCES}
# (module, class) of the activation -> its name in gated_mlp.ACTIVATIONS
_ACTIVATIONS = {("torch.nn.modules.activation", "SiLU"): "silu", ("transformers.activations", "SiLUActivation"): "silu",
                ("transformers.activations", "GELUActivation"): "gelu", ("transformers.activations", "GELUTanh"): "gelu_tanh",
                ("transformers.activations", "PytorchGELUTanh"): "gelu_tanh"}


@functools.cache
def is_known(kind):
    """Whether the forward of this class is one of the known ones."""
    forward = vars(kind).get("forward")
    if not inspect.isfunction(forward) or list(inspect.signature(forward).parameters) != ["self", "x"]:
        return False
    try:
        body = ast.parse(textwrap.dedent(inspect.getsource(forward))).body[0].body
    except (OSError, SyntaxError, TypeError):
        return False
    if isinstance(body[0], ast.Expr) and isinstance(body[0].value, ast.Constant):
        body = body[1:]
    return ast.dump(ast.Module(body, [])) in _KNOWN


def classes_of(modules):
    """The classes of the gated MLPs over PEFT's DoRA layers among these modules."""
    return {type(module) for module in modules
            if not isinstance(module, torch.jit.ScriptModule)  # its children are not in a dictionary
            and all(getattr(module._modules.get(name), "lora_magnitude_vector", None) for name in _PROJECTIONS)
            and is_known(type(module))}


def forward(original, self, x):
    """The forward of such a class."""
    out = at_once(self, x)
    return original(self, x) if type(out) is str else out


def at_once(module, x):
    """The MLP's output by one node; a text that tells why its layers have to be called one by one."""
    given = _layers(module, x)
    if type(given) is str:
        return given
    made = gated_mlp.at_once(given, x, _activation(module._modules["act_fn"]))
    if type(made) is not str and not eligibility.is_compiling():
        for layer, *_ in given:
            recomputation.note(layer)
    return made


def joined(module):
    """The names of a module's children that would run as one node; for dorajit.layers.explain."""
    layers = [module._modules.get(name) for name in _PROJECTIONS]
    if not all(layers):
        return ()
    if not all(gather.is_here(one) for layer in layers for one in layer.parameters()):
        return ()
    given = _layers(module, next(layers[0].parameters()))  # of x the type alone is asked
    if type(given) is str:
        return ()
    _, weight, a, *_ = given[0]
    return () if gated_mlp.why_apart(given, a.new_empty((1, a.shape[1]), dtype=weight.dtype or a.dtype)) else _PROJECTIONS


def _layers(module, x):
    """For each layer the arguments of gated_mlp.at_once; a text that tells why they have to be called one by one."""
    if not state.joins_mlp:
        return "DORAJIT_MLP=0 or patch_peft(mlp=False) leaves them apart"
    children = module._modules
    if _activation(children.get("act_fn")) is None:
        return "its activation is not silu or gelu, or has hooks"
    if modules.has_global_hook():
        return "global module hooks run; remove them"
    given = []
    for name in _PROJECTIONS:
        layer = children[name]
        if modules.has_own_call(layer):
            return f"{name} has hooks or a forward of its own"
        if not linear.layers.is_installed(type(layer).forward):
            return f"{name} is not patched"
        parts = linear.parts(layer, x)
        if type(parts) is str:
            return parts
        given.append((parts[0], *parts[2:]))
    return given


def _activation(module):
    if module is None or modules.has_own_call(module):
        return None
    return _ACTIVATIONS.get((type(module).__module__, type(module).__name__))
