"""Draws a chart of reports of layers.py, each of a recipe: steps and memory of DoRA over those of LoRA. Needs matplotlib.

    python3 plot_layers.py results/h200/layers_{no_dropout,dropout,nf4}.json --out results/h200/layers.png

There is a bar for each recipe, setting of the adapters and contender, at one rank: wall time, time of the GPU and peak of
memory of a training step, each over that of PEFT's LoRA in the same run.
"""

import argparse

import matplotlib

import report

matplotlib.use("Agg")
import matplotlib.pyplot as plt  # noqa: E402

QUANTITIES = {"wall_ms": "time of a step", "gpu_ms": "time of the GPU", "peak_megabytes": "peak of memory"}
CONTENDERS = {"DoRA, PEFT": ("PEFT", "#d79b3f"), "DoRA, open kernels": ("other open kernels", "#7a8fb8"),
              "DoRA, dorajit": ("dorajit", "#2e7d32"),
              "DoRA, dorajit, low_rank dropout": ("dorajit, low_rank dropout", "#9ccc9c")}
SUFFIXES = {"": "bf16 adapters", ", fp32 adapters, autocast": "f32 adapters, autocast"}


def groups(reports, rank):
    """(label, contender -> its row, LoRA's row) of each recipe and setting, checkpointed and not."""
    for found in reports:
        options = found["options"]
        recipe = "NF4 base" if options.get("quantized") else f"dropout {options['dropout']}" if options.get(
            "dropout") else "bf16 base"
        for is_checkpointed in (True, False):
            for suffix, setting in SUFFIXES.items():
                rows = {row["name"].removesuffix(suffix) if suffix else row["name"]: row for row in found["rows"]
                        if row["rank"] == rank and row["checkpointed"] == is_checkpointed
                        and row["name"].endswith(", autocast") == bool(suffix)}
                label = f"{recipe}, {setting}\n{'with' if is_checkpointed else 'without'} checkpoints"
                yield label, {name: rows[name] for name in CONTENDERS if name in rows}, rows["LoRA, PEFT"]


def draw(axes, made, quantity):
    place, ticks = 0.0, []
    for label, contenders, base in made:
        middle = place + (len(contenders) - 1) / 2
        ticks.append((middle, label))
        for name, row in contenders.items():
            title, color = CONTENDERS[name]
            bar = axes.barh(place, row[quantity] / base[quantity], 0.9, color=color, label=title, zorder=2)
            axes.bar_label(bar, fmt="%.2f", fontsize=7, padding=2, zorder=4,
                           bbox={"facecolor": "white", "edgecolor": "none", "pad": 0.5})
            place += 1
        place += 0.8
    axes.axvline(1, color="black", linewidth=0.8, zorder=3)
    axes.set_yticks(*zip(*ticks), fontsize=7)
    axes.invert_yaxis()
    axes.margins(x=0.12, y=0.01)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("reports", nargs="+")
    parser.add_argument("--out", required=True)
    parser.add_argument("--rank", type=int, default=16)
    options = parser.parse_args()
    reports = [report.read(one) for one in options.reports]
    made = list(groups(reports, options.rank))
    figure, panels = plt.subplots(1, len(QUANTITIES), figsize=(13, 9), sharey=True, layout="constrained")
    for axes, (quantity, title) in zip(panels, QUANTITIES.items()):
        draw(axes, made, quantity)
        axes.set_xlabel(f"{title}, LoRA by PEFT = 1; lower is better", fontsize=9)
    found = {label: handle for handle, label in zip(*panels[0].get_legend_handles_labels())}
    figure.legend(found.values(), found.keys(), loc="outside lower center", ncols=len(found), fontsize=9)
    shape, devices = reports[0]["options"], sorted({one["device"] for one in reports})
    figure.suptitle(f"DoRA over LoRA: a training step of {shape['layers']} Llama-shaped layers, width {shape['width']}, "
                    f"{shape['tokens']} tokens, rank {options.rank}, {', '.join(devices)}", fontsize=11)
    figure.savefig(options.out, dpi=100)


if __name__ == "__main__":
    main()
