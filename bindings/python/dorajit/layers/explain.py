"""dorajit.explain_dispatch: how a call, or the layers of a model, would run, and why.

Whether a layer is one node is decided by the functions that its forward pass calls (dorajit.layers.linear.at_once and the
methods that find a layer's parts), which return the reason as text. This module has no rules of its own.
"""

import collections
import warnings
from typing import Optional, Sequence, Union, overload

import torch
from torch import Tensor, nn

from dorajit import checks
from dorajit.control import state
from dorajit.distributed import gather
from dorajit.layers import linear
from dorajit.operations import eligibility
from dorajit.operations.eligibility import Dispatch
from dorajit.operations.gain import HALVES
from dorajit.operations.table import operations

NODE, COMPOSED, BASE, PEFT = "node", "composed", "base", "peft"
_JOINED = "one autograd node with the other layers of a gated MLP"
NO_NODE = "convolutions and embeddings have no node"
joiners = []  # functions: a module -> the names of its children that run as one node together
readers = []  # functions: a module -> (Dispatch, magnitudes), or None if it is no DoRA layer that they know
declined = {}  # reason -> number of calls that were left to PEFT


class ModelDispatch(dict[str, Dispatch]):
    """How each DoRA layer of a model runs now: name -> Dispatch(path, reason). As text it is a table.

    The path is "node": one autograd node, or launches without one where no graph is built; "composed": separate module
    calls, whose composition is a kernel; "base": the base layer alone; "peft": left to PEFT; "sharded": decided in the
    forward pass, which gathers the parameters.

    Attributes:
        halves: the number of trained magnitudes with 16 bits.
    """

    halves = 0

    def summary(self) -> str:
        """One line: how many layers run how, and the choices between computations."""
        paths = collections.Counter(one.path for one in self.values())
        others = "".join(f", {count} {path}" for path, count in paths.items() if path != NODE)
        joined = sum(one.reason == _JOINED for one in self.values())
        others += f", {joined} of them in gated MLPs" if joined else ""
        return (f"{paths[NODE]} of {len(self)} DoRA layers run as one node{others}; dropout: {state.dropout}, low-rank "
                f"products without autocast: {state.low_rank_dtype}")

    def __str__(self) -> str:
        names = {}
        for name, one in self.items():
            names.setdefault(one, []).append(name)
        lines = [f"{len(found):6}  {path:9} {reason}" + ("" if path == NODE else f" ({found[0] or 'the model'}"
                 + (", ..." if len(found) > 1 else "") + ")")
                 for (path, reason), found in sorted(names.items(), key=lambda one: -len(one[1]))]
        if self.halves:
            lines.append(f"{self.halves:6}  trained magnitudes have 16 bits and hardly move; keep them in float32 "
                         "(docs/training.md)")
        return "\n".join([self.summary(), *lines])

    __repr__ = __str__


def of_model(model):
    """The ModelDispatch of a model."""
    found = ModelDispatch()
    for name, module in model.named_modules():
        if isinstance(module, torch.jit.ScriptModule):  # its children are not in a dictionary
            continue
        made = next(filter(None, (read(module) for read in readers)), None)
        layers = module._modules.get("lora_magnitude_vector")  # PEFT's; empty without DoRA
        if made is None and layers:
            made = (Dispatch(PEFT, "the model is not patched; call dorajit.patch_peft()"),
                    [one.weight for one in layers.values()])
        if made is not None:
            found[name], magnitudes = made
            found.halves += sum(one is not None and one.requires_grad and one.dtype in HALVES for one in magnitudes)
    for name, module in model.named_modules():
        for child in (child for join in joiners for child in join(module)):
            found[f"{name}.{child}" if name else child] = Dispatch(NODE, _JOINED)
    return found


def note_declined(reason):
    """Counts a call that was left to PEFT; warns once per reason."""
    declined[reason] = declined.get(reason, 0) + 1
    if declined[reason] == 1:
        warnings.warn(f"dorajit.patch_peft: left to PEFT: {reason}", RuntimeWarning, stacklevel=5)


def of_parts(module, parts):
    """The Dispatch of a layer with these arguments of linear.at_once, whatever x is, or with a text instead of them."""
    if not all(map(gather.is_here, module.parameters())):
        return Dispatch("sharded", "its parameters are sharded now; each forward pass decides when it has gathered them")
    if type(parts) is not str:
        layer, _, weight, a, *others = parts
        x = a.new_empty((1, a.shape[1]), dtype=weight.dtype or a.dtype)
        parts = linear.at_once(layer, x, weight, a, *others, is_question=True)
    return Dispatch(COMPOSED, parts) if type(parts) is str else Dispatch(NODE, "one autograd node")


@overload
def explain_dispatch(lora: nn.Module) -> ModelDispatch: ...
@overload
def explain_dispatch(lora: Tensor, base: Optional[Tensor] = None, gain: Optional[Tensor] = None,
                     operation: str = "compose", *, others: Sequence[Optional[Tensor]] = ()) -> Dispatch: ...
def explain_dispatch(lora: Union[Tensor, nn.Module, None], base: Optional[Tensor] = None, gain: Optional[Tensor] = None,
                     operation: str = "compose", *, others: Sequence[Optional[Tensor]] = ()
                     ) -> Union[Dispatch, ModelDispatch]:
    """How the DoRA layers of a model run, or whether a call with such tensors would run in a kernel or in plain PyTorch,
    and why.

    Nothing is computed or compiled. For a model the answer holds for its present state and that of the process: training
    mode, hooks, autocast, modes, switches.

    Args:
        lora, base, gain: a model with DoRA layers of dorajit.nn or PEFT, without other arguments; or the first three
            inputs of the operation. For "compose_residual": lora, result and gain; for "backward", "residual_backward"
            and "magnitude_backward": d_out, inner and gain; for "norm_assembly": w_norm_sq, cross and ba_norm_sq. None
            for inputs that the operation does not have or that are left out.
        operation: the name of any operation (`dorajit.testing.launch_counts()` lists them).
        others: further inputs, such as the bias of "compose_residual" or the divisor of "magnitude_backward".

    Returns:
        Dispatch(path, reason); path is "native" or "torch". For a model a ModelDispatch, which print() shows as a table.

    Raises:
        TypeError, ValueError: the errors of the call itself; ValueError for an unknown operation, and for
            a model without DoRA layers.
    """
    if isinstance(lora, nn.Module):
        if base is not None or gain is not None or operation != "compose" or others:
            raise TypeError("explain_dispatch: a model takes no other arguments; the layers' own inputs do not matter")
        found = of_model(lora)
        if not found:
            raise ValueError("explain_dispatch: argument `lora` is a model without DoRA layers; pass one with layers of "
                             "dorajit.nn, or of PEFT with use_dora=True")
        return found
    if not isinstance(operation, str) or operation not in operations:
        raise ValueError(f"explain_dispatch: argument `operation` is {operation!r}; give one of "
                         f"{', '.join(map(repr, operations))}")
    described = operations[operation]
    given = lora, base, gain, *others
    count = len(described.inputs)
    inputs = (given + (None,) * count)[:count]
    if any(one is not None for one in given[count:]):
        raise TypeError(f"explain_dispatch: {operation} has {count} tensors, not {len(given)}")
    checks.operands(operation, described, inputs)
    tensors = described.given(inputs).values()
    reason = eligibility.why_torch(described, tensors)
    if reason is not None:
        return Dispatch("torch", reason)
    answer = eligibility.plan(described, inputs)
    if answer.reason is None:
        return Dispatch("native", "a kernel takes other views of the tensors" if answer.changed
                                 else "a kernel takes the tensors as they are")
    if described.makes_gradients and answer.strides_only:
        return Dispatch("native", f"a kernel takes compact copies: {answer.reason}")
    return Dispatch("torch", answer.reason)
