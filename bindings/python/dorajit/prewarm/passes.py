"""dorajit.prewarm: the passes of a model that are recorded, and the compilation of what they launch."""

import contextlib
import re
import subprocess
import tempfile
import warnings
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Optional, Union

import torch

from dorajit import errors, program
from dorajit.distributed import gather
from dorajit.operations import recording
from dorajit.operations.recording import Target

_CPU = "native-cpu"
_OLDEST = 50  # of the GPUs that NVRTC has ever compiled for


def prewarm(model: torch.nn.Module, *example_inputs: Union[Sequence[Any], Mapping[str, Any]],
            arch: Union[str, Sequence[str]] = (), training: bool = True, inference: bool = True,
            autocast: Optional[torch.dtype] = None, list_only: bool = False) -> dict[str, list[str]]:
    """Compiles what a model will run, and tunes it if the device is here, so that its first step and its first generation
    compile and tune nothing.

    The problems are recorded: the model runs forward, backward and a step of decoding on fake tensors, without memory and
    without reading a weight, and each launch notes its problem instead. Weights may be anywhere, also on the device "meta".

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
        TypeError: the model is not a torch.nn.Module, or an input neither a sequence nor a mapping.
        ValueError: there are no inputs or no passes, an architecture is not known, or the model's weights cannot be
            recorded: sharded ones, those of accelerate's offloading, 8-bit ones of bitsandbytes.
        dorajit.Error: a kernel could not be compiled, or was not kept; also what the model raises for fake tensors.
    """
    if not isinstance(model, torch.nn.Module):
        raise TypeError(f"prewarm: argument `model` is a {type(model).__name__}; pass a torch.nn.Module")
    for given in example_inputs:
        if not isinstance(given, (list, tuple, Mapping)):
            raise TypeError(f"prewarm: argument `example_inputs` has a {type(given).__name__}; pass the inputs of each call "
                            "as a sequence or a mapping of names")
    if not example_inputs or not (training or inference):
        raise ValueError("prewarm: nothing is asked for; pass the inputs of a call, and leave training or inference on")
    if autocast not in (None, torch.bfloat16, torch.float16):
        raise ValueError(f"prewarm: argument `autocast` is {autocast!r}; give torch.bfloat16, torch.float16 or None")
    found = {}
    for one, target in targets(arch if isinstance(arch, (list, tuple)) else [arch]).items():
        with recording.record(target) as problems:
            run(model, example_inputs, training, inference, autocast)
        found[one] = dict(problems)
    if not any(found.values()):
        warnings.warn("dorajit.prewarm: nothing was recorded: the model has no DoRA layers, and calls nothing of dorajit",
                      RuntimeWarning, stacklevel=2)
    if not list_only:
        for one, problems in found.items():
            compile_ahead(problems, one)
    return {one: sorted(text for text, kernel in problems.items() if kernel is None) for one, problems in found.items()}


def targets(archs):
    """Architecture -> its Target; of the device that is here if there are none. Raises ValueError for other names."""
    found = {}
    for arch in archs or ["sm_{}{}".format(*torch.cuda.get_device_capability()) if torch.cuda.is_available() else _CPU]:
        known = re.fullmatch(r"sm_(\d{2,3})[af]?", arch) if isinstance(arch, str) else None
        if arch != _CPU and (known is None or int(known[1]) < _OLDEST):
            raise ValueError(f"prewarm: argument `arch` is {arch!r}; give sm_80, sm_90, ... or {_CPU}")
        found[arch] = Target("cpu") if arch == _CPU else Target("cuda", divmod(int(known[1]), 10))
    return found


def check(model):
    """Raises ValueError if fake tensors cannot stand for the model's weights."""
    def refuse(what):
        raise ValueError(f"prewarm: the model has {what}, which cannot be recorded; prewarm it before it gets them, or set "
                         "DORAJIT_RECORD in a real run")

    for module in model.modules():
        if getattr(getattr(module, "_hf_hook", None), "offload", False):
            refuse("weights that accelerate offloads")
        if type(module).__name__ == "FullyShardedDataParallel" or any(map(gather.is_dtensor, module._parameters.values())):
            refuse("sharded weights")
        if any(type(one).__name__ == "Int8Params" for one in module._parameters.values()):
            refuse("8-bit weights of bitsandbytes")
        if isinstance(module, torch.jit.ScriptModule):
            refuse("a part in TorchScript")
        if not hasattr(torch.compiler, "set_stance") and (
                hasattr(module, "_orig_mod") or getattr(module, "_compiled_call_impl", None) is not None):
            refuse("compiled parts (from PyTorch 2.6 on they can be)")


def run(model, inputs, training, inference, autocast, note=lambda what: None):
    """Runs the passes on fake tensors, inside a recording. `note` gets the name of each pass before it."""
    from torch._subclasses.fake_tensor import DataDependentOutputException, DynamicOutputShapeException
    from dorajit.prewarm.fakes import Fakes  # PyTorch's fake tensors take long to import
    model = getattr(model, "_orig_mod", model)  # of torch.compile
    check(model)
    # Compiled parts run as they were written: generated code would read the memory of fake tensors. `check` refuses such
    # parts before PyTorch 2.6, which has this function.
    set_stance = getattr(torch.compiler, "set_stance", lambda _: contextlib.nullcontext())
    try:
        with (torch.inference_mode(False), torch.enable_grad(), torch.random.fork_rng(devices=[]), set_stance("force_eager"),
              Fakes().inside(model) as fakes, _patched(model),
              torch.autocast("cpu", autocast, enabled=autocast is not None)):
            for given in map(fakes.inputs, inputs):
                if training:
                    note("training")
                    model.train()
                    _differentiate(_called(model, given))
                if inference:
                    note("inference")
                    model.eval()
                    with torch.no_grad():
                        _decode(model, given, _called(model, given))
    except (DataDependentOutputException, DynamicOutputShapeException) as error:
        raise errors.Error(f"prewarm: the model asks for the values of floating point numbers ({error}), which a recording "
                           "does not have; set DORAJIT_RECORD in a real run") from error


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
