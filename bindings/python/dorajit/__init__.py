"""Fused DoRA kernels, compiled and tuned for the present device.

    import dorajit
    out = dorajit.fused_dora_compose(lora, base, gain, scale, inplace=False)

The operations and layers need PyTorch; everything else works without it. See docs/python.md.
"""

import sys as _sys

try:
    import torch as _torch
except ImportError as error:
    _torch, _why_not = None, error.with_traceback(None)
else:
    # PyTorch's operators and what the extension module is configured with exist once in a process: an import after a
    # removal from sys.modules gives the modules of the first one.
    _modules = vars(_torch.ops.dorajit).setdefault("_modules", {})
    _sys.modules.update(_modules)

from dorajit import _native, errors
from dorajit.control import disabled, force_native, set_dropout, set_low_rank_dtype, tuning
from dorajit.errors import (CacheError, CaptureUnsafeError, CompileError, DriverError, Error, FallbackError,
                            InternalError, InvalidArgumentError, NoCompilerError, NoDriverError,
                            OutOfMemoryError, UnsupportedError, WrongDeviceError)
from dorajit.program import cache

__version__ = _native.__version__

__all__ = ["cache", "disabled", "force_native", "set_dropout", "set_low_rank_dtype", "tuning",
           "CacheError", "CaptureUnsafeError", "CompileError", "DriverError", "Error", "FallbackError", "InternalError",
           "InvalidArgumentError", "NoCompilerError", "NoDriverError", "OutOfMemoryError",
           "UnsupportedError", "WrongDeviceError"]
_without_torch = len(__all__)
__all__ += ["fused_dora_compose", "fused_dora_forward_and_inner", "fused_norm_assembly",
            "fused_dora_compose_autograd", "fused_dora_compose_residual", "compose_backward",
            "FusedDoRAComposeFunction", "Kernel", "explain_dispatch", "prewarm", "warmup", "weight_norm", "nn",
            "dora_linear", "dora_gated_mlp", "Projection", "frozen_weights", "patch_peft", "Dispatch", "ModelDispatch",
            "set_dora_norm_threshold_mb", "get_dora_norm_threshold_mb", "get_dora_norm_threshold_bytes",
            "set_dora_forward_threshold_mb",
            "get_dora_forward_threshold_mb", "get_dora_forward_threshold_bytes", "invalidate_environment"]
_NEED_TORCH = __all__[_without_torch:]

if _torch is None:
    del __all__[_without_torch:]
else:
    from dorajit import _torch_setup  # passes PyTorch's functions to the extension before the first call
    from dorajit import testing
    from dorajit.control import (get_dora_forward_threshold_bytes, get_dora_forward_threshold_mb,
                                 get_dora_norm_threshold_bytes, get_dora_norm_threshold_mb, invalidate_environment,
                                 set_dora_forward_threshold_mb, set_dora_norm_threshold_mb)
    from dorajit.operations.eligibility import Dispatch
    from dorajit.operations.api import (FusedDoRAComposeFunction, compose_backward, fused_dora_compose,
                                        fused_dora_compose_autograd, fused_dora_compose_residual,
                                        fused_dora_forward_and_inner, fused_norm_assembly, warmup)
    from dorajit.own_kernels import Kernel
    from dorajit.norms.norm import weight_norm
    from dorajit.layers import gated_mlp_operator, linear_operator  # register the operators for torch.compile
    from dorajit.layers.gated_mlp import Projection, dora_gated_mlp
    from dorajit.layers.explain import ModelDispatch, explain_dispatch
    from dorajit.layers.linear import dora_linear
    from dorajit.norms.frozen import frozen_weights
    from dorajit import nn
    from dorajit.peft import patch_peft
    from dorajit.prewarm.passes import prewarm
    _modules.update((name, one) for name, one in _sys.modules.items() if name.partition(".")[0] == "dorajit")


def __getattr__(name):
    if name in _NEED_TORCH:
        raise errors.needs_torch(f"dorajit.{name}", _why_not) from _why_not
    raise AttributeError(f"module 'dorajit' has no attribute {name!r}")
