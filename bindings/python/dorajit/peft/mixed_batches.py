"""Batches whose rows have different adapters, PEFT's `adapter_names`, which PEFT refuses for DoRA."""

import torch


def forward(original, of_adapter, module, x, adapter_names):
    """The forward of a module: one call for all rows of an adapter.

    Args:
        original: PEFT's forward, for rows without a DoRA adapter.
        of_adapter: the forward with one DoRA adapter: its arguments are the module, the rows and the adapter's name.
    """
    has_dora = module.use_dora
    if module.disable_adapters:
        return original(module, x, adapter_names=["__base__"] * len(adapter_names))
    if not any(has_dora.get(name) for name in adapter_names):
        return original(module, x, adapter_names=adapter_names)
    module._check_forward_args(x, adapter_names=["__base__" if has_dora.get(name) else name for name in adapter_names])
    order, results = [], []
    for name in dict.fromkeys(adapter_names):
        rows = [row for row, one in enumerate(adapter_names) if one == name]
        part = x if len(rows) == len(x) else x[rows]
        results.append(of_adapter(module, part, name) if has_dora.get(name)
                       else original(module, part, adapter_names=[name] * len(rows)))
        order += rows
    return results[0] if len(results) == 1 else torch.cat(results)[sorted(range(len(order)), key=order.__getitem__)]
