"""Draws charts of the measurements of kernels.py. Needs matplotlib.

    python3 plot_kernels.py kernels.json [more.json ...] --out results/h200

Writes <operation>.png, bandwidth by shape and types, and roofline.png, bandwidth by bytes moved
with the highest bandwidth of torch.add as the limit. All files must be from one machine; each may have some of the
operations.
"""

import argparse
import json
import os

import matplotlib

import kernel_report

matplotlib.use("Agg")
import matplotlib.pyplot as plt  # noqa: E402

CONTENDERS = {
    "torch_eager": ("PyTorch eager", "#b0b7c3"),
    "torch_compile": ("torch.compile", "#8d6cab"),
    "triton": ("Triton, as in the paper", "#d79b3f"),
    "triton_two_stage": ("Triton, two-stage", "#b85450"),
    "torch_add": ("torch.add, its own bytes", "#6c8ebf"),
    "dorajit": ("dorajit", "#2e7d32"),
}
TYPES = {"bf16": "bf16", "f16": "f16", "f32": "f32", "bf16_f32gain": "bf16, gain f32"}


def read(paths):
    """One report with the results of all."""
    reports = []
    for path in paths:
        with open(path) as file:
            reports.append(json.load(file))
    merged = dict(reports[0], results=[one for report in reports for one in report["results"]])
    merged["copy_bytes_per_s"] = max(report["copy_bytes_per_s"] for report in reports)
    return merged


def measured(results):
    return [name for name in CONTENDERS if any(name in one["median_us"] for one in results)]


def draw_bars(report, operation, results, path):
    names = measured(results)
    figure, axes = plt.subplots(figsize=(max(6, 1.5 + 1.1 * len(results)), 4.2),
                                layout="constrained")
    width = 0.86 / len(names)
    for index, name in enumerate(names):
        label, color = CONTENDERS[name]
        points = [(i, kernel_report.bandwidth(one, name)) for i, one in enumerate(results)
                  if name in one["median_us"]]
        bars = axes.bar([i + (index - (len(names) - 1) / 2) * width for i, _ in points],
                        [height for _, height in points], width, label=label, color=color)
        axes.bar_label(bars, fmt="%.2f", fontsize=6, padding=2, rotation=90)
    draw_ceiling(axes, report)
    axes.set_xticks(range(len(results)),
                    [f"{one['rows']}x{one['cols']}\n{TYPES[one['types']]}" for one in results],
                    fontsize=7)
    axes.margins(x=0.01)
    axes.set_ylabel("TB/s of the bytes that must move")
    axes.set_ylim(0, ceiling(report) * 1.35)
    axes.set_title(f"{operation} on an {report['device']}, cold L2, medians of one run",
                   fontsize=10)
    axes.legend(fontsize=7, loc="upper left", ncols=4)
    save(figure, path)


def draw_roofline(report, groups, types, path):
    figure, row = plt.subplots(1, len(groups), figsize=(1 + 4.6 * len(groups), 4.4), sharey=True,
                               squeeze=False, layout="constrained")
    for axes, (operation, results) in zip(row[0], groups.items()):
        for name in measured(results):
            label, color = CONTENDERS[name]
            points = sorted((kernel_report.moved_bytes(one, name) / 1e6,
                             kernel_report.bandwidth(one, name))
                            for one in results if name in one["median_us"])
            axes.plot(*zip(*points), marker="o", markersize=3, linewidth=1.2, color=color,
                      label=label, linestyle="--" if name == "torch_add" else "-")
        draw_ceiling(axes, report)
        axes.set_xscale("log")
        axes.set_xlabel("MB that must move")
        axes.set_title(f"{operation}, {TYPES[types]}", fontsize=10)
        axes.grid(alpha=0.25)
    row[0][0].set_ylabel("TB/s of the bytes that must move")
    entries = {label: handle for axes in row[0]
               for handle, label in zip(*axes.get_legend_handles_labels())}
    figure.legend(entries.values(), entries, fontsize=8, loc="outside lower center",
                  ncols=len(entries))
    save(figure, path)


def ceiling(report):
    """The highest measured bandwidth: a uint8 copy is slower than kernels with wider accesses."""
    return max(kernel_report.bandwidth(one, "torch_add") for one in report["results"]
               if "torch_add" in one["median_us"])


def draw_ceiling(axes, report):
    axes.axhline(ceiling(report), color="#555555", linewidth=0.8, linestyle=":",
                 label="torch.add at its best")


def save(figure, path):
    for axes in figure.axes:
        axes.spines[["top", "right"]].set_visible(False)
    figure.savefig(path, dpi=140)
    plt.close(figure)


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("reports", nargs="+")
    parser.add_argument("--out", default=".", help="folder of the charts")
    parser.add_argument("--shapes", default="2048x4096,8192x8192",
                        help="contenders of the bar charts")
    parser.add_argument("--types", default="bf16", choices=TYPES, help="element types of the roofline")
    arguments = parser.parse_args()
    report = read(arguments.reports)
    shown = arguments.shapes.split(",")
    groups = {operation: group
              for operation, group in kernel_report.by_operation(report["results"]).items()
              if operation != "norm_assembly"}
    for operation, group in groups.items():
        chosen = [one for one in group if f"{one['rows']}x{one['cols']}" in shown]
        if chosen:
            draw_bars(report, operation, chosen, os.path.join(arguments.out, f"{operation}.png"))
    lines = {operation: [one for one in group if one["types"] == arguments.types]
             for operation, group in groups.items()}
    lines = {operation: group for operation, group in lines.items() if group}
    if lines:
        draw_roofline(report, lines, arguments.types, os.path.join(arguments.out, "roofline.png"))


if __name__ == "__main__":
    main()
