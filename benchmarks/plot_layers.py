"""Draws a chart of the measurements of layers.py: DoRA over LoRA. Needs matplotlib.

    python3 plot_layers.py results/h100/layers.json --out results/h100/layers.png

There is a column for each setting of the adapters in the report, checkpointed and not. It shows by rank the time of a
training step, the time of a forward pass without gradients, the host's time and the peak of memory, each over that of
PEFT's LoRA in the same run.
"""

import argparse

import matplotlib

import report

matplotlib.use("Agg")
import matplotlib.pyplot as plt  # noqa: E402

QUANTITIES = {"wall_ms": "training step", "forward_ms": "forward alone", "cpu_ms": "host time",
              "peak_megabytes": "peak memory"}
CONTENDERS = {"DoRA, PEFT": ("DoRA by PEFT", "#d79b3f"), "DoRA, open kernels": ("DoRA by Axolotl", "#7a8fb8"),
              "DoRA, dorajit": ("DoRA by dorajit", "#2e7d32"),
              "DoRA, dorajit, low_rank dropout": ("with low_rank dropout", "#9ccc9c"),
              "DoRA, dorajit, layer by layer": ("layer by layer", "#9ccc9c")}
SUFFIXES = {"": "bf16 adapters", ", fp32 adapters, autocast": "f32 adapters, autocast",
            ", fp32 adapters": "f32 adapters", ", fp32": "f32"}


def draw(axes, rows, quantity, is_checkpointed, suffix):
    found = {(row["rank"], row["name"]): row[quantity] for row in rows if row["checkpointed"] == is_checkpointed}
    ranks = sorted({rank for rank, _ in found})
    contenders = [one for one in CONTENDERS if (ranks[0], one + suffix) in found]
    width = 0.8 / len(contenders)
    for index, name in enumerate(contenders):
        label, color = CONTENDERS[name]
        heights = [found[rank, name + suffix] / found[rank, "LoRA, PEFT" + suffix] for rank in ranks]
        places = [i + (index - (len(contenders) - 1) / 2) * width for i in range(len(ranks))]
        bars = axes.bar(places, heights, width, label=label, color=color)
        axes.bar_label(bars, fmt="%.2f", fontsize=6, padding=1)
    axes.axhline(1, color="black", linewidth=0.8)
    axes.set_xticks(range(len(ranks)), [f"rank {rank}" for rank in ranks], fontsize=8)
    axes.margins(y=0.15)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("report")
    parser.add_argument("--out", required=True)
    parser.add_argument("--device", default="")
    options = parser.parse_args()
    found = report.read(options.report)
    names = {row["name"] for row in found["rows"]}
    columns = [(is_checkpointed, suffix) for is_checkpointed in (True, False) for suffix in SUFFIXES
               if "LoRA, PEFT" + suffix in names]
    quantities = {name: title for name, title in QUANTITIES.items() if name in found["rows"][0]}
    figure, panels = plt.subplots(len(quantities), len(columns), figsize=(13, 9), sharey="row", layout="constrained")
    for line, (quantity, title) in zip(panels, quantities.items()):
        line[0].set_ylabel(title, fontsize=9)
        for axes, (is_checkpointed, suffix) in zip(line, columns):
            draw(axes, found["rows"], quantity, is_checkpointed, suffix)
    for axes, (is_checkpointed, suffix) in zip(panels[0], columns):
        axes.set_title(f"{SUFFIXES[suffix]}{', checkpointed' if is_checkpointed else ''}", fontsize=9)
    panels[0][0].legend(fontsize=8)
    shape = found["options"]
    device = found.get("device", options.device)
    kind = "linear" if shape.get("plain") else "Llama-shaped"
    recipe = f"{', NF4' if shape.get('quantized') else ''}{', dropout' if shape.get('dropout') else ''}"
    figure.suptitle(f"{shape['layers']} {kind} layers, width {shape['width']}, {shape['tokens']} tokens{recipe}, over "
                    f"PEFT's LoRA (1){', ' + device if device else ''}", fontsize=11)
    figure.savefig(options.out, dpi=100)


if __name__ == "__main__":
    main()
