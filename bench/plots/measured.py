#!/usr/bin/env python3
"""Draws plots of tables of measured figures (bench/tables.toml) as docs/img/measured_NAME.svg: bars of the values that the table
shows, from the same rows. Standard library only.

    bench/plots/measured.py            draws them anew
    bench/plots/measured.py --check    fails where a plot differs from the rows
"""

import argparse
import pathlib
import re
import sys
import tomllib

ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.path[:0] = [str(ROOT / "bench"), str(ROOT / "bench/plots")]

import tables  # noqa: E402
from simulated import COLOURS, IMAGES, text  # noqa: E402

# Table -> what its bars are.
PLOTS = {
    "cpu_llama_cpp": "Headrace beside llama.cpp on two CPU cores: times as fast (memory: times less)",
    "gpu_steps": "One NVIDIA H200, 8B shape in BF16: milliseconds a step, less is better (vLLM ran on another day)",
    "gpu_offline": "The same: output tokens a second of a job, more is better (vLLM ran on another day)",
}
WIDTH, LEFT, RIGHT, TOP, BAR, GAP = 800, 330, 90, 62, 15, 12


def value_of(figure, show):
    """The number that a cell shows."""
    if show == "peer":
        return figure.row["peer"]["median"]
    if show == "ratio":
        larger = tables.LARGER_IS_BETTER[figure.row["unit"]]
        return tables.ratios([figure.row["median"]], [figure.row["peer"]["median"]], larger)[0]
    return figure.row["median"]


def bars_of(definition, figures):
    """[(label, [(column, value)])], without cells that have no figure."""
    rows = []
    for row in definition["rows"]:
        bars = []
        for number, column in enumerate(definition["columns"]):
            cell, figure = tables.make_cell(definition, row, column, figures)
            if figure is not None and cell:
                bars.append((number, value_of(figure, column.get("show", "ours"))))
        rows.append((re.sub(r"[`*]", "", row["label"]), bars))
    return rows


def draw(title, definition, figures):
    rows = bars_of(definition, figures)
    most = max(value for _, bars in rows for _, value in bars)
    parts, y = [text(16, 22, title, "start")], TOP
    for number, column in enumerate(definition["columns"]):
        x = 16 + 220 * number
        parts.append(f'<rect x="{x}" y="34" width="12" height="12" fill="{COLOURS[number]}"/>')
        parts.append(text(x + 18, 44, column["head"], "start"))
    for label, bars in rows:
        parts.append(text(LEFT - 8, y + BAR * len(bars) / 2 + 4, label if len(label) <= 50 else label[:48] + "…", "end"))
        for number, value in bars:
            width = (WIDTH - LEFT - RIGHT) * value / most
            parts.append(f'<rect x="{LEFT}" y="{y}" width="{width:.1f}" height="{BAR - 2}" fill="{COLOURS[number]}"/>')
            parts.append(text(LEFT + width + 5, y + BAR - 4, tables.number(value), "start"))
            y += BAR
        y += GAP
    return (f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {y}" width="{WIDTH}" role="img" aria-label="{title}">'
            '<style>text{font:12px sans-serif;fill:#222}</style><rect width="100%" height="100%" fill="#fff"/>\n'
            + "\n".join(parts) + "\n</svg>\n")  # fmt: skip


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--check", action="store_true", help="change nothing; fail where something would change")
    options = parser.parse_args()
    figures = tables.read_figures(ROOT / "bench/results")
    definitions = {each["name"]: each for each in tomllib.loads((ROOT / "bench/tables.toml").read_text(encoding="utf-8"))["table"]}
    stale = []
    for name, title in PLOTS.items():
        path, drawn = IMAGES / f"measured_{name}.svg", draw(title, definitions[name], figures)
        if not path.exists() or path.read_text(encoding="utf-8") != drawn:
            stale.append(path.name)
            if not options.check:
                path.write_text(drawn, encoding="utf-8")
    if stale and options.check:
        print(f"measured.py: {', '.join(stale)} differ from bench/results: run bench/plots/measured.py", file=sys.stderr)
    return 1 if stale and options.check else 0


if __name__ == "__main__":
    sys.exit(main())
