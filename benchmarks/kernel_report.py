"""Tables of the measurements of kernels.py, as text or Markdown."""

import math

_REFERENCE = "dorajit"


def by_operation(results):
    """Groups in the order of their first result."""
    groups = {}
    for one in results:
        groups.setdefault(one["operation"], []).append(one)
    return groups


def moved_bytes(one, contender):
    """The bytes that the contender must move. torch.add reads two matrices and writes one for every
    operation."""
    return one["added_bytes"] if contender == "torch_add" else one["moved_bytes"]


def bandwidth(one, contender):
    """Bandwidth in TB/s of the bytes that must be moved."""
    return moved_bytes(one, contender) / one["median_us"][contender] / 1e6


def geometric_means(results):
    """Operation -> types -> contender -> (mean ratio to dorajit, number of cases)."""
    means = {}
    for operation, group in by_operation(results).items():
        ratios = {}
        for one in group:
            if _REFERENCE in one["median_us"]:
                for contender in _others(one):
                    ratios.setdefault(one["types"], {}).setdefault(contender, []).append(
                        _ratio(one, contender))
        means[operation] = {
            types: {contender: (math.exp(sum(map(math.log, values)) / len(values)), len(values))
                    for contender, values in contenders.items()}
            for types, contenders in ratios.items()}
    return means


def slower_cases(results):
    """The cases where dorajit takes longer than a fused peer by more than the interquartile range of both."""
    return [(one, contender) for one in results if _REFERENCE in one["median_us"]
            for contender in _others(one)
            if contender.startswith("triton") or contender == "torch_compile"
            if one["median_us"][_REFERENCE] - one["median_us"][contender]
            > max(_spread(one, _REFERENCE), _spread(one, contender))]


def render(report, markdown=False):
    results = report["results"]
    parts = [f"{report['device']}, PyTorch {report['torch']}, Triton {report['triton']}; copy "
             f"{report['copy_bytes_per_s'] / 1e12:.2f} TB/s. Device time a launch in microseconds, "
             "cold L2, medians; in brackets the time over dorajit's (torch.add: the time a byte)."]
    if report.get("after_foreign"):
        parts.append("Each launch comes right after a short kernel of PyTorch; a time is that of "
                     "both together.")
    for operation, group in by_operation(results).items():
        parts.append(("### " if markdown else "") + operation)
        parts.append(_table(*_operation_rows(group), markdown))
    rows = [[operation, types, contender, f"{mean:.3f}", str(count)]
            for operation, per_types in geometric_means(results).items()
            for types, contenders in per_types.items()
            for contender, (mean, count) in contenders.items()]
    if rows:
        parts.append("Geometric means of a contender's time over dorajit's:")
        parts.append(_table(["operation", "types", "contender", "mean", "cases"], rows, markdown))
    if remarks := [f"- {remark}" for remark in _remarks(results)]:
        parts.append("\n".join(remarks))
    return "\n\n".join(parts) + "\n"


def _others(one):
    return [contender for contender in one["median_us"] if contender != _REFERENCE]


def _ratio(one, contender):
    """The contender's time over dorajit's; for torch.add, which moves other bytes, time per byte."""
    return bandwidth(one, _REFERENCE) / bandwidth(one, contender)


def _spread(one, contender):
    first, _, third = one["quartiles_us"][contender]
    return third - first


def _operation_rows(group):
    contenders = list(dict.fromkeys(name for one in group for name in one["median_us"]))
    rows = [[f"{one['rows']}x{one['cols']}", one["types"]]
            + [_cell(one, contender) for contender in contenders] for one in group]
    return ["shape", "types", *contenders], rows


def _cell(one, contender):
    if contender not in one["median_us"]:
        return ""
    time = f"{one['median_us'][contender]:.2f}"
    if contender == _REFERENCE:
        return f"{time} ({bandwidth(one, contender):.2f} TB/s)"
    return f"{time} ({_ratio(one, contender):.3f})" if _REFERENCE in one["median_us"] else time


def _remarks(results):
    for one, contender in slower_cases(results):
        yield (f"slower than {contender}: {_name(one)}, "
               f"{one['median_us'][_REFERENCE]:.2f} against {one['median_us'][contender]:.2f} us")
    for one in results:
        for contender, reason in one["failed"].items():
            yield f"no time: {_name(one)}, {contender}: {reason}"
        for contender in one["wrong"]:
            yield f"WRONG RESULT: {_name(one)}, {contender}: errors {one['errors'][contender]}"


def _name(one):
    return f"{one['operation']} {one['rows']}x{one['cols']} {one['types']}"


def _table(header, rows, markdown):
    if markdown:
        lines = [header, ["---"] * len(header), *rows]
        return "\n".join("| " + " | ".join(line) + " |" for line in lines)
    widths = [max(len(line[i]) for line in [header, *rows]) for i in range(len(header))]
    return "\n".join("  ".join(cell.rjust(width) for cell, width in zip(line, widths)).rstrip()
                     for line in [header, *rows])
