#!/usr/bin/env python3
"""Replays a trace on a real server and in the simulator, and says how far apart they are.

    bench/simulator/against_real.py -m model.gguf --trace sharegpt --rate 2.5 6 --num-prompts 100

For each rate: starts `headrace serve`, sends the trace with `headrace bench serve`, takes the cost of
steps that the server fitted, and replays the same trace with it in `headrace bench simulate`. Prints
throughput and percentiles of both with the error of the simulation, or JSON lines (-o json).
--fit-from FIRST uses the cost of the first rate for all, which one server runs: a prediction of loads
never seen. What stands after -- is for the server:

    bench/simulator/against_real.py -m /tmp/llama-8b --device cuda --kv-memory auto --trace conversation \\
        --max-model-len 4096 --max-num-seqs 256 --max-num-batched-tokens 2048 --fit-from FIRST \\
        --rate 8 16 22 --num-prompts 200 400 500 --warm-ups 4 -- --graphs-at-start --http-threads 4
"""

import argparse
import json
import os
import pathlib
import subprocess
import sys
import tempfile

ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "bench"))
from server import Server  # noqa: E402
SHARES = {"p50": 0.5, "p90": 0.9, "p99": 0.99}
TIMES = ("ttft", "tpot", "completion")


def parse_arguments():
    parser = argparse.ArgumentParser(description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("-m", "--model", required=True)
    parser.add_argument("--program", default=str(ROOT / "build" / "headrace"))
    parser.add_argument("--trace", default="sharegpt", help="a kind or a file")
    parser.add_argument("--rate", type=float, nargs="+", default=[2.5])
    parser.add_argument("--num-prompts", type=int, nargs="+", default=[100],
                        help="for each rate, or one for all")
    parser.add_argument("--warm-ups", type=int, default=1, help="requests before the clock starts")
    parser.add_argument("--device", default="cpu", help="the server's: cpu, cuda, cuda:N")
    parser.add_argument("--client-threads", type=int, default=2)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--max-model-len", type=int, default=2048)
    parser.add_argument("--max-num-seqs", type=int, default=32)
    parser.add_argument("--max-num-batched-tokens", type=int, default=512)
    parser.add_argument("--kv-memory", default="2G",
                        help="the server's, enough for --max-num-seqs of --max-model-len; auto: "
                        "as much as it takes by itself")
    parser.add_argument("--fit-from", choices=["SAME", "FIRST"], default="SAME")
    parser.add_argument("-o", "--output", choices=["text", "json"], default="text")
    parser.add_argument("server_flags", nargs="*", metavar="-- SERVER FLAG")
    options = parser.parse_args()
    if len(options.num_prompts) not in (1, len(options.rate)):
        parser.error("--num-prompts: one number, or one for each --rate")
    if len(options.num_prompts) == 1:
        options.num_prompts *= len(options.rate)
    return options


class Load:
    """One of the rates; each with requests of its own, so that none finds another's prefixes."""

    def __init__(self, options, index):
        self.rate, self.requests = options.rate[index], options.num_prompts[index]
        self.seed = options.seed + index


def serve(options):
    """With enough KV memory that nothing is preempted."""
    o = options
    memory = [] if o.kv_memory == "auto" else ["--kv-cache-memory-bytes", o.kv_memory]
    return Server(o.program, o.model, "--max-model-len", str(o.max_model_len), "--max-num-seqs", str(o.max_num_seqs),
                  "--max-num-batched-tokens", str(o.max_num_batched_tokens), "--max-queued-requests", str(max(o.num_prompts)),
                  "--max-connections-per-address", str(max(o.num_prompts) + 8), "--device", o.device, *memory, *o.server_flags)


def trace_flags(options, load, count_flag, rate_flag):
    return ["--trace", options.trace, rate_flag, str(load.rate), count_flag, str(load.requests),
            "--seed", str(load.seed), "--max-model-len", str(options.max_model_len)]


def read_rows(path):
    rows = [json.loads(line) for line in open(path)]
    if any("error" in row for row in rows):
        raise SystemExit("against_real: a request failed: " + next(
            row["error"] for row in rows if "error" in row))
    return rows


def replay_real(options, server, load, folder):
    rows = folder / "real.jsonl"
    done = subprocess.run(
        [options.program, "bench", "serve", "--port", server.port, "-o", "json", "--rows", rows,
         "--num-warmups", str(options.warm_ups), "--client-threads", str(options.client_threads),
         *trace_flags(options, load, "--num-prompts", "--request-rate")],
        capture_output=True, text=True)
    if done.returncode != 0:
        raise SystemExit(done.stderr or done.stdout)
    return read_rows(rows), json.loads(done.stdout)["step_cost"]


def replay_simulated(options, load, cost, folder):
    rows, cost_file = folder / "simulated.jsonl", folder / "cost.json"
    cost_file.write_text(json.dumps(cost))
    done = subprocess.run(
        [options.program, "bench", "simulate", "--step-cost", cost_file, "--declare-lengths",
         "--max-num-seqs", str(options.max_num_seqs), "--format", "json", "--rows", rows,
         "--max-num-batched-tokens", str(options.max_num_batched_tokens),
         "--kv-tokens", str(options.max_num_seqs * options.max_model_len),
         "--steps-in-flight", "2" if options.device.startswith("cuda") else "1",
         *trace_flags(options, load, "--requests", "--rate")],
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


def compare(options, load, cost, real_rows, folder):
    simulated_rows = replay_simulated(options, load, cost, folder)
    real, simulated = summary(real_rows), summary(simulated_rows)
    return {"bench": "simulator against reality", "trace": os.path.basename(options.trace),
            "device": options.device, "seed": load.seed, "rate": load.rate, "requests": len(real_rows), "fit_from": options.fit_from.lower(),
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


def replays(options, folder):
    """What each rate came to: its load, the real rows and the cost that its server fitted."""
    loads = [Load(options, index) for index in range(len(options.rate))]
    if options.fit_from == "FIRST":
        with serve(options) as server:
            for load in loads:
                yield load, *replay_real(options, server, load, folder)
        return
    for load in loads:
        with serve(options) as server:
            yield load, *replay_real(options, server, load, folder)


def main():
    options = parse_arguments()
    cost = None
    with tempfile.TemporaryDirectory() as name:
        folder = pathlib.Path(name)
        for load, rows, fitted in replays(options, folder):
            if cost is None or options.fit_from == "SAME":
                cost = fitted
            row = compare(options, load, cost, rows, folder)
            print(json.dumps(row)) if options.output == "json" else print_text(row)
            sys.stdout.flush()


if __name__ == "__main__":
    main()
