#!/usr/bin/env python3
"""Answers with and without tokens that are proposed by what the text had before (--spec-method ngram), in turns.

    bench/proposals.py [-m MODEL] [-n 9] [-t THREADS] [--headrace PROGRAM] [--only NAME] [--default-flags]

Each pair answers one prompt of workloads/proposals.json greedily by both, the one that goes first in turns, and requires the same
tokens, which a CPU with AMX promises with --batch-invariant only: both sides have that flag, unless --default-flags is given, with
which a row says whether the tokens were the same. Printed of each prompt: both medians of the decode in tokens a second and the mean of the pairs' ratios with its 95 % interval.
Appends a row a prompt to bench/results/proposals.jsonl. Standard library only.
"""
import argparse
import json
import pathlib
import statistics
import subprocess
import sys

ROOT = pathlib.Path(__file__).resolve().parents[1]
sys.path[:0] = [str(ROOT / "bench"), str(ROOT / "bench/peers")]
import compare  # noqa: E402
import pairs  # noqa: E402
import starts  # noqa: E402

MODEL = "qwen2.5-coder-0.5b-instruct-q4_k_m.gguf"


def answer(options, work, flags):
    command = [options.headrace, "run", "-m", str(options.model), "--json", "--temperature", "0", "-t", str(options.threads),
               "-n", str(work["max_tokens"]), "-p", work["prompt"], *([] if options.default_flags else ["--batch-invariant"]), *flags]
    done = subprocess.run(command, capture_output=True, text=True)
    if done.returncode != 0:
        sys.exit(f"proposals.py: {done.stderr.strip()[-300:]}")
    report = json.loads(done.stdout)
    return report["tokens"], report["timings"]["predicted_per_second"]


def measure(options, work):
    speeds = ([], [])
    same = True
    for pair in range(options.pairs):
        tokens = {}
        for side in (0, 1) if pair % 2 == 0 else (1, 0):
            tokens[side], speed = answer(options, work, ["--spec-method", "ngram"] if side else [])
            speeds[side].append(speed)
        same = same and tokens[0] == tokens[1]
        if not same and not options.default_flags:
            sys.exit(f"proposals.py: {work['name']}: other tokens with proposals")
    mean, low, high = pairs.ratio(*speeds)
    return len(tokens[0]), same, speeds, (mean, low, high)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("-m", "--model", type=pathlib.Path, default=starts.CACHE / "headrace/models" / MODEL)
    parser.add_argument("-n", "--pairs", type=int, default=9)
    parser.add_argument("-t", "--threads", type=int, default=2)
    parser.add_argument("--headrace", default=str(ROOT / "build/headrace"))
    parser.add_argument("--only")
    parser.add_argument("--default-flags", action="store_true")
    options = parser.parse_args()
    for work in json.loads((ROOT / "bench/workloads/proposals.json").read_text()):
        if options.only not in (None, work["name"]):
            continue
        count, same, (without, proposed), (mean, low, high) = measure(options, work)
        print(f"{work['name']:12} {count:4} tokens  {statistics.median(without):7.1f} {statistics.median(proposed):7.1f} tok/s  "
              f"{mean:.3f} ({low:.3f} to {high:.3f})", flush=True)
        row = {"bench": "proposals", "work": work["name"], "repeats": work["repeats"], "tokens": count, "same_tokens": same, "model": options.model.name,
               "unit": "tok/s", "without_median": statistics.median(without), "proposed_median": statistics.median(proposed),
               "ratio": round(mean, 4), "low": round(low, 4), "high": round(high, 4), "n": options.pairs,
               **compare.origin(), "command": " ".join(["bench/proposals.py", *sys.argv[1:]])}
        with open(ROOT / "bench/results/proposals.jsonl", "a") as rows:
            rows.write(json.dumps(row) + "\n")


if __name__ == "__main__":
    main()
