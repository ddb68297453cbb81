"""Draws the chart of the README from what compose_beside_torch.py wrote. Needs matplotlib.

    python3 plot_compose.py results/h200/compose.json results/h200/compose.png
"""

import json
import sys

import matplotlib

matplotlib.use("Agg")
import matplotlib.pyplot as plt  # noqa: E402

SERIES = (("torch_eager", "PyTorch eager (unfused)", "#b0b7c3"),
          ("torch_add", "torch.add (the same bytes)", "#6c8ebf"),
          ("compose", "dorajit compose", "#2e7d32"))
SHORT = {"torch.bfloat16": "bf16", "torch.float16": "f16", "torch.float32": "f32"}


def main():
    with open(sys.argv[1]) as file:
        report = json.load(file)
    rows = [r for r in report["results"] if r["rows"] * r["cols"] >= 2**23]
    labels = [f"{r['rows']}x{r['cols']}\n{SHORT[r['dtype']]}"
              + (f", gain {SHORT[r['gain_dtype']]}" if r["gain_dtype"] != r["dtype"] else "")
              for r in rows]
    figure, axes = plt.subplots(figsize=(11, 4.2))
    width = 0.27
    for index, (key, name, color) in enumerate(SERIES):
        bandwidth = [(3 * r["rows"] * r["cols"] * (4 if "32" in r["dtype"] else 2))
                     / r["median_us"][key] / 1e6 for r in rows]
        bars = axes.bar([i + (index - 1) * width for i in range(len(rows))], bandwidth, width,
                        label=name, color=color)
        axes.bar_label(bars, fmt="%.2f", fontsize=6, padding=1)
    axes.set_xticks(range(len(rows)), labels, fontsize=7)
    axes.set_ylabel("TB/s of the bytes that must move")
    axes.set_title(f"compose on an {report['device']}, cold L2, medians of one run", fontsize=10)
    axes.set_ylim(0, 5.2)
    axes.legend(fontsize=8, loc="upper left", ncols=3)
    axes.spines[["top", "right"]].set_visible(False)
    figure.tight_layout()
    figure.savefig(sys.argv[2], dpi=140)


if __name__ == "__main__":
    main()
