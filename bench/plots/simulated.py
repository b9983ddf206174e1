#!/usr/bin/env python3
"""Draws docs/img/*.svg from bench/results/simulated.jsonl (bench/simulator/sweep.py). Standard library only."""

import collections
import html
import json
import math
import pathlib

ROOT = pathlib.Path(__file__).resolve().parents[2]
RESULTS = ROOT / "bench" / "results" / "simulated.jsonl"
IMAGES = ROOT / "docs" / "img"

WIDTH, HEIGHT = 640, 360
LEFT, RIGHT, TOP, BOTTOM = 66, 16, 34, 48
COLOURS = ("#1f5fa8", "#c8501e", "#2f8a4c", "#7a4fa3", "#8a6d1f", "#555555")

Plot = collections.namedtuple("Plot", "title x y logarithmic")
PLOTS = {
    "ttft_by_load": Plot("First token, p99: answers of very different length (heavy-tail, 64 slots)",
                         "load (share of what fcfs ends when saturated)", "seconds", True),
    "goodput_by_rate": Plot("Goodput: first token within 0.5 s and 30 ms a token (conversation, 256 slots)",
                            "requests a second that arrive", "requests a second in time", False),
    "fairness_by_load": Plot("First token, p99, of two tenants: one sends 50 times what the other does",
                             "load of both together", "seconds", True),
    "hits_by_memory": Plot("Prompt tokens found in the prefix cache (agentic, 40 agents)",
                           "memory for keys and values, thousand tokens", "%", False),
}


class Axis:
    """Values to pixels, with ticks at round numbers."""

    def __init__(self, values, first, last, logarithmic):
        self.first, self.last, self.logarithmic = first, last, logarithmic
        low, high = min(values), max(values)
        if logarithmic:
            self.low = math.floor(math.log10(max(low, 1e-6)))
            self.high = math.ceil(math.log10(high))
            self.ticks = [10.0 ** p for p in range(self.low, self.high + 1)]
        else:
            step = self.round_step((high - min(low, 0 if low < high / 2 else low)) / 5)
            self.low = step * math.floor((0 if low < high / 2 else low) / step)
            self.high = step * math.ceil(high / step)
            count = round((self.high - self.low) / step)
            self.ticks = [self.low + i * step for i in range(count + 1)]

    @staticmethod
    def round_step(step):
        power = 10 ** math.floor(math.log10(step))
        return next(power * f for f in (1, 2, 5, 10) if power * f >= step * 0.999)

    def __call__(self, value):
        place = math.log10(max(value, 1e-6)) if self.logarithmic else value
        share = (place - self.low) / (self.high - self.low)
        return self.first + share * (self.last - self.first)


def text(x, y, content, anchor="middle", turn=""):
    return f'<text x="{x:.1f}" y="{y:.1f}" text-anchor="{anchor}"{turn}>{html.escape(content)}</text>'


def axes(plot, across, up):
    parts = [text(WIDTH / 2, 18, plot.title), text(WIDTH / 2, HEIGHT - 10, plot.x),
             text(14, HEIGHT / 2, plot.y, turn=f' transform="rotate(-90 14 {HEIGHT / 2})"')]
    for tick in up.ticks:
        parts.append(f'<path d="M{LEFT} {up(tick):.1f}H{WIDTH - RIGHT}" class="grid"/>')
        parts.append(text(LEFT - 6, up(tick) + 4, f"{tick:g}", "end"))
    for tick in across.ticks:
        parts.append(text(across(tick), HEIGHT - BOTTOM + 16, f"{tick:g}"))
    parts.append(f'<path d="M{LEFT} {TOP}V{HEIGHT - BOTTOM}H{WIDTH - RIGHT}" class="axis"/>')
    return parts


def draw(plot, lines):
    points = [point for line in lines.values() for point in line]
    across = Axis([x for x, _ in points], LEFT, WIDTH - RIGHT, False)
    up = Axis([y for _, y in points], HEIGHT - BOTTOM, TOP, plot.logarithmic)
    parts = axes(plot, across, up)
    for number, (name, line) in enumerate(lines.items()):
        colour = COLOURS[number % len(COLOURS)]
        path = " ".join(f"{across(x):.1f},{up(y):.1f}" for x, y in sorted(line))
        parts.append(f'<polyline points="{path}" stroke="{colour}"/>')
        parts += [f'<circle cx="{across(x):.1f}" cy="{up(y):.1f}" r="2.5" fill="{colour}"/>' for x, y in line]
        y = TOP + 12 + 16 * number
        parts.append(f'<path d="M{LEFT + 10} {y - 4}h18" stroke="{colour}" stroke-width="2"/>')
        parts.append(text(LEFT + 33, y, name, "start"))
    style = ("text{font:12px sans-serif;fill:#222}polyline{fill:none;stroke-width:2}"
             ".grid{stroke:#ddd}.axis{stroke:#222;fill:none}")
    return (f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {HEIGHT}" width="{WIDTH}">'
            f'<style>{style}</style><rect width="100%" height="100%" fill="#fff"/>\n'
            + "\n".join(parts) + "\n</svg>\n")


def main():
    lines = collections.defaultdict(lambda: collections.defaultdict(list))
    for row in map(json.loads, open(RESULTS)):
        lines[row["plot"]][row["line"]].append((row["x"], row["y"]))
    for name, plot in PLOTS.items():
        (IMAGES / f"{name}.svg").write_text(draw(plot, lines[name]))
        print(f"docs/img/{name}.svg")


if __name__ == "__main__":
    main()
