"""Tells the extension of the PyTorch that is loaded; it is compiled without any."""

import torch

from dorajit import _native, errors

_native.configure(
    dtypes=(torch.float32, torch.float16, torch.bfloat16, torch.float64),
    byte_type=torch.uint8,
    current_stream=getattr(torch._C, "_cuda_getCurrentRawStream", None),
    make_exception=errors.from_status)
