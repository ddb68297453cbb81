"""patch_peft with 16-bit types: errors against float64 are not larger than those of PEFT."""

import copy

import dorajit
import pytest
import torch

pytest.importorskip("peft", reason="PEFT is not installed: pip install peft transformers")

from peft_models import KINDS, adapted, results
from perturbed import perturb

# Allowed ratio to PEFT's error: sums in another order may have a slightly larger or smaller error.
FARTHER = 1.25


def errors(found, exact):
    """The error of each result, relative to its norm."""
    pairs = [("out", found[0], exact[0]), *((name, one, exact[1][name]) for name, one in found[1].items())]
    if found[2] is not None:
        pairs.append(("x", found[2], exact[2]))
    return {name: ((one.double() - other).norm() / other.norm()).item() for name, one, other in pairs}


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
@pytest.mark.parametrize("adapter", ["float32", "half"])
@pytest.mark.parametrize("autocast", [True, False])
def test_patched_model_errors_are_not_larger_than_those_of_peft(device, kind, dtype, adapter, autocast):
    model = perturb(adapted(kind, device, dtype, autocast=adapter == "float32"))
    x = model.base_model.model.example(device, dtype)
    exact = results(copy.deepcopy(model).double(), x.double() if x.is_floating_point() else x)
    with torch.autocast(device, dtype=dtype, enabled=autocast):
        theirs = errors(results(model, x), exact)
        with dorajit.patch_peft(strict=True):
            ours = errors(results(model, x), exact)
    # The delta and its sum with the base result are each rounded, by at most half an ulp.
    rounding = torch.finfo(dtype).eps
    for name, error in ours.items():
        assert error <= max(FARTHER * theirs[name], rounding), (name, error, theirs[name])
