# Written by `./dev stubs` from the docstrings of the extension.
from collections.abc import Callable, Sequence
from typing import Any

from torch import Tensor, dtype

__version__: str
def configure(
    dtypes: Sequence[dtype], byte_type: dtype, empty_like: Callable[[Tensor], Tensor],
    is_neg: Callable[[Tensor], bool], count_change: Callable[[Tensor], None],
    in_inference: Callable[[], bool], current_stream: Callable[[int], int] | None,
    exchange_api: object | None, make_exception: Callable[[int, str, str], BaseException]
) -> None: ...
def compose(lora: Tensor, base: Tensor, gain: Tensor, out: Tensor, scale: float, /) -> None: ...
def compose_inner(
    lora: Tensor, base: Tensor, gain: Tensor, out: Tensor, inner: Tensor, scale: float, /
) -> None: ...
def backward(
    d_out: Tensor, inner: Tensor | None, gain: Tensor, d_lora: Tensor | None, d_base: Tensor | None,
    d_gain: Tensor | None, scale: float, /
) -> None: ...
def compose_residual(
    lora: Tensor, result: Tensor, gain: Tensor, bias: Tensor | None, out: Tensor,
    inner: Tensor | None, scale: float, /
) -> None: ...
def residual_backward(
    d_out: Tensor, inner: Tensor | None, gain: Tensor, d_lora: Tensor | None,
    d_result: Tensor | None, d_gain: Tensor | None, scale: float, /
) -> None: ...
def norm_assembly(
    w_norm_sq: Tensor, cross: Tensor, ba_norm_sq: Tensor, norm: Tensor, scale: float, /
) -> None: ...
def warmup(operation: int, tensors: Sequence[Tensor | None]) -> None: ...
def compose_directly(
    lora: Tensor, base: Tensor, gain: Tensor, scale: float, inplace: bool, /
) -> Tensor | int: ...
def compose_inner_directly(
    lora: Tensor, base: Tensor, gain: Tensor, scale: float, /
) -> tuple[Tensor, Tensor] | None: ...
def compose_residual_directly(
    lora: Tensor, result: Tensor, gain: Tensor, bias: Tensor | None, scale: float,
    keeps_inner: bool, /
) -> tuple[Tensor, Tensor | None] | None: ...
def backward_directly(
    d_out: Tensor, inner: Tensor | None, gain: Tensor, scale: float, wanted: Sequence[bool],
    lora_type: dtype, base_type: dtype, /
) -> tuple[Tensor | None, Tensor | None, Tensor | None] | None: ...
def residual_backward_directly(
    d_out: Tensor, inner: Tensor | None, gain: Tensor, scale: float, wanted: Sequence[bool],
    lora_type: dtype, result_type: dtype, /
) -> tuple[Tensor | None, Tensor | None, Tensor | None] | None: ...
def route(*tensors_and_scale: Any) -> int: ...
def configure_route(
    tensor: type, parameter: type, mode_count: Callable[[], int],
    tracing_state: Callable[[], object], transform_level: Callable[[], object],
    is_grad_enabled: Callable[[], bool], forward_ad: dict[str, Any]
) -> None: ...
def statistics() -> dict[str, int]: ...
def call_counts() -> dict[str, int]: ...
def exchange_tune_policy(policy: int) -> int: ...
