"""Passes the loaded PyTorch's functions and types to the extension module, which is compiled without PyTorch."""

import torch
from torch.autograd import forward_ad

from dorajit import _native, errors

# What observes single operations: dispatch modes, modes before autograd (make_fx), torch.jit.trace, and torch.func
# transforms. For each kind a function, its result while there is none, and its argument if it takes one.
_OBSERVERS = [(torch._C._len_torch_dispatch_stack, 0),
              (torch._C._dispatch_tls_is_dispatch_key_included, False, torch._C.DispatchKey.PreDispatch),
              (torch._C._is_tracing, False),
              (torch._C._functorch.maybe_current_level, None)]


def configure(exchange_api):
    """Configures the extension module.

    Args:
        exchange_api: the capsule of DLPack's C exchange API; None for a PyTorch that does not have it.
    """
    _native.configure(
        dtypes=(torch.float32, torch.float16, torch.bfloat16, torch.float64,
                torch.int8, torch.int16, torch.int32, torch.int64, torch.uint8, torch.bool,
                *(getattr(torch, name, None) for name in (
                    "uint16", "uint32", "uint64", "float8_e4m3fn", "float8_e5m2"))),
        complex_parts=[one.to_real() for one in vars(torch).values()
                       if isinstance(one, torch.dtype) and one.is_complex],
        byte_type=torch.uint8,
        empty_like=torch.empty_like,
        is_neg=torch.Tensor.is_neg,
        is_inference=torch.Tensor.is_inference,
        in_inference=torch.is_inference_mode_enabled,
        count_change=torch.autograd.graph.increment_version,
        current_stream=getattr(torch._C, "_cuda_getCurrentRawStream", None),
        exchange_api=exchange_api,
        make_exception=errors.from_status)

    _native.configure_eligibility(
        tensor=torch.Tensor,
        parameter=torch.nn.Parameter,
        is_grad_enabled=torch.is_grad_enabled,
        signs=_OBSERVERS,
        forward_ad=vars(forward_ad))
    _native.configure_products(torch._C._nn.linear, torch.mm, torch.addmm, torch.float32,
                               lambda view: torch.ops.aten._unsafe_view(view, view.shape))


EXCHANGE_API = getattr(torch.Tensor, "__dlpack_c_exchange_api__", None)
configure(EXCHANGE_API)
