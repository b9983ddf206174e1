#!/usr/bin/env python3
"""Two builds of headrace on the same work in turns, and how much the second is slower or faster.

    bench/pairs.py OLD NEW [-n 15] -- bench latency -m MODEL --batch-size 1,64 -o json

Each pair runs both programs with the command behind --, the one that goes first in turns. A figure is a batch of `bench latency` (ms
a step), the output tokens a second of `bench throughput`, or the speeds of `bench`. Printed of each: both medians and the mean of
the pairs' ratios new / old with its 95 % interval (Student's t on logarithms); where it is stopped, of the pairs that are whole.
Standard library only.
"""

import argparse
import json
import math
import signal
import statistics
import subprocess
import sys

# Two-sided 95 % points of Student's t by degrees of freedom; beyond the table that of the normal distribution is near enough.
T95 = [12.71, 4.30, 3.18, 2.78, 2.57, 2.45, 2.36, 2.31, 2.26, 2.23, 2.20, 2.18, 2.16, 2.14, 2.13, 2.12, 2.11, 2.10, 2.09, 2.09]


def figures(text: str) -> dict[str, float]:
    """name -> value, of what a command printed with -o json."""
    if text.startswith("["):  # bench: prompts and decodes of one stream
        return {f"{row['n_prompt']} in, {row['n_gen']} out, tok/s": row["avg_ts"] for row in json.loads(text)}
    found = {}
    for row in (json.loads(line) for line in text.splitlines() if line.startswith("{")):
        if "step_ms" in row:
            found[f"step at batch {row['batch']}, ms"] = row["step_ms"]["median"]
        elif "output_tokens_per_s" in row:
            found["output tok/s"] = row["output_tokens_per_s"]["median"]
    return found


def run(program: str, words: list[str]) -> dict[str, float]:
    done = subprocess.run([program, *words], capture_output=True, text=True)
    found = figures(done.stdout) if done.returncode == 0 else {}
    if not found:
        sys.exit(f"pairs.py: {program} {' '.join(words)}: exit status {done.returncode}, no figure: {done.stderr.strip()[-300:]}")
    return found


def ratio(old: list[float], new: list[float]) -> tuple[float, float, float]:
    """The mean ratio new / old of pairs, and its 95 % interval."""
    logs = [math.log(b / a) for a, b in zip(old, new)]
    mean = statistics.fmean(logs)
    if len(logs) < 2:
        return math.exp(mean), 0.0, math.inf
    half = T95[min(len(logs) - 2, len(T95) - 1)] * statistics.stdev(logs) / math.sqrt(len(logs))
    return math.exp(mean), math.exp(mean - half), math.exp(mean + half)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("old")
    parser.add_argument("new")
    parser.add_argument("-n", "--pairs", type=int, default=15)
    parser.add_argument("command", nargs="+", help="behind --")
    options = parser.parse_args()
    seen: dict[str, tuple[list[float], list[float]]] = {}
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    try:
        for pair in range(options.pairs):
            sides = [(0, options.old), (1, options.new)]
            for side, program in sides if pair % 2 == 0 else reversed(sides):
                for name, value in run(program, options.command).items():
                    seen.setdefault(name, ([], []))[side].append(value)
    except KeyboardInterrupt:
        print(f"stopped in pair {pair + 1} of {options.pairs}: of whole pairs", file=sys.stderr)
    for name, (old, new) in seen.items():
        whole = min(len(old), len(new))
        if whole == 0:
            continue
        old, new = old[:whole], new[:whole]
        mean, low, high = ratio(old, new)
        print(f"{name}: {statistics.median(old):.5g} -> {statistics.median(new):.5g}, "
              f"new / old {mean:.4f} ({low:.4f}–{high:.4f}, n {len(old)})")  # fmt: skip
    return 0


if __name__ == "__main__":
    sys.exit(main())
