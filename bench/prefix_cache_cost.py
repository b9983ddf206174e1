#!/usr/bin/env python3
"""What the prefix cache costs where nothing is found.

    bench/prefix_cache_cost.py [-m MODEL] [--rounds N] [-- SERVER FLAG...]

Starts two servers whose pool was taken at start (--kv-populate start: else the memory that a cache keeps and an engine without one
uses again is what is measured), one with the prefix cache and one without, and drives them in turn with `headrace bench serve`:
64 streams of prompts that are never the same. Prints, of each, the engine's own time for planning and applying steps
(headrace:host_seconds_total) as a share of the wall time, and output tokens a second; the cost is the difference. Appends a JSON
line to bench/results/prefix_cache.jsonl.
"""
import argparse
import datetime
import json
import os
import pathlib
import re
import statistics
import subprocess
import time
import urllib.request

from overload import MODEL, ROOT
from server import Server

PHASES = ("plan", "apply")


# Of the engine's thread.
def host_seconds(server):
    with urllib.request.urlopen(f"http://127.0.0.1:{server.port}/metrics", timeout=10) as answer:
        found = re.findall(r'^headrace:host_seconds_total\{.*?phase="(\w+)".*?\} (\S+)', answer.read().decode(), re.M)
    return sum(float(seconds) for phase, seconds in found if phase in PHASES)


def drive(arguments, server, seed):
    before, start = host_seconds(server), time.monotonic()
    done = subprocess.run([arguments.headrace, "bench", "serve", "--port", server.port, "-o", "json", "--num-prompts", str(arguments.requests),
                           "--max-concurrency", "64", "--random-input-len", "64", "--random-output-len", "32", "--seed", str(seed)],
                          capture_output=True, text=True, check=True)
    seconds = time.monotonic() - start
    return (host_seconds(server) - before) / seconds, json.loads(done.stdout.splitlines()[-1])["output_throughput"]


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("-m", "--model", default=str(MODEL))
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--requests", type=int, default=192, help="of a round, to each server")
    parser.add_argument("--machine", default=f"{os.cpu_count()} CPUs")
    parser.add_argument("--headrace", default=str(ROOT / "build/headrace"))
    parser.add_argument("--output", default=str(ROOT / "bench/results/prefix_cache.jsonl"))
    parser.add_argument("flags", nargs="*")
    arguments = parser.parse_args()
    servers = {name: Server(arguments.headrace, arguments.model, "--kv-populate", "start", flag, *arguments.flags)
               for name, flag in (("on", "--enable-prefix-caching"), ("off", "--no-enable-prefix-caching"))}
    shares, rates = {"on": [], "off": []}, {"on": [], "off": []}
    for turn in range(arguments.rounds):
        for name in ("on", "off") if turn % 2 == 0 else ("off", "on"):
            share, rate = drive(arguments, servers[name], 2 * turn + (name == "on"))
            shares[name].append(share)
            rates[name].append(rate)
    for server in servers.values():
        server.stop()
    row = {"date": datetime.date.today().isoformat(), "machine": arguments.machine, "model": pathlib.Path(arguments.model).stem, "rounds": arguments.rounds,
           **{f"host_share_{name}": round(statistics.median(values), 6) for name, values in shares.items()},
           **{f"output_tokens_per_s_{name}": round(statistics.median(values), 1) for name, values in rates.items()}}
    row["cost"] = round(row["host_share_on"] - row["host_share_off"], 6)
    with open(arguments.output, "a") as file:
        file.write(json.dumps(row) + "\n")
    print(f"plan and apply: {100 * row['host_share_on']:.3f} % of the time with the cache, {100 * row['host_share_off']:.3f} % without: "
          f"it costs {100 * row['cost']:.3f} %; {row['output_tokens_per_s_on']:.0f} and {row['output_tokens_per_s_off']:.0f} tok/s")


if __name__ == "__main__":
    main()
