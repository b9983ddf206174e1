#!/usr/bin/env python3
"""Replays a trace on a real server and in the simulator, and says how far apart they are.

    bench/simulator/against_real.py -m model.gguf --trace sharegpt --rate 2.5 6 --num-prompts 100

For each rate: starts `headrace serve`, sends the trace with `headrace bench serve`, takes the cost of
steps that the server fitted, and replays the same trace with it in `headrace bench simulate`. Prints
throughput and percentiles of both with the error of the simulation, or JSON lines (-o json).
--fit-from FIRST uses the cost of the first rate for all: a prediction of loads never seen.
"""

import argparse
import json
import os
import pathlib
import re
import subprocess
import sys
import tempfile

ROOT = pathlib.Path(__file__).resolve().parents[2]
SHARES = {"p50": 0.5, "p90": 0.9, "p99": 0.99}
TIMES = ("ttft", "tpot", "completion")


def parse_arguments():
    parser = argparse.ArgumentParser(description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("-m", "--model", required=True)
    parser.add_argument("--program", default=str(ROOT / "build" / "headrace"))
    parser.add_argument("--trace", default="sharegpt", help="a kind or a file")
    parser.add_argument("--rate", type=float, nargs="+", default=[2.5])
    parser.add_argument("--num-prompts", type=int, default=100)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--max-model-len", type=int, default=2048)
    parser.add_argument("--max-num-seqs", type=int, default=32)
    parser.add_argument("--max-num-batched-tokens", type=int, default=512)
    parser.add_argument("--kv-memory", default="2G",
                        help="the server's, enough for --max-num-seqs of --max-model-len")
    parser.add_argument("--fit-from", choices=["SAME", "FIRST"], default="SAME")
    parser.add_argument("-o", "--output", choices=["text", "json"], default="text")
    return parser.parse_args()


class Server:
    """headrace serve on a free port, with enough KV memory that nothing is preempted."""

    def __init__(self, options):
        self.options = options

    def __enter__(self):
        o = self.options
        self.process = subprocess.Popen(
            [o.program, "serve", "-m", o.model, "--port", "0",
             "--max-model-len", str(o.max_model_len), "--max-num-seqs", str(o.max_num_seqs),
             "--max-num-batched-tokens", str(o.max_num_batched_tokens),
             "--kv-cache-memory-bytes", o.kv_memory,
             "--max-queued-requests", str(o.num_prompts), "--device", "cpu"],
            stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True)
        self.port = None
        for line in self.process.stdout:
            if match := re.search(r"listening on http://\S+:(\d+)", line):
                self.port = match.group(1)
            if line.startswith("ready"):
                return self
        raise SystemExit("against_real: the server did not start")

    def __exit__(self, *_):
        self.process.terminate()
        self.process.wait()


def trace_flags(options, rate, count_flag, rate_flag):
    return ["--trace", options.trace, rate_flag, str(rate), count_flag, str(options.num_prompts),
            "--seed", str(options.seed), "--max-model-len", str(options.max_model_len)]


def read_rows(path):
    rows = [json.loads(line) for line in open(path)]
    if any("error" in row for row in rows):
        raise SystemExit("against_real: a request failed: " + next(
            row["error"] for row in rows if "error" in row))
    return rows


def replay_real(options, rate, folder):
    rows = folder / "real.jsonl"
    with Server(options) as server:
        done = subprocess.run(
            [options.program, "bench", "serve", "--port", server.port, "-o", "json", "--rows", rows,
             *trace_flags(options, rate, "--num-prompts", "--request-rate")],
            capture_output=True, text=True)
        if done.returncode != 0:
            raise SystemExit(done.stderr or done.stdout)
    return read_rows(rows), json.loads(done.stdout)["step_cost"]


def replay_simulated(options, rate, cost, folder):
    rows, cost_file = folder / "simulated.jsonl", folder / "cost.json"
    cost_file.write_text(json.dumps(cost))
    done = subprocess.run(
        [options.program, "bench", "simulate", "--step-cost", cost_file, "--declare-lengths",
         "--max-num-seqs", str(options.max_num_seqs), "--format", "json", "--rows", rows,
         "--max-num-batched-tokens", str(options.max_num_batched_tokens), 
         "--kv-tokens", str(options.max_num_seqs * options.max_model_len),
         *trace_flags(options, rate, "--requests", "--rate")],
        capture_output=True, text=True)
    if done.returncode != 0:
        raise SystemExit(done.stderr)
    return read_rows(rows)


def percentile(values, share):
    values = sorted(values)
    return values[round(share * (len(values) - 1))]


def summary(rows):
    tokens = sum(row["output_tokens"] for row in rows)
    figures = {"output_tokens_per_s":
               tokens / max(row["arrival"] + row["completion"] for row in rows)}
    for time in TIMES:
        values = [row[time] for row in rows if time != "tpot" or row["output_tokens"] > 1]
        for name, share in SHARES.items():
            figures[f"{time}_{name}"] = percentile(values, share)
    return figures


def compare(options, rate, cost, real_rows, folder):
    simulated_rows = replay_simulated(options, rate, cost, folder)
    real, simulated = summary(real_rows), summary(simulated_rows)
    return {"bench": "simulator against reality", "trace": os.path.basename(options.trace),
            "rate": rate, "requests": len(real_rows), "fit_from": options.fit_from.lower(),
            "real": real, "simulated": simulated,
            "error": {name: simulated[name] / real[name] - 1 for name in real},
            "step_cost": cost}


def print_text(row):
    print(f"{row['trace']}, {row['rate']} requests a second, {row['requests']} requests")
    print(f"  {'':<22}{'real':>12}{'simulated':>12}{'error':>9}")
    for name, real in row["real"].items():
        scale, unit = (1, "") if name == "output_tokens_per_s" else (1e3, " ms")
        print(f"  {name + unit:<22}{real * scale:>12.2f}{row['simulated'][name] * scale:>12.2f}"
              f"{row['error'][name]:>+9.1%}")


def main():
    options = parse_arguments()
    cost = None
    with tempfile.TemporaryDirectory() as name:
        folder = pathlib.Path(name)
        for rate in options.rate:
            rows, fitted = replay_real(options, rate, folder)
            if cost is None or options.fit_from == "SAME":
                cost = fitted
            row = compare(options, rate, cost, rows, folder)
            print(json.dumps(row)) if options.output == "json" else print_text(row)
            sys.stdout.flush()


if __name__ == "__main__":
    main()
