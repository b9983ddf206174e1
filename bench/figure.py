#!/usr/bin/env python3
"""Runs a measuring command of headrace and appends what it prints as figures (bench/README.md).

    bench/figure.py [--machine NAME] [--beside PROGRAM] [--output FILE] -- build/headrace bench latency ... -o json

Of `bench latency` a figure a batch (ms a step), of `bench throughput` one (output tokens a second), of `bench ablate` one a
case (the gain); of `bench edge` what it prints, for a table of such rows. --beside: the newest figure of that peer on the same work stands beside ours, as one of another run.
--log FILE: reads what the command printed before, in place of running it. Standard library only.
"""

import argparse
import copy
import json
import pathlib
import subprocess
import sys

ROOT = pathlib.Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT / "bench/peers"))
import compare  # noqa: E402
import tables  # noqa: E402  (bench/ is where this script lies)

# Flags that say what is measured, where and how often, and no choice of the engine's. With the number of their values.
WORK_FLAGS = {"-m": 1, "--model": 1, "--load-format": 1, "--device": 1, "--batch-size": 1, "--input-len": 1, "--output-len": 1,
              "--requests": 1, "--num-prompts": 1, "-r": 1, "--repetitions": 1, "-o": 1, "--output": 1, "--no-warmup": 0,
              "-t": 1, "--threads": 1}  # fmt: skip
REPETITIONS = 3  # the program's own default


def option(words: list[str], names: tuple[str, ...], default: str) -> str:
    return next((words[at + 1] for at, word in enumerate(words) if word in names), default)


def engine_flags(words: list[str]) -> str:
    """What is left of the command's flags: choices beyond the defaults."""
    left, skipped = [], 0
    for word in words:
        if skipped > 0:
            skipped -= 1
        elif word in WORK_FLAGS:
            skipped = WORK_FLAGS[word]
        else:
            left.append(word)
    return " ".join(left) or "default"


def measured_of(row: dict, words: list[str]) -> dict:
    """bench, lengths, flags, unit and the spread of one line that the program printed."""
    runs = int(option(words, ("-r", "--repetitions"), str(REPETITIONS)))
    work = {"flags": engine_flags(words)}
    if "step_ms" in row:
        lengths = f"{row['batch']} × {row['prompt']:,} in, {row['output']:,} out"
        return {"bench": "step", "lengths": lengths, **work, "unit": "ms", "n": runs, **row["step_ms"]}
    if "output_tokens_per_s" in row:
        lengths = f"{row['requests']:,} requests: {row['prompt_tokens']:,} in, {row['output_tokens']:,} out"
        if row.get("order") == "lengths declared":  # by default too, where the program knows them: no peer is told
            work["flags"] += ", lengths declared"
        return {"bench": "throughput", "lengths": lengths, **work, "unit": "tok/s", "n": runs, **row["output_tokens_per_s"]}
    if "ablate" in row:
        gain = {"n": row["rounds"], "median": row["gain"], "min": row["gain_min"], "max": row["gain_max"]}
        return {"bench": f"ablate {row['ablate']}", "what": row["what"], "lengths": row["case"], "unit": "×", **gain,
                "flags": "the technique on against off", "on": row["on"], "off": row["off"], "value_unit": row["unit"]}
    raise tables.Fault(f"a line that is neither of bench latency, throughput nor ablate: {json.dumps(row)[:80]}")


def peer_of(figure: dict, program: str, known: list[tables.Figure]) -> dict:
    same = {"bench": figure["bench"], "lengths": figure["lengths"], "peer.program": program}
    found = tables.select(known, same)
    if found is None:
        raise tables.Fault(f"no figure of {program} with {figure['bench']}, {figure['lengths']}")
    return copy.deepcopy(found.row["peer"])


def figures_of(text: str, words: list[str], arguments: argparse.Namespace) -> list[dict]:
    origin = compare.origin()
    known = tables.read_figures(ROOT / "bench/results") if arguments.beside else []
    figures = []
    for row in compare.json_values(text.encode()):
        made = {**origin, "command": compare.text_of(words)}
        if row.get("bench") == "edge":
            figures.append({**made, **({"machine": arguments.machine} if arguments.machine else {}), **row})
            continue
        measured = measured_of(row, words[3:])
        figure = {**made, "model": arguments.model or row.get("model"), **measured}
        if arguments.machine:
            figure["machine"] = arguments.machine
        if row.get("commit"):
            figure["commit"] = row["commit"]
        if arguments.beside:
            figure |= {"one_run": False, "peer": peer_of(figure, arguments.beside, known)}
            if arguments.flags_alike:
                figure["flags_alike"] = arguments.flags_alike
        tables.check_figure(tables.Figure(figure, "what was measured"))
        figures.append(figure)
    return figures


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--machine", help="where it ran; default: this machine's CPU")
    parser.add_argument("--model", help="what the figure calls the model; default: as the program does")
    parser.add_argument("--beside", metavar="PROGRAM", help="the peer of known figures of the same work, as vLLM")
    parser.add_argument("--flags-alike", metavar="WHY", help="why flags unlike the peer's mean the same")
    parser.add_argument("--log", type=pathlib.Path, help="what the command printed; it is not run")
    parser.add_argument("--output", type=pathlib.Path, default=ROOT / "bench/results/h200.jsonl")
    parser.add_argument("command", nargs="+", help="behind --")
    arguments = parser.parse_args()
    try:
        if arguments.log:
            text = arguments.log.read_text(encoding="utf-8")
        else:
            done = subprocess.run(arguments.command, stdout=subprocess.PIPE, text=True, check=True)
            text = done.stdout
        figures = figures_of(text, arguments.command, arguments)
    except (tables.Fault, OSError, subprocess.CalledProcessError) as fault:
        print(f"figure.py: {fault}", file=sys.stderr)
        return 1
    with open(arguments.output, "a", encoding="utf-8") as output:
        for figure in figures:
            output.write(json.dumps(figure, ensure_ascii=False) + "\n")
            if "lengths" not in figure:
                print(f"{figure['bench']} {figure['measure']}, TLS {figure['tls']}")
                continue
            print(f"{figure['bench']}, {figure['lengths']}, {figure['flags']}: {tables.side_text(figure)} {figure['unit']}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
