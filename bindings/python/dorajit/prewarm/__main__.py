"""python -m dorajit.prewarm: compiles ahead what a model with a DoRA adapter will run (docs/prewarming.md)."""

import argparse
import math
import os
import re
import signal
import sys

from dorajit import control, errors, program
from dorajit.operations import recording
from dorajit.prewarm import models, passes

_TOKENS = [512, 1024, 2048, 4096]
_OF_ADAPTER = {"rank": 16, "alpha": None, "targets": "all-linear", "dropout": 0.0}
_OF_FOLDER = {"adapter": None, "tokens": _TOKENS, "batch": 1, "image": False, "checkpoint": False, **_OF_ADAPTER}


def _count(text):
    if not text.strip().isdecimal() or int(text) < 1:
        raise argparse.ArgumentTypeError(f"{text!r} is no number from 1")
    return int(text)


def _counts(text):
    return [_count(one) for one in text.split(",")]


def _words(text):
    return [one.strip() for one in text.split(",") if one.strip()]


def _archs(text):
    if not _words(text):
        raise argparse.ArgumentTypeError("it names nothing")
    return _words(text)


def _finite(text):
    value = float(text)
    if not math.isfinite(value):
        raise argparse.ArgumentTypeError(f"{text!r} is no finite number")
    return value


def _share(text):
    if not 0 <= float(text) < 1:
        raise argparse.ArgumentTypeError(f"{text!r} is not from 0 to below 1")
    return float(text)


def _parser():
    parser = argparse.ArgumentParser(
        prog="python -m dorajit.prewarm", description="Compile ahead exactly what a model with a DoRA adapter will "
        "run, for any architecture, and tune it on a GPU of this machine. No weights are needed.")
    add = parser.add_argument
    add("--model", required=True, metavar="DIR_OR_FUNCTION", help="a folder with the config.json of a model of "
        "transformers or diffusers; or package.module:function, which returns a model with its adapter, and the inputs of "
        "a call")
    add("--adapter", metavar="DIR", help="a folder with the adapter_config.json of a DoRA adapter")
    add("--rank", type=_count, metavar="R", help="of an adapter without a folder [16]")
    add("--alpha", type=_finite, metavar="A", help="lora_alpha [the rank]")
    add("--targets", metavar="NAME,...", help="target_modules; a single name with a character of a regular expression is "
        "one [all-linear]")
    add("--tokens", type=_counts, metavar="N,...", help="tokens of a sequence, of the decoder's where there is an "
        f"encoder [{','.join(map(str, _TOKENS))}]")
    add("--batch", type=_count, metavar="N", help="sequences, or images, in a step [1]")
    add("--image", action="store_true", default=None, help="the first sequence begins with an image")
    add("--recipe", choices=models.RECIPES, default="float32-adapters", help="bf16: adapters in bf16; float32-adapters: "
        "in float32, as PEFT makes them; autocast: these with autocast to bf16, generation included; nf4: these over a "
        "base of 4 bits; of a function's model only whether there is autocast [float32-adapters]")
    add("--dropout", type=_share, metavar="P", help="lora_dropout [0]")
    add("--checkpoint", action="store_true", default=None, help="with gradient checkpointing")
    add("--inference", action="store_true", help="no training")
    add("--no-mlp", action="store_true", help="as patch_peft(mlp=False): gated MLPs are not one node")
    add("--arch", type=_archs, metavar="ARCH,...", help="sm_80, sm_90, ... or native-cpu [that of the device that is here]")
    add("--list", action="store_true", help="print the problems, as `dorajit prewarm --from` reads them, and end")
    return parser


def _parsed(parser, arguments):
    """The arguments with their defaults. Ends the process if one has no effect."""
    given = parser.parse_args(arguments)
    given.function = given.model if ":" in given.model and not os.path.exists(given.model) else None
    for made_by, idle in ((given.function, _OF_FOLDER), (given.adapter, _OF_ADAPTER)):
        named = [f"--{one}" for one in idle if getattr(given, one) is not None] if made_by else []
        if named:
            parser.error(f"{', '.join(named)} would have no effect: {made_by} says it")
    for name, value in _OF_FOLDER.items():
        if getattr(given, name) is None:
            setattr(given, name, value)
    return given


def _model(given, made):
    """(model, inputs of each call, the element type of autocast). `made`: what the user's function returned."""
    dtype, float32, autocast, has_4_bits = models.RECIPES[given.recipe]
    if given.function:
        model, inputs = models.made_by(given.function, made)
        return model, [inputs], autocast
    if given.adapter and not os.path.isfile(os.path.join(given.adapter, "adapter_config.json")):
        raise FileNotFoundError(f"--adapter {given.adapter}: there is no adapter_config.json in this folder")
    model = models.build(given.model, dtype, has_4_bits)
    if has_4_bits:
        models.quantize(model)
    targets = given.targets
    if targets != "all-linear":
        try:
            targets = re.compile(targets).pattern if set(targets) & set("*|()[]\\^$+?") else _words(targets)
        except re.error as error:
            raise ValueError(f"--targets {targets}: {error}") from None
    adapted = models.adapt(model, float32, given.adapter) if given.adapter else models.adapt(
        model, float32, r=given.rank, lora_alpha=given.rank if given.alpha is None else given.alpha,
        lora_dropout=given.dropout, target_modules=targets)
    if given.checkpoint:
        model.gradient_checkpointing_enable({"use_reentrant": False})
    inputs = [models.inputs_of(model, tokens, given.batch, given.image, dtype) for tokens in given.tokens]
    return adapted, inputs, autocast


def _layers_of_towers(model):
    """The names of DoRA layers in a part of the model for images."""
    if getattr(getattr(model, "config", None), "vision_config", None) is None:
        return []
    return [name for name, one in model.named_modules()
            if "vis" in name and getattr(one, "lora_magnitude_vector", None)]


def _recorded(given, targets, model, inputs, autocast):
    """Architecture -> problems, as recording.record yields them."""
    is_shown = sys.stderr.isatty()
    found = {}
    with control.state.switches["joins_mlp"].override(control.state.joins_mlp and not given.no_mlp):
        for arch, target in targets.items():
            steps = 0

            def note(what, arch=arch):
                nonlocal steps
                steps += 1
                if is_shown:
                    print(f"\r\033[Krecording for {arch}: {what}, pass {steps}", end="", file=sys.stderr, flush=True)

            with recording.record(target) as found[arch]:
                passes.run(model, inputs, not given.inference, True, autocast, note)
            if is_shown:
                print("\r\033[K", end="", file=sys.stderr)
    return found


def _print(found):
    """Prints the problems that `dorajit prewarm --from` reads, once for all architectures."""
    problems = {text: kernel for of_arch in found.values() for text, kernel in of_arch.items()}
    for text in sorted(text for text, kernel in problems.items() if kernel is None):
        print(text)
    left_out = sum(kernel is not None for kernel in problems.values())
    if left_out:
        print(f"note: {left_out} of kernels that are not operations are left out; without --list they are compiled, too",
              file=sys.stderr)


def main(arguments=None):
    parser = _parser()
    given = _parsed(parser, arguments)
    try:
        targets = passes.targets(given.arch)
        if not given.list:
            program.find()
        make = models.find_function(given.function) if given.function else lambda: None
    except (ImportError, ValueError) as error:
        parser.exit(2, f"error: {error}\n")
    made = make()  # whose own errors are shown whole
    try:
        model, inputs, autocast = _model(given, made)
        passes.check(model)
    except (ImportError, OSError, ValueError) as error:
        parser.exit(2, f"error: {error}\n")
    try:
        found = _recorded(given, targets, model, inputs, autocast)
    except Exception as error:  # of any type: the model's own
        if given.function or isinstance(error, (errors.Error, ValueError)):
            raise
        parser.exit(2, f"error: the model of {given.model} does not take the inputs that it was given ({error}); "
                    f"{models.OWN_FUNCTION}\n")
    if unseen := [] if given.image else _layers_of_towers(model):
        print(f"note: {len(unseen)} DoRA layers for images were not recorded, such as {unseen[0]}; give --image",
              file=sys.stderr)
    if not any(found.values()):
        print("note: nothing was recorded: the model has no DoRA layers, and calls nothing of dorajit", file=sys.stderr)
    if given.list:
        _print(found)
        return
    for arch, problems in found.items():
        passes.compile_ahead(problems, arch)


if __name__ == "__main__":
    try:
        main()
    except errors.Error as error:
        sys.exit(f"error: {error}")
    except KeyboardInterrupt:
        sys.exit(128 + signal.SIGINT)
