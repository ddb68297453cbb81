"""Models whose tensors are fake for the time of a recording: they have shapes and types, and no memory."""

import contextlib
import copy

import torch
from torch._subclasses import FakeTensorMode

_aten = torch.ops.aten
_BY_INDEX = {_aten.index.Tensor, _aten.index_put.default, _aten.index_put_.default}
_ADDMM = getattr(_aten.addmm, "dtype", None)  # with a result of another type, which some versions of PyTorch cannot fake


class _Mode(FakeTensorMode):
    """Reads masks that are real, by which models choose elements of fake tensors."""

    def dispatch(self, func, types, args=(), kwargs=None):
        if func is _ADDMM:
            total, left, right, dtype = args
            size = left.shape[0], right.shape[1]
            return super().dispatch(_aten.new_empty.default, types, (total, size), {"dtype": dtype})
        if func in _BY_INDEX:
            found = []
            for one in args[1]:
                is_mask = one is not None and one.dtype is torch.bool and type(one) is torch.Tensor
                found += one.nonzero().unbind(1) if is_mask else [one]
            args = (args[0], found, *args[2:])
        return super().dispatch(func, types, args, kwargs)


class Fakes:
    """Fake tensors in place of those of modules.

    The mode is active only where fake tensors meet in an operation, so that nothing observes the calls of a model. Its
    integers, such as token numbers and masks, stay real: models read them.
    """

    def __init__(self):
        self._mode = _Mode(allow_non_fake_inputs=True)
        self._made = {}  # id of a tensor -> (the tensor, its fake); tied parameters stay tied

    def of(self, tensor):
        """The fake of a tensor on any device, as a parameter if it is one."""
        found = self._made.get(id(tensor))
        if found is None:
            with self._mode:
                fake = torch.empty_strided(tensor.shape, tensor.stride(), dtype=tensor.dtype, device="cpu")
            state = getattr(tensor, "quant_state", None)  # of bitsandbytes
            if state is not None:
                fake.quant_state = self._of_quantization(state)
            elif isinstance(tensor, torch.nn.Parameter):
                fake = torch.nn.Parameter(fake, requires_grad=tensor.requires_grad)
            found = self._made[id(tensor)] = tensor, fake
        return found[1]

    def _of_quantization(self, state):
        made = copy.copy(state)
        for name, value in vars(state).items():
            if isinstance(value, torch.Tensor):
                setattr(made, name, self.of(value))
        if made.state2 is not None:
            made.state2 = self._of_quantization(made.state2)
        return made

    def is_needed(self, tensor):
        return isinstance(tensor, torch.Tensor) and (
            tensor.is_meta or tensor.is_floating_point() or hasattr(tensor, "quant_state"))

    def inputs(self, given):
        """Nested inputs of a model, with fake tensors of their floating point numbers."""
        return torch.utils._pytree.tree_map(lambda one: self.of(one) if self.is_needed(one) else one, given)

    @contextlib.contextmanager
    def inside(self, model):
        """Context, which yields this, in which the parameters, buffers and other tensors of a model's modules are fake, and
        integer buffers copies. Afterwards each module has the attributes that it had, its mode included."""
        before = []  # (dictionary, its entries)
        try:
            for module in model.modules():
                for owner in (module._parameters, module._buffers, module._modules, vars(module)):
                    before.append((owner, dict(owner)))
                    owner.update((name, self.of(one)) for name, one in before[-1][1].items() if self.is_needed(one))
                for name, one in module._buffers.items():
                    if isinstance(one, torch.Tensor) and not self.is_needed(one) and type(one) is torch.Tensor:
                        module._buffers[name] = one.clone()
            yield self
        finally:
            for owner, kept in before:
                owner.clear()
                owner.update(kept)
