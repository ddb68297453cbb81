"""Draws a chart of the measurements of row_norms.py: times against lower bounds. Needs matplotlib.

    python3 plot_norms.py results/h200/row_norms.json --out results/h200/row_norms.png

There is a panel for each rank: by shape, the time over the lower bound, which is the larger of the times for the bytes
and for the tensor cores.
"""

import argparse
import json

import matplotlib

matplotlib.use("Agg")
import matplotlib.pyplot as plt  # noqa: E402

CONTENDERS = {
    "dense": ("dense, PyTorch", "#b0b7c3"),
    "factored": ("factored, cuBLAS", "#8d6cab"),
    "triton": ("Triton tile kernel", "#d79b3f"),
    "dorajit": ("dorajit", "#2e7d32"),
}


def draw(axes, rank, rows):
    names = [name for name in CONTENDERS if any(name in row["us"] for row in rows)]
    width = 0.86 / len(names)
    for index, name in enumerate(names):
        label, color = CONTENDERS[name]
        places = [i + (index - (len(names) - 1) / 2) * width for i in range(len(rows))]
        floors = [max(row["floors_us"].values()) for row in rows]
        axes.bar(places, [row["us"][name] / floor for row, floor in zip(rows, floors)], width, label=label,
                 color=color)
    axes.axhline(1, color="black", linewidth=0.8)
    axes.set_yscale("log")
    axes.set_xticks(range(len(rows)), [f"{row['out']}x\n{row['in']}" for row in rows], fontsize=7)
    axes.set_title(f"rank {rank}", fontsize=9)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("report")
    parser.add_argument("--out", required=True)
    options = parser.parse_args()
    with open(options.report, encoding="utf-8") as file:
        report = json.load(file)
    ranks = sorted({row["rank"] for row in report["rows"]})
    figure, panels = plt.subplots(2, -(-len(ranks) // 2), figsize=(13, 6.4), sharey=True, layout="constrained")
    for axes, rank in zip(panels.flat, ranks):
        draw(axes, rank, [row for row in report["rows"] if row["rank"] == rank])
    panels.flat[0].legend(fontsize=8)
    figure.supylabel("time over the floor of bytes and tensor cores")
    figure.suptitle(f"Row norms of W + s B A, {report['factors']}, {report['device']}, cold L2", fontsize=11)
    figure.savefig(options.out, dpi=110)


if __name__ == "__main__":
    main()
