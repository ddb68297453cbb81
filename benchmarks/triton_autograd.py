"""The Triton peers as a PyTorch user calls them: results are allocated, gradients come by autograd."""

import concurrent.futures
import os

import torch
import triton

from peers import backward_sum, backward_two_stage
from peers import compose as peer


def compose(lora, base, gain, scale):
    out = torch.empty_like(lora)
    peer.compose(lora, base, gain, scale, out)
    return out


class Compose(torch.autograd.Function):
    """As in the paper: forward keeps inner, backward is a kernel and PyTorch's product and sum."""

    @staticmethod
    def forward(ctx, lora, base, gain, scale):
        out, inner = torch.empty_like(lora), torch.empty_like(lora)
        peer.compose_inner(lora, base, gain, scale, out, inner)
        ctx.save_for_backward(inner, gain)
        ctx.scale = scale
        return out

    @staticmethod
    def backward(ctx, d_out):
        inner, gain = ctx.saved_tensors
        d_lora, d_base, product = (torch.empty_like(d_out) for _ in range(3))
        d_gain = torch.empty_like(gain)
        backward_sum.backward(d_out, inner, gain, ctx.scale, d_lora, d_base, d_gain, product)
        return d_lora, d_base, d_gain, None


class ComposeTwoStage(Compose):
    """With the faster backward pass."""

    @staticmethod
    def backward(ctx, d_out):
        inner, gain = ctx.saved_tensors
        d_lora, d_base, d_gain = (torch.empty_like(one) for one in (d_out, d_out, gain))
        partials = torch.empty(backward_two_stage.workspace_shape(*d_out.shape), device=d_out.device)
        backward_two_stage.backward(d_out, inner, gain, ctx.scale, d_lora, d_base, d_gain, partials)
        return d_lora, d_base, d_gain, None


def precompile(dtype, gain_dtype, two_stage):
    """Compiles all configs on all cores, instead of one by one while tuning."""
    with (concurrent.futures.ThreadPoolExecutor(os.cpu_count()) as executor,
          triton.AsyncCompileMode(executor)):
        peer.compile_compose(dtype, gain_dtype)
        peer.compile_compose_inner(dtype, gain_dtype)
        backward_sum.compile_backward(dtype, gain_dtype)
        if two_stage:
            backward_two_stage.compile_backward(dtype, gain_dtype)
