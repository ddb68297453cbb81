"""dorajit.prewarm: the passes of a model that are recorded, and the compilation of what they launch."""

import contextlib
import subprocess
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Optional, Union

import torch

from dorajit import errors
from dorajit.operations import recording
from dorajit.operations.recording import Target
from dorajit.tools import program

_CPU = "native-cpu"


def prewarm(model: torch.nn.Module, *example_inputs: Union[Sequence[Any], Mapping[str, Any]],
            arch: Union[str, Sequence[str]] = (), training: bool = True, inference: bool = True,
            autocast: Optional[torch.dtype] = None, list_only: bool = False) -> dict[str, list[str]]:
    """Compiles what a model will run, and tunes it if the device is here, so that its first step and its first generation
    compile and tune nothing.

    The problems are recorded: the model runs forward, backward and a step of decoding on fake tensors, without memory
    and without reading a weight, and each launch notes its problem instead. Weights may be anywhere, also on the device
    "meta".

    Args:
        model: any module with layers of dorajit.nn, DoRA layers of PEFT (which are patched for the recording), or calls
            of this package's functions. It is unchanged afterwards.
        example_inputs: the inputs of a call, as a sequence or a mapping of names; several for calls of several sizes. Of
            floating point tensors the elements are not read; integers are.
        arch: architectures, as "sm_90", or "native-cpu"; none: the device that is here, a GPU if there is one.
        training: record a forward and a backward pass in training mode, of the parameters that require gradients.
        inference: record a forward pass in evaluation mode, and if its output has `past_key_values`, one token more.
        autocast: the element type of autocast; None: without autocast.
        list_only: compile nothing.

    Returns:
        Architecture -> problems, one a line as `dorajit prewarm --from` reads them, without those of own kernels.

    Raises:
        TypeError: the model is not a torch.nn.Module.
        dorajit.Error: a kernel could not be compiled, or was not kept; also what the model raises for fake tensors.
    """
    if not isinstance(model, torch.nn.Module):
        raise TypeError(f"prewarm: argument `model` is a {type(model).__name__}; pass a torch.nn.Module")
    found = {}
    for one in [arch] if isinstance(arch, str) else arch or [present_arch()]:
        with recording.record(target_of(one)) as problems:
            run(model, example_inputs, training, inference, autocast)
        found[one] = dict(problems)
    if not list_only:
        for one, problems in found.items():
            compile_ahead(problems, one)
    return {one: sorted(text for text, kernel in problems.items() if kernel is None) for one, problems in found.items()}


def present_arch():
    """The architecture of the device that is here."""
    if not torch.cuda.is_available():
        return _CPU
    major, minor = torch.cuda.get_device_capability()
    return f"sm_{major}{minor}"


def target_of(arch):
    """The Target of an architecture's name. Raises ValueError for other names."""
    if arch == _CPU:
        return Target("cpu")
    digits = arch.removeprefix("sm_").rstrip("af")
    if not arch.startswith("sm_") or not digits.isdecimal():
        raise ValueError(f"prewarm: argument `arch` is {arch!r}; give sm_80, sm_90, ... or {_CPU}")
    return Target("cuda", divmod(int(digits), 10))


def run(model, inputs, training, inference, autocast, note=lambda what: None):
    """Runs the passes on fake tensors, inside a recording. `note` gets the name of each pass before it."""
    from dorajit.prewarm.fakes import Fakes  # PyTorch's fake tensors take long to import
    modes = {module: module.training for module in model.modules()}
    fakes = Fakes()
    try:
        with fakes.inside(model), _patched(model), torch.autocast("cpu", autocast, enabled=autocast is not None):
            for given in inputs:
                given = fakes.inputs(given)
                if training:
                    note("training")
                    model.train()
                    _differentiate(_called(model, given))
                if inference:
                    note("inference")
                    model.eval()
                    with torch.no_grad():
                        _decode(model, given, _called(model, given))
    finally:
        for module, mode in modes.items():
            module.training = mode


def _patched(model):
    """The model with its DoRA layers of PEFT patched, as it runs later; its magnitudes are asked for, too."""
    from dorajit.peft import patch_peft
    has_layers = any(isinstance(getattr(one, "lora_magnitude_vector", None), torch.nn.ModuleDict) for one in model.modules())
    return patch_peft(model) if has_layers else contextlib.nullcontext()


def _called(model, given):
    return model(**given) if isinstance(given, Mapping) else model(*given)


def _differentiate(output):
    """The backward pass of the sum of all outputs."""
    leaves = torch.utils._pytree.tree_leaves(dict(output) if isinstance(output, Mapping) else output)
    sums = [one.sum() for one in leaves if isinstance(one, torch.Tensor) and one.requires_grad]
    if sums:
        with torch.autocast("cpu", enabled=False):
            torch.stack([one.float() for one in sums]).sum().backward()


def _decode(model, given, output):
    """One more token for each sequence, if the output has keys and values of earlier ones."""
    past = getattr(output, "past_key_values", None)
    if past is None or not isinstance(given, Mapping):
        return
    name = "decoder_input_ids" if "decoder_input_ids" in given else "input_ids"
    if name in given:
        more = {one: given[one] for one in ("input_ids", "input_features") if one in given and one != name}
        _called(model, {**more, name: given[name][:, :1], "past_key_values": past, "use_cache": True})


def compile_ahead(problems, arch):
    """Compiles problems, as a recording yields them, by the program, which shows its progress and tunes on a GPU that is
    here.

    Raises:
        dorajit.Error: the program failed; its messages are on standard error.
    """
    kernels = sorted({one for one in problems.values() if one is not None})
    with tempfile.TemporaryDirectory(prefix="dorajit-prewarm-") as folder:
        for place, kernel in enumerate([None, *kernels]):
            lines = [text for text, one in problems.items() if one == kernel]
            if not lines:
                continue
            listed, described = Path(folder, f"problems{place}.txt"), Path(folder, f"kernel{place}.json")
            listed.write_text("".join(f"{line}\n" for line in sorted(lines)))
            command = [program.find(), "prewarm", "--from", listed, "--arch", arch]
            if kernel is not None:
                described.write_text(kernel)
                command += ["--kernel", described]
            if subprocess.run(command, check=False).returncode != 0:
                raise errors.Error(f"prewarm: `dorajit prewarm --arch {arch}` failed; its messages are above")
