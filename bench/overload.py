#!/usr/bin/env python3
"""What a server gives away under ten times the load that it can take.

    bench/overload.py [-m MODEL] [--seconds S] [--times N] [--idle S] [-- SERVER FLAG...]

Starts `headrace serve` and drives it with `headrace bench serve`: a closed loop that keeps it full, without refusals; an open
loop at N times the rate that this came to, for S seconds; the closed loop again. Prints goodput, refusals and other errors,
and appends a JSON line a phase to bench/results/overload.jsonl with the processor time of server and client beside it: on one
machine they share the processors, and what the client takes is no fault of the server.
"""
import argparse
import datetime
import json
import os
import pathlib
import subprocess
import sys
import time

from server import Server

ROOT = pathlib.Path(__file__).resolve().parents[1]
CACHE = pathlib.Path(os.environ.get("XDG_CACHE_HOME") or pathlib.Path.home() / ".cache")
MODEL = CACHE / "headrace/models/SmolLM2-135M-Instruct.Q4_1.gguf"


def processor_seconds(pid):
    fields = pathlib.Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


# Each phase has prompts of its own (a seed): else the closed loop behind would find those of the one before in the prefix cache.
def drive(arguments, server, work, requests, seed, *flags):
    command = [arguments.headrace, "bench", "serve", "--port", server.port, "-o", "json", "--num-prompts", str(requests),
               "--random-input-len", "32", "--random-output-len", "32", "--seed", str(seed), *flags]
    before, client_before, start = processor_seconds(server.process.pid), os.times(), time.monotonic()
    done = subprocess.run(command, capture_output=True, text=True)
    if done.returncode != 0:
        sys.exit(done.stderr)
    seconds = time.monotonic() - start
    client = os.times()
    client_seconds = client.children_user + client.children_system - client_before.children_user - client_before.children_system
    row = json.loads(done.stdout.splitlines()[-1])
    kept = ("request_rate", "completed", "failed", "refused", "duration", "request_throughput", "output_throughput",
            "median_ttft_ms", "p99_ttft_ms", "median_refusal_ms", "p99_refusal_ms", "max_refusal_ms", "median_retry_after_s")
    return {"date": datetime.date.today().isoformat(), "machine": arguments.machine, "model": pathlib.Path(arguments.model).stem,
            "flags": arguments.flags, "idle": arguments.idle, "work": work, "input": 32, "output": 32,
            **{name: round(row[name], 3) for name in kept if name in row},
            "server_processors": round((processor_seconds(server.process.pid) - before) / seconds, 3),
            "client_processors": round(client_seconds / seconds, 3)}


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("-m", "--model", default=str(MODEL))
    parser.add_argument("--seconds", type=float, default=60)
    parser.add_argument("--times", type=float, default=10)
    parser.add_argument("--closed", type=int, default=640, help="requests of the closed loops")
    parser.add_argument("--idle", type=float, default=0, help="seconds without work before the first loop, as a server mostly has them")
    parser.add_argument("--machine", default=f"{os.cpu_count()} CPUs")
    parser.add_argument("--headrace", default=str(ROOT / "build/headrace"))
    parser.add_argument("--output", default=str(ROOT / "bench/results/overload.jsonl"))
    parser.add_argument("flags", nargs="*")
    arguments = parser.parse_args()
    server = Server(arguments.headrace, arguments.model, *arguments.flags)
    time.sleep(arguments.idle)
    closed = ("--max-concurrency", "64")
    rows = [drive(arguments, server, "closed loop, 64 under way, before", arguments.closed, 1, *closed)]
    rate = arguments.times * rows[0]["request_throughput"]
    rows.append(drive(arguments, server, f"open loop at {arguments.times:g} x its rate for {arguments.seconds:g} s",
                      int(rate * arguments.seconds), 2, "--request-rate", f"{rate:.3f}"))
    rows.append(drive(arguments, server, "closed loop, 64 under way, after", arguments.closed, 3, *closed))
    server.stop()
    peak = max(rows[0]["output_throughput"], rows[2]["output_throughput"])
    with open(arguments.output, "a") as file:
        for row in rows:
            row["of_peak"] = round(row["output_throughput"] / peak, 4)
            file.write(json.dumps(row) + "\n")
            print(f"{row['work']:<36} {row['output_throughput']:8.1f} tok/s ({row['of_peak']:.3f} of the peak), {row['refused']} refused "
                  f"(p99 {row.get('p99_refusal_ms', 0):.2f} ms), {row['failed']} failed; processors: server "
                  f"{row['server_processors']:.2f}, client {row['client_processors']:.2f}")


if __name__ == "__main__":
    main()
