"""python -m dorajit.prewarm: compiles ahead what a model with a DoRA adapter will run (docs/prewarming.md)."""

import argparse
import os
import sys

from dorajit import control
from dorajit.operations import recording
from dorajit.prewarm import models, passes

_TOKENS = "512,1024,2048,4096"


def _numbers(text):
    return [int(one) for one in text.split(",")]


def _parser():
    parser = argparse.ArgumentParser(
        prog="python -m dorajit.prewarm", description="Compile ahead exactly what a model with a DoRA adapter will "
        "run, for any architecture, and tune it on a GPU of this machine. No weights are needed.")
    add = parser.add_argument
    add("--model", required=True, metavar="DIR_OR_FUNCTION", help="a folder with the config.json of a model of "
        "transformers or diffusers; or package.module:function, which returns a model with its adapter, and the inputs of "
        "a call")
    add("--adapter", metavar="DIR", help="a folder with the adapter_config.json of a DoRA adapter")
    add("--rank", type=int, default=16, metavar="R", help="of an adapter without a folder [16]")
    add("--alpha", type=float, metavar="A", help="lora_alpha [the rank]")
    add("--targets", default="all-linear", metavar="NAME,...", help="target_modules; a single name with a character of a "
        "regular expression is one [all-linear]")
    add("--tokens", type=_numbers, default=_numbers(_TOKENS), metavar="N,...", help=f"tokens of a sequence [{_TOKENS}]")
    add("--batch", type=int, default=1, metavar="N", help="sequences, or images, in a step [1]")
    add("--image", action="store_true", help="the first sequence begins with an image, if the model takes some")
    add("--recipe", choices=models.RECIPES, default="float32-adapters", help="bf16: adapters in bf16; float32-adapters: "
        "in float32, as PEFT makes them; autocast: these with autocast to bf16; nf4: these over a base of 4 bits "
        "[float32-adapters]")
    add("--dropout", type=float, default=0.0, metavar="P", help="lora_dropout [0]")
    add("--checkpoint", action="store_true", help="with gradient checkpointing")
    add("--inference", action="store_true", help="no training")
    add("--no-mlp", action="store_true", help="as patch_peft(mlp=False): gated MLPs are not one node")
    add("--arch", type=lambda text: text.split(","), default=[], metavar="ARCH,...", help="sm_80, sm_90, ... or "
        "native-cpu [that of the device that is here]")
    add("--list", action="store_true", help="print the problems, as `dorajit prewarm --from` reads them, and end")
    return parser


def _model(arguments):
    """(model, inputs of each call, the element type of autocast)"""
    dtype, float32, autocast, has_4_bits = models.RECIPES[arguments.recipe]
    if ":" in arguments.model and not os.path.exists(arguments.model):
        model, inputs = models.from_function(arguments.model)
        return model, [inputs], autocast
    model = models.build(arguments.model, dtype)
    if has_4_bits:
        models.quantize(model)
    targets = arguments.targets
    if targets != "all-linear" and not set(targets) & set("*|()[]\\^$+?"):
        targets = targets.split(",")
    adapted = models.adapt(model, float32, arguments.adapter) if arguments.adapter else models.adapt(
        model, float32, r=arguments.rank, lora_alpha=arguments.alpha or arguments.rank, lora_dropout=arguments.dropout,
        target_modules=targets)
    if arguments.checkpoint:
        model.gradient_checkpointing_enable({"use_reentrant": False})
    inputs = [models.inputs_of(model, tokens, arguments.batch, arguments.image, dtype) for tokens in arguments.tokens]
    return adapted, inputs, autocast


def main(arguments=None):
    arguments = _parser().parse_args(arguments)
    is_shown = sys.stderr.isatty()
    model, inputs, autocast = _model(arguments)
    found = {}
    with control.state.switches["joins_mlp"].override(control.state.joins_mlp and not arguments.no_mlp):
        for arch in arguments.arch or [passes.present_arch()]:
            steps = 0

            def note(what, arch=arch):
                nonlocal steps
                steps += 1
                if is_shown:
                    print(f"\r\033[Krecording for {arch}: {what}, pass {steps}", end="", file=sys.stderr, flush=True)

            with recording.record(passes.target_of(arch)) as found[arch]:
                passes.run(model, inputs, not arguments.inference, True, autocast, note)
            if is_shown:
                print("\r\033[K", end="", file=sys.stderr)
    if arguments.list:
        print("\n".join(sorted({text for problems in found.values() for text in problems})))
        return
    for arch, problems in found.items():
        passes.compile_ahead(problems, arch)


if __name__ == "__main__":
    main()
