"""Turn results.json into the tables of docs/performance.md and the plot beside it."""

import re
from pathlib import Path

import matplotlib as mpl
import matplotlib.pyplot as plt

DOCS = Path(__file__).parents[1] / "docs"
SHOWN = {  # the lines of the plot, and how they look
    "twin": ("tab:gray", "--"),
    "plain binding": ("tab:red", "-"),
    "numpy": ("tab:olive", "-"),
    "header in C++": ("black", "-"),
    "statetok list": ("tab:blue", "-"),
    "list.copy": ("tab:blue", ":"),
    "statetok int32": ("tab:green", "-"),
    "memcpy in C++": ("tab:green", ":"),
}
# Input, length, way, how it is to compare, with what, and how: at least or at most.
TARGETS = [
    ("llm", 8192, "statetok list", "plain binding", ">=", 10),
    ("llm", 8192, "statetok list", "twin", ">=", 25),
    ("llm", 131072, "statetok list", "plain binding", ">=", 12),
    ("llm", 8192, "statetok int32", "header in C++", ">=", 3),
    ("llm", 131072, "statetok int32", "header in C++", ">=", 3),
    ("llm", 8192, "memcpy in C++", "statetok int32", "<=", 4),
    ("llm", 131072, "memcpy in C++", "statetok int32", "<=", 4),
    ("llm", 8192, "statetok int64", "header in C++", ">=", 2),
    ("llm", 8192, "statetok uint16", "header in C++", ">=", 2),
    ("real", 8192, "statetok list", "plain binding", ">=", 8),
    ("real", 8192, "statetok int32", "header in C++", ">=", 1.3),
    ("dense", 8192, "statetok int32", "header in C++", ">=", 0.85),
    ("text", 8192, "memcpy in C++", "statetok int32", "<=", 3),
    ("rows", None, "ragged, 2 threads", "ragged, 1 thread", ">=", 1.7),
    ("rows", None, "copy, 2 threads", "array.copy", ">=", None),  # what the machine's memory allows
    ("rows", None, "one array", "ragged, 1 thread", "<=", 1.1),
    ("64 ids", 64, "StateTokens.insert, list", "plain binding", ">=", 3),
    ("empty", 0, "empty pybind11 function", "StateTokens.insert, list", "<=", 2),
    ("empty", 0, "empty pybind11 function", "insert_state_blocks, list", "<=", 2),
    ("stream", 1, "empty method", "Stream.push, one id", "<=", 4),
    ("stream", 8192, "StateTokens.insert, list", "Stream.push, list", "<=", None),
]


def cell(results, name, length):
    by_length = results["inputs"][name]
    return by_length[str(length)] if length is not None else next(iter(by_length.values()))


def targets_table(results):
    lines = ["| input | ids | ratio | measured | wanted | |", "|---|---|---|---|---|---|"]
    for name, length, way, other, sign, wanted in TARGETS:
        found = cell(results, name, length)
        ratio = found[other]["median"] / found[way]["median"]
        what = f"{way}, times as fast as {other}" if sign == ">=" else f"{other}, times {way}"
        if wanted is None:
            verdict = "| "
        else:
            reached = ratio >= wanted if sign == ">=" else ratio <= wanted
            bound = "at least" if sign == ">=" else "at most"
            verdict = f"{bound} {wanted} | {'yes' if reached else '**no**'}"
        lines.append(f"| {name} | {length or ''} | {what} | {ratio:.2f} | {verdict} |")
    return "\n".join(lines)


def scan_table(results):
    lines = ["| scan | ns per id |", "|---|---|"]
    for name, taken in cell(results, "scan", 8192).items():
        lines.append(f"| {name} | {taken['median'] / 8192 * 1e9:.3f} |")
    return "\n".join(lines)


def per_id_table(results):
    lines = []
    for name, by_length in results["inputs"].items():
        for length, ways in by_length.items():
            n = max(int(length), 1)
            lines += [
                f"\n**{name}, {int(length):,} ids**\n",
                "| way | ns per id | quartiles |",
                "|---|---|---|",
            ]
            for way, taken in ways.items():
                low, median, high = (taken[q] / n * 1e9 for q in ("low", "median", "high"))
                lines.append(f"| {way} | {median:.2f} | {low:.2f} .. {high:.2f} |")
    return "\n".join(lines)


def memory_table(results):
    lines = ["| rows | peak beyond the result, of the input |", "|---|---|"]
    for kind, part in results["ragged_memory"].items():
        lines.append(f"| {kind} | {part:.1%} |")
    return "\n".join(lines)


def plot(results):
    mpl.rcParams["svg.hashsalt"] = "statetok"  # the same bytes for the same figures
    figure, axes = plt.subplots(figsize=(7.2, 4.2), layout="constrained")
    by_length = results["inputs"]["llm"]
    for way, (color, style) in SHOWN.items():
        points = [
            (int(n), found[way]["median"] / int(n) * 1e9)
            for n, found in by_length.items()
            if way in found
        ]
        axes.plot(*zip(*points, strict=True), color=color, linestyle=style, marker=".", label=way)
    axes.set(
        xscale="log",
        yscale="log",
        xlabel="ids in the sequence, in exchanges of 400",
        ylabel="ns per id",
        ylim=(0.05, 5000),  # with room for the legend
    )
    axes.grid(alpha=0.3)
    axes.legend(fontsize="small", ncols=4, loc="upper center")
    figure.savefig(DOCS / "performance.svg", metadata={"Date": None})


def replace_part(name, made):
    """Put what was made between the marks of this name in docs/performance.md."""
    page = DOCS / "performance.md"
    marks = f"(<!-- {name} -->\n).*?(<!-- end -->)"
    text, n = re.subn(
        marks, lambda m: f"{m[1]}{made}\n{m[2]}", page.read_text("utf-8"), flags=re.DOTALL
    )
    assert n == 1, f"{page.name} has no place for: {name}"
    page.write_text(text, "utf-8")


def write(results):
    replace_part("machine", results["machine"])
    replace_part("targets", targets_table(results))
    replace_part("scans", scan_table(results))
    replace_part("per id", per_id_table(results))
    replace_part("memory", memory_table(results))
    plot(results)
