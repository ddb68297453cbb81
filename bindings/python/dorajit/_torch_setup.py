"""Tells the extension of the PyTorch that is loaded; it is compiled without any."""

import torch

from dorajit import _native, errors


def configure(exchange_api):
    """With DLPack's C exchange API, or None for what a PyTorch older than that has."""
    _native.configure(
        dtypes=(torch.float32, torch.float16, torch.bfloat16, torch.float64),
        byte_type=torch.uint8,
        empty_like=torch.empty_like,
        is_neg=torch.Tensor.is_neg,
        is_inference=torch.Tensor.is_inference,
        in_inference=torch.is_inference_mode_enabled,
        count_change=torch.autograd.graph.increment_version,
        current_stream=getattr(torch._C, "_cuda_getCurrentRawStream", None),
        exchange_api=exchange_api,
        make_exception=errors.from_status)


EXCHANGE_API = getattr(torch.Tensor, "__dlpack_c_exchange_api__", None)
configure(EXCHANGE_API)
