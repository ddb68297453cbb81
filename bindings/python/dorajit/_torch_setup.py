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
        count_change=torch.autograd.graph.increment_version,
        in_inference=torch.is_inference_mode_enabled,
        current_stream=getattr(torch._C, "_cuda_getCurrentRawStream", None),
        exchange_api=exchange_api,
        make_exception=errors.from_status)


EXCHANGE_API = getattr(torch.Tensor, "__dlpack_c_exchange_api__", None)
configure(EXCHANGE_API)
_native.configure_route(
    tensor=torch.Tensor,
    parameter=torch.nn.Parameter,
    mode_count=torch._C._len_torch_dispatch_stack,
    is_key_included=torch._C._dispatch_tls_is_dispatch_key_included,
    pre_dispatch=torch._C.DispatchKey.PreDispatch,
    tracing_state=torch._C._get_tracing_state,
    transform_level=torch._C._functorch.maybe_current_level,
    is_grad_enabled=torch.is_grad_enabled,
    forward_ad=vars(torch.autograd.forward_ad))
