"""Error of compose against fp64, for gains near 1, as after training.

    python3 accuracy.py --library libdorajit.so.0 [--device cpu|cuda] [--json FILE]

Activations are bf16; the gain is fp32, 1 + spread * normal, and the reference uses it unrounded. The
paper (arXiv:2603.22276, section 3.1) measured a spread of 0.0015. Two errors are reported, each over
all elements: RMS is |result - exact| / |exact|, max is the largest error over the RMS of the exact
values. The correction is the part that DoRA adds to LoRA, out - scale * lora. Rounding the result to bf16
hides most of this small part, so one form writes fp32. Needs PyTorch; on CUDA also Triton.
"""

import argparse

import torch

import dorajit_c
import report

SCALE = 0.5
SPREADS = (0.0015, 0.01)


def dorajit_form(library, gain_type, out_type=torch.bfloat16):
    def compose(lora, base, gain):
        gain, out = gain.to(gain_type), torch.empty_like(lora, dtype=out_type)
        stream = torch.cuda.current_stream().cuda_stream if lora.is_cuda else None
        library.compose(stream, *map(dorajit_c.view, (lora, base, gain)), SCALE,
                        dorajit_c.view(out))
        return out
    return compose


def peer_form(gain_type):
    from peers import compose as peer

    def compose(lora, base, gain):
        out = torch.empty_like(lora)
        peer.compose(lora, base, gain.to(gain_type), SCALE, out)
        return out
    return compose


def naive(lora, base, gain):
    return gain.bfloat16() * (SCALE * lora + base) - base


def eager(lora, base, gain):
    gain = gain.bfloat16()
    return (gain - 1) * base + gain * (SCALE * lora)


def forms(library, device):
    found = {
        "dorajit, fp32 gain": dorajit_form(library, torch.float32),
        "dorajit, fp32 gain, fp32 result": dorajit_form(library, torch.float32, torch.float32),
        "dorajit, gain rounded to bf16": dorajit_form(library, torch.bfloat16),
        "naive form, bf16 op by op": naive,
        "stable form, bf16 op by op": eager,
    }
    if device == "cuda":
        found["Triton peer, gain rounded to bf16"] = peer_form(torch.bfloat16)
        found["Triton peer, fp32 gain"] = peer_form(torch.float32)
    return found


def errors(result, exact):
    difference, size = result - exact, exact.square().mean().sqrt()
    return {"rms": (difference.square().mean().sqrt() / size).item(),
            "max": (difference.abs().max() / size).item()}


def measure(form, lora, base, gain):
    exact_lora = SCALE * lora.double()
    exact = (gain.double() - 1) * base.double() + gain.double() * exact_lora
    result = form(lora, base, gain).double()
    return {"out": errors(result, exact),
            "correction": errors(result - exact_lora, exact - exact_lora)}


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--library", required=True)
    parser.add_argument("--device", choices=("cpu", "cuda"), default="cpu")
    parser.add_argument("--rows", type=int, default=2048)
    parser.add_argument("--cols", type=int, default=4096)
    parser.add_argument("--json")
    arguments = parser.parse_args()
    torch.manual_seed(20)
    library = dorajit_c.Dorajit(arguments.library)
    lora, base = (torch.randn(arguments.rows, arguments.cols).bfloat16().to(arguments.device)
                  for _ in range(2))
    noise = torch.randn(arguments.cols)
    rows = []
    print(f"{'spread':>7}  {'form':35} {'out RMS':>9} {'out max':>9} {'corr. RMS':>9} "
          f"{'corr. max':>9}")
    for spread in SPREADS:
        gain = (1 + spread * noise).to(arguments.device)
        for name, form in forms(library, arguments.device).items():
            one = measure(form, lora, base, gain)
            rows.append({"spread": spread, "form": name, **one})
            print(f"{spread:>7}  {name:35} {one['out']['rms']:>9.2e} {one['out']['max']:>9.2e} "
                  f"{one['correction']['rms']:>9.2e} {one['correction']['max']:>9.2e}", flush=True)
    report.write(arguments.json, {"device": arguments.device, "torch": torch.__version__, "rows": arguments.rows,
                                  "cols": arguments.cols, "scale": SCALE}, rows)


if __name__ == "__main__":
    main()
