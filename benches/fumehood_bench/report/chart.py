"""The results as an SVG picture: p50 as bars, p99 as whiskers, one panel for each program.

It shows one run at a time: where a contender has a pool, while the pool keeps up. The picture has a
ground of its own, and a style for dark surroundings that changes ground and ink together.
"""

import io
import math
import re

from ..matrix import CLOSED, PACED

INK = "#1f2328"
FAINT = "#d0d7de"
GROUND = "#ffffff"
OURS = "#1a7f64"
THEIRS = "#8c959f"
IN_THE_DARK = {INK: "#e6edf3", FAINT: "#3d444d", GROUND: "#0d1117", OURS: "#3fb68b", THEIRS: "#6e7681"}

NAMES = {
    "bare-python": "bare python3 *",
    "docker-run": "docker run --rm",
    "docker-exec": "docker exec *",
    "engine-loop": "raw engine loop",
    "llm-sandbox": "llm-sandbox",
    "llm-sandbox-pool": "llm-sandbox, pool *",
    "fumehood-cold": "fumehood, no pool",
    "fumehood-warm": "fumehood, warm pool",
    "fumehood-preloaded": "fumehood, preloaded",
}
ROW_INCHES = 0.36
WIDTH_INCHES = 9.5


def svg(document: dict) -> str:
    import matplotlib

    matplotlib.use("svg")
    matplotlib.rcParams.update({
        "svg.hashsalt": "fumehood", "font.family": "DejaVu Sans", "font.size": 9,
        "text.color": INK, "axes.labelcolor": INK, "xtick.color": INK, "ytick.color": INK,
        "axes.edgecolor": FAINT, "figure.facecolor": GROUND, "axes.facecolor": GROUND,
    })
    from matplotlib import pyplot

    programs = [program for program in document["programs"] if bars(document, program["name"])]
    names = [told["name"] for told in document["contenders"]
             if any(told["name"] in bars(document, program["name"]) for program in programs)]
    height = 1.35 + ROW_INCHES * len(names)
    figure, axes = pyplot.subplots(1, len(programs), figsize=(WIDTH_INCHES, height), sharey=True,
                                   squeeze=False, layout="constrained")
    figure.get_layout_engine().set(w_pad=0.12, h_pad=0.06)
    for axis, program in zip(axes[0], programs, strict=True):
        panel(axis, program["title"].replace("`", ""), bars(document, program["name"]), names)
    figure.suptitle("From request to result, one run at a time", fontsize=11, fontweight="bold")
    figure.supxlabel("milliseconds, logarithmic; bar p50, whisker p99.  * no isolation between runs",
                     fontsize=8.5)
    text = io.StringIO()
    figure.savefig(text, format="svg", metadata={"Date": None})
    pyplot.close(figure)
    return finished(text.getvalue())


def bars(document: dict, program: str) -> dict[str, tuple[float, float]]:
    """p50 and p99 of each contender that was measured."""
    found: dict[str, tuple[float, float]] = {}
    # What a pool is for comes last and wins.
    for mode in (CLOSED, PACED):
        for cell in document["cells"]:
            if (cell["program"], cell["mode"], cell["clients"]) == (program, mode, 1) and cell["milliseconds"]:
                found[cell["contender"]] = (cell["milliseconds"]["p50"], cell["milliseconds"]["p99"])
    return found


def panel(axis: object, title: str, measured: dict[str, tuple[float, float]], names: list[str]) -> None:
    from matplotlib.ticker import FuncFormatter, NullFormatter

    # Below the smallest by enough for its bar to be seen.
    low = 10 ** math.floor(math.log10(0.7 * min(p50 for p50, _ in measured.values())))
    high = max(p99 for _, p99 in measured.values())
    for row, name in enumerate(names):
        if name not in measured:
            axis.text(low * 1.1, row, "n/a", va="center", fontsize=8)
            continue
        p50, p99 = measured[name]
        colour = OURS if name.startswith("fumehood") else THEIRS
        axis.barh(row, p50 - low, left=low, height=0.62, color=colour)
        axis.plot([p50, p99], [row, row], color=INK, linewidth=1)
        axis.plot([p99, p99], [row - 0.15, row + 0.15], color=INK, linewidth=1)
        axis.text(p99 * 1.12, row, label(p50), va="center", fontsize=8)
    axis.set_xscale("log")
    # Room for the numbers behind the whiskers.
    axis.set_xlim(low, high * 3.2)
    axis.set_ylim(len(names) - 0.5, -0.5)
    axis.set_yticks(range(len(names)), [NAMES.get(name, name) for name in names])
    axis.tick_params(axis="y", length=0)
    axis.tick_params(axis="x", which="both", color=FAINT)
    axis.xaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:,.0f}"))
    axis.xaxis.set_minor_formatter(NullFormatter())
    axis.grid(axis="x", color=FAINT, linewidth=0.6)
    axis.set_axisbelow(True)
    for side in ("top", "right", "left"):
        axis.spines[side].set_visible(False)
    axis.set_title(title, fontsize=9.5)


def label(milliseconds: float) -> str:
    return f"{milliseconds:,.0f} ms" if milliseconds >= 10 else f"{milliseconds:.1f} ms"


def finished(text: str) -> str:
    """Without what names the maker's machine, with the style for dark surroundings."""
    rules = "".join(
        f'[style*="{part}: {light}"]{{{part}:{dark} !important}}'
        for light, dark in IN_THE_DARK.items() for part in ("fill", "stroke"))
    style = f"<style>@media (prefers-color-scheme: dark){{{rules}}}</style>"
    text = re.sub(r"<metadata>.*?</metadata>", "", text, flags=re.DOTALL)
    return re.sub(r"<defs>", f"{style}\n <defs>", text, count=1)
