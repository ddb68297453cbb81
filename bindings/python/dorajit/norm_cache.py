"""||W||^2 by rows, kept for each frozen weight as long as the weight lives unchanged."""

from typing import Optional

import torch
from torch.multiprocessing.reductions import StorageWeakRef
from torch.utils.weak import WeakTensorKeyDictionary

from dorajit import fork_lock
from dorajit.sharded import engines

_lock = fork_lock.make()
_kept = WeakTensorKeyDictionary()


def state(weight):
    """What differs if the elements may: None for a tensor that does not tell, and while a dispatch mode
    is active, which may count the operations of a call, as selective checkpointing does."""
    if torch._C._len_torch_dispatch_stack():
        return None
    if weight.is_inference() or torch._C._functorch.is_functorch_wrapped_tensor(weight):
        return None
    if type(weight).__torch_dispatch__ is not torch.Tensor.__torch_dispatch__:
        return None
    if weight.layout is not torch.strided or not weight.numel() or engines.writes_unseen(weight):
        return None
    stream = 0
    if weight.is_cuda:
        if torch.cuda.is_current_stream_capturing():  # a replay would not notice a new weight
            return None
        stream = torch.cuda.current_stream(weight.device).cuda_stream
    return (stream, weight._version, weight.untyped_storage()._cdata, weight.storage_offset(), weight.dtype,
            weight.device, tuple(weight.shape), weight.stride())


def rows(weight, rows_of, compute, elements=None):
    """The kept ||W||^2, or compute()'s from now on.

    Args:
        weight: the frozen tensor; nothing is kept of one that requires grad, or of None. Any change
            that PyTorch counts, other memory, another type, shape or device makes it a new one.
            Memory is told apart by a weak reference to it, so that an address used again is not taken
            for the old one.
        rows_of: what else the sums depend on: how the weight is seen as a matrix.
        compute: makes the sums.
        elements: the tensor that holds the weight's elements; the weight itself if None.
    """
    if weight is None:
        return compute()
    elements = weight if elements is None else elements
    if weight.requires_grad or elements.requires_grad:
        # Fused optimizers write what PyTorch does not count.
        with _lock:
            _kept.pop(weight, None)
        return compute()
    before = None if weight.is_inference() else state(elements)
    if before is None:
        return compute()
    # A DTensor counts changes of its own, of which its local tensor does not know.
    key = (before, weight._version, rows_of)
    with _lock:
        found = _kept.get(weight)
        if found is not None and found[0] == key and not found[1].expired():
            return found[2]
    # A weak reference kept here keeps the storage's address from being another's.
    reference, sums = StorageWeakRef(elements.untyped_storage()), compute()
    if (state(elements), weight._version, rows_of) == key:
        with _lock:
            _kept[weight] = (key, reference, sums)
    return sums


def forget_weight_norms(weight: Optional[torch.Tensor] = None) -> None:
    """Forgets the kept ||W||^2 of one weight, or of all, and the norms of forward passes.

    Needed after writing to a weight in a way that PyTorch does not count: in place through
    `weight.data` or a tensor that was assigned to it, NumPy, DLPack, another process; and after writing
    so to A or B between a forward pass and its recomputation. All else is noticed. And before
    `torch.utils.swap_tensors`, which refuses tensors with weak references.
    """
    from dorajit import recomputation
    recomputation.forget()
    with _lock:
        if weight is None:
            _kept.clear()
        else:
            _kept.pop(weight, None)


def kept(weight):
    """Whether there are sums of this weight; for tests."""
    with _lock:
        return weight in _kept
