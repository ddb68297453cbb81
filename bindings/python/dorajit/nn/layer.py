"""The common base class of the layers: parameters and their names, gain, merging."""

import math
from typing import Optional

import torch
from torch import Tensor, nn

from dorajit.control import state
from dorajit.layers import dropout as dropouts
from dorajit.layers import explain
from dorajit.norms import dtensor_norm, frozen, norm, precision
from dorajit.operations import api, expression, gain
from dorajit.operations.gain import HALVES
from dorajit.distributed import gather

_ROWS_AT_ONCE = 1024  # of a merged weight


def of_base(name):
    """A property that is the attribute of this name of the base layer."""
    return property(lambda self: getattr(self.base_layer, name))


def _read(module):
    if not isinstance(module, DoRALayer):
        return None
    made = (explain.Dispatch(explain.BASE, "the adapter is merged") if module.merged
            else explain.of_parts(module, module._parts(None)))
    return made, [module.lora_magnitude_vector]


explain.readers.append(_read)


class DoRALayer(nn.Module):
    """A frozen base layer with weight W and a DoRA adapter: g * (W + s B A), with the gain g = m / ||W + s B A||
    per row (arXiv:2603.22276, appendix A).

    Parameters have the names of PEFT's checkpoints: lora_A.weight, lora_B.weight and lora_magnitude_vector next to
    base_layer.*. Names that contain an adapter name, as in the state dict of a PEFT model, are accepted when loading.

    Attributes:
        base_layer: the given layer, frozen.
        scaling: s.
        merged: whether the base layer's weight contains the adapter now.
    """

    _base_type: type  # of the base layer
    _adapter_names = "lora_A.weight", "lora_B.weight", "lora_magnitude_vector"

    def __init__(self, base_layer: nn.Module, rank: int, alpha: float = 1.0, *, dropout: float = 0.0,
                 use_rslora: bool = False, dtype: Optional[torch.dtype] = None):
        """A new adapter, which does not change the output until it is trained.

        Args:
            base_layer: the base layer; it is frozen.
            rank: the rank of B A, 1 or more.
            alpha: s = alpha / rank, or alpha / sqrt(rank) with use_rslora.
            dropout: the probability of dropout on the adapter's input, 0 <= dropout < 1.
            dtype: the element type of lora_A and lora_B; None for that of the base weight. The magnitude is
                float32, or float64 if the base weight is.

        Raises:
            TypeError: base_layer is not of the class's type in torch.nn, or its weight is not floating point.
            ValueError: rank or dropout is out of range, the base weight is a DTensor, or base_layer has an option that
                the class does not support.
        """
        super().__init__()
        name = type(self).__name__
        if not isinstance(base_layer, self._base_type):
            raise TypeError(f"{name}: argument `base_layer` is a {type(base_layer).__name__}; pass a "
                            f"torch.nn.{self._base_type.__name__}")
        unfit = self._unfit(base_layer)
        if unfit:
            raise ValueError(f"{name}: argument `base_layer` has {unfit}")
        if isinstance(rank, bool) or not isinstance(rank, int) or rank < 1:
            raise ValueError(f"{name}: argument `rank` is {rank!r}; give a whole number, 1 or more")
        if not 0 <= dropout < 1:
            raise ValueError(f"{name}: argument `dropout` is {dropout!r}; give 0 <= dropout < 1")
        weight = base_layer.weight
        if not weight.is_floating_point():
            raise TypeError(f"{name}: the weight of argument `base_layer` has elements of {weight.dtype}; for "
                            "quantized layers use PEFT and dorajit.patch_peft()")
        if gather.is_dtensor(weight):
            raise ValueError(f"{name}: the weight of argument `base_layer` is a DTensor, and new factors "
                             "would differ between ranks; create the layer first, then call fully_shard, "
                             "or distribute_tensor for its parameters")
        self.base_layer = base_layer.requires_grad_(False)
        self.rank, self.alpha = rank, alpha
        self.scaling = alpha / (math.sqrt(rank) if use_rslora else rank)
        self.lora_dropout = nn.Dropout(dropout) if dropout else nn.Identity()
        self.merged = False
        self._kept_weight = None
        self._add_factors(base_layer, rank, {"device": weight.device, "dtype": dtype or weight.dtype})
        # The magnitude is the row norms, so that the gain is exactly 1 while B A is 0; float32 or float64.
        norms = self.weight_norm()
        norms = gain.magnitude_of(norms, norms.dtype)
        self.lora_magnitude_vector = nn.Parameter(norms.reshape(self._magnitude_shape(norms.numel())))

    def _unfit(self, base_layer):
        """The option of the base layer that the class does not support, with the remedy; or None."""
        return None

    def _add_factors(self, base, rank, like):
        """Adds A and B with the device and element type `like`; B A is 0."""
        self.lora_A, self.lora_B = self._new_factors(base, rank, {"bias": False, **like})
        nn.init.kaiming_uniform_(self.lora_A.weight, a=math.sqrt(5))
        nn.init.zeros_(self.lora_B.weight)

    def _magnitude_shape(self, rows):
        return (rows,)

    def _factors(self):
        """The weight as [rows, columns] and its A and B."""
        return self.base_layer.weight, self.lora_A.weight, self.lora_B.weight

    def _to_weight(self, rows):
        """A matrix in the orientation of _factors() -> in the orientation of the weight."""
        return rows

    def weight_norm(self) -> Tensor:
        """||W + s B A|| per row, a constant for autograd. Collective if W is sharded."""
        with gather.whole(self):
            weight, a, b = self._factors()
            return norm.weight_norm(weight, a, b, self.scaling)

    def gain(self) -> Tensor:
        """magnitude / norm, differentiable with respect to the magnitude."""
        with gather.whole(self):
            weight, a, b = operands = self._factors()
            factors = norm.factors_of_layer(weight, a, b)
            norms = frozen.made(frozen.of(self), operands, (self.scaling, factors[0].dtype),
                                lambda: norm.weight_norm(weight, *factors, self.scaling))
            return gain.gain(self.lora_magnitude_vector, norms)

    def _bias(self, result):
        """The base layer's bias in a form that can be combined with the base result, or None."""
        base = self.base_layer
        return base.bias if gather.is_dtensor(result) else gather.constant(base, "bias")

    def _adapted(self, x, result):
        """The output of a layer that runs its factors as modules, from the base result of x."""
        with precision.of_adapter(result):
            return self._with_modules(x, result).to(result.dtype)

    def _with_modules(self, x, result):
        given = x.to(self.lora_A.weight.dtype)
        if self._drops and state.dropout == "low_rank":
            given = self.lora_dropout(given)
        if not self._drops or state.dropout == "low_rank":
            lora = self.lora_B(self.lora_A(given))
            return api.fused_dora_compose_residual(lora, result, self.gain(), self.scaling, self._bias(result))
        given, factor = self.lora_dropout(given), self.gain()
        lora = self.lora_B(self.lora_A(given))
        if gather.is_here(self.base_layer.weight):
            delta = self._delta_of_dropped(given, lora, factor)
        else:  # the module's own forward gathers its weight, also for the backward pass
            base = self.base_layer(given.to(x.dtype)).to(lora.dtype)
            base = expression.without_bias(base, self._bias(base), factor)
            delta = api.fused_dora_compose_autograd(lora, base, factor, self.scaling)
        return result + delta

    def _parts(self, x):
        """The arguments of linear.at_once for layers that may be one node; a text that tells why not for others."""
        return explain.NO_NODE

    @property
    def _drops(self):
        return self.training and dropouts.drops(self.lora_dropout)

    @torch.no_grad()
    def merge(self, keep: bool = True) -> None:
        """Replaces W by gain * (W + s B A).

        Args:
            keep: keep a copy of W in host memory, so that unmerge() restores it to the bit.

        If the weight is a DTensor each rank merges its part. The caller has to gather parameters of FSDP1 and
        ZeRO-3, in a context that writes them back.

        Raises:
            RuntimeError: the adapter is merged already.
            ValueError: the merged weight would not be finite, W is not gathered, or W is computed
                from other parameters (parametrizations, pruning).
        """
        if self.merged:
            raise RuntimeError(f"{type(self).__name__}.merge: the adapter is merged already; call unmerge() first")
        weight = self.base_layer.weight
        _require_stored(type(self).__name__ + ".merge", self.base_layer)
        gather.require_writable(type(self).__name__ + ".merge", "base_layer.weight", weight)
        merged = _merged(*self._factors(), self.gain(), self.scaling)
        if not _is_finite(merged, weight):
            raise ValueError(f"{type(self).__name__}.merge: the merged weight is not finite; look for "
                             "NaNs in `base_layer`, `lora_A`, `lora_B` and `lora_magnitude_vector`")
        here = gather.local(weight)
        self._kept_weight = here.to("cpu", copy=True) if keep else None
        here.copy_(self._to_weight(merged).reshape(here.shape))
        self.merged = True

    @torch.no_grad()
    def unmerge(self) -> None:
        """Restores W.

        Raises:
            RuntimeError: the adapter is not merged, or was merged with keep=False.
        """
        if not self.merged:
            raise RuntimeError(f"{type(self).__name__}.unmerge: the adapter is not merged; call merge() first")
        if self._kept_weight is None:
            raise RuntimeError(f"{type(self).__name__}.unmerge: the base weight was not kept; merge with keep=True")
        weight = self.base_layer.weight
        gather.require_writable(type(self).__name__ + ".unmerge", "base_layer.weight", weight)
        gather.local(weight).copy_(self._kept_weight)
        self._kept_weight, self.merged = None, False

    def _apply(self, fn, recurse=True):
        """Casts to 16 bits (`.to(torch.bfloat16)`, `.half()`) leave the magnitude in float32."""
        magnitude = self._parameters.get("lora_magnitude_vector")  # FSDP1 takes it away
        kept = () if magnitude is None or magnitude.dtype in HALVES else (magnitude, magnitude.grad)

        def apply(tensor):
            made = fn(tensor)
            is_kept = made.dtype in HALVES and any(tensor is one for one in kept)
            return tensor.to(made.device, torch.float32) if is_kept else made
        return super()._apply(apply, recurse)

    def _load_from_state_dict(self, state_dict, prefix, *args):
        for name in self._adapter_names:
            stem = name.removesuffix(".weight")
            given = [key for key in state_dict if key.startswith(f"{prefix}{stem}.")]
            if prefix + name not in state_dict and len(given) == 1:
                state_dict[prefix + name] = state_dict.pop(given[0])
        magnitude = state_dict.get(prefix + "lora_magnitude_vector")
        if magnitude is not None and magnitude.dtype in HALVES:  # load_state_dict(assign=True) keeps its type
            state_dict[prefix + "lora_magnitude_vector"] = magnitude.float()
        super()._load_from_state_dict(state_dict, prefix, *args)

    def _shape_error(self, x, wanted):
        """The ValueError for an input that the layer cannot take."""
        return ValueError(f"{type(self).__name__}: argument `x` has shape {tuple(x.shape)}; {wanted}")

    def extra_repr(self):
        return f"rank={self.rank}, scaling={self.scaling:g}, merged={self.merged}"


def _merged(weight, a, b, gain, scaling):
    """gain * (W + s B A), as a matrix of the weight's element type; if the weight is a DTensor, for its local part."""
    if gather.is_dtensor(weight):
        weight, a, b, here = dtensor_norm.operands(weight, a, b)
        gain = gain.full_tensor() if gather.is_dtensor(gain) else gain
        gain = gain.reshape(-1)[here.rows.to(gain.device)]
    weight, a, b = (one.detach().flatten(1) for one in (weight, a, b))
    gain = gain.reshape(-1, 1)
    result = torch.empty_like(weight)
    with precision.full(weight.device.type):
        for start in range(0, weight.shape[0], _ROWS_AT_ONCE):
            rows, wide = slice(start, start + _ROWS_AT_ONCE), gain.dtype
            dense = torch.addmm(weight[rows].to(wide), b[rows].to(wide), a.to(wide), alpha=scaling)
            result[rows] = dense.mul_(gain[rows]).to(result.dtype)
    return result


def _require_stored(function, base_layer):
    """Raises ValueError if the weight is recomputed for each pass, so that a merged weight would be overwritten."""
    names = dict(base_layer.named_parameters(recurse=False))
    is_made_of_others = "weight" not in names and any(name.startswith("weight_") for name in names)
    if is_made_of_others or torch.nn.utils.parametrize.is_parametrized(base_layer, "weight"):
        raise ValueError(f"{function}: the weight of `base_layer` is computed from other parameters; "
                         "remove what computes it first (torch.nn.utils.parametrize."
                         "remove_parametrizations, prune.remove, remove_weight_norm)")


def _is_finite(rows, weight):
    """Whether all elements are finite, on all ranks that share the weight."""
    infinite = (~torch.isfinite(rows).all()).to(torch.float32)
    if gather.is_dtensor(weight):
        dtensor_norm.sum_over(infinite, weight.device_mesh, range(weight.device_mesh.ndim))
    return not infinite
