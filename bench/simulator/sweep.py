#!/usr/bin/env python3
"""Sweeps of `headrace bench simulate` behind the plots of docs/scheduling_notebook.md, as JSON lines.

    bench/simulator/sweep.py > bench/results/simulated.jsonl && bench/plots/simulated.py

Deterministic: the same program gives the same lines. About two minutes of one core.
"""

import argparse
import json
import pathlib
import subprocess
import sys
import tempfile

ROOT = pathlib.Path(__file__).resolve().parents[2]


def percentile(values, share):
    values = sorted(values)
    return values[round(share * (len(values) - 1))] if values else 0.0


class Simulator:
    def __init__(self, program):
        self.program = program
        self.folder = tempfile.TemporaryDirectory()

    def run(self, *arguments):
        """One row a policy, with the rows of its requests under "requests"."""
        rows_file = pathlib.Path(self.folder.name) / "rows.jsonl"
        done = subprocess.run(
            [self.program, "bench", "simulate", "--format", "json", "--rows", rows_file,
             *map(str, arguments)], capture_output=True, text=True)
        if done.returncode != 0:
            raise SystemExit(done.stderr)
        rows = [json.loads(line) for line in done.stdout.splitlines()]
        requests = [json.loads(line) for line in open(rows_file)]
        for row in rows:
            row["requests"] = [r for r in requests if r["policy"] == row["policy"]]
        return rows


def emit(plot, line, x, y):
    print(json.dumps({"plot": plot, "line": line, "x": x, "y": y}))
    sys.stdout.flush()


def load_against_first_token(simulator):
    for load in (0.6, 0.8, 0.9, 0.95, 1.0, 1.05):
        for row in simulator.run("--trace", "heavy-tail", "--requests", 5000, "--load", load,
                                 "--policies", "fcfs,sjf-predicted,mlfq"):
            emit("ttft_by_load", row["policy"], load, row["ttft_p99"])


def goodput(simulator):
    setups = {"prefill-first": ("--policies", "prefill-first"),
              "fcfs": ("--policies", "fcfs"),
              "fcfs, --tpot-target 0.025": ("--policies", "fcfs", "--tpot-target", 0.025),
              "deadline, --tpot-target 0.025": ("--policies", "deadline", "--tpot-target", 0.025)}
    for rate in (14, 18, 20, 22, 24, 28):
        for name, setup in setups.items():
            row, = simulator.run("--trace", "conversation", "--requests", 2000, "--rate", rate,
                                 "--max-num-seqs", 256, *setup)
            emit("goodput_by_rate", name, rate, row["goodput"])


def fairness(simulator):
    for load in (0.5, 0.8, 0.95, 1.1, 1.3):
        for row in simulator.run("--trace", "flood-chat", "--requests", 3000, "--load", load,
                                 "--policies", "fcfs,fair"):
            for tenant in ("calm", "flood"):
                ttft = [r["ttft"] for r in row["requests"] if r["tenant"] == tenant and "ttft" in r]
                emit("fairness_by_load", f"{row['policy']}: {tenant} tenant", load,
                     percentile(ttft, 0.99))


def cache_hits(simulator):
    setups = {"lru": (), "lfu": ("--prefix-cache-eviction", "lfu"),
              "cost": ("--prefix-cache-eviction", "cost"),
              "lru, --policy lpm": ("--policies", "lpm")}
    for tokens in (20000, 40000, 60000, 80000, 120000, 200000):
        for name, setup in setups.items():
            row, = simulator.run("--trace", "agentic", "--requests", 2000, "--rate", 20,
                                 "--kv-tokens", tokens, *setup)
            emit("hits_by_memory", name, tokens / 1000, 100 * row["hit_rate"])


SWEEPS = (load_against_first_token, goodput, fairness, cache_hits)


def main():
    parser = argparse.ArgumentParser(description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--program", default=str(ROOT / "build" / "headrace"))
    simulator = Simulator(parser.parse_args().program)
    for sweep in SWEEPS:
        sweep(simulator)


if __name__ == "__main__":
    main()
