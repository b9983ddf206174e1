#!/usr/bin/env python3
"""Two models that take turns in a server with room for one: N switches, each answer compared with the model's first.

    bench/switches.py A.gguf B.gguf [-n SWITCHES] [--clients N] [--headrace PROGRAM] [-- FLAGS OF SERVE]

One client asks for A and B in turn, so that each request loads a model and unloads the other; with `--clients 4` as many ask at once,
each in turn. A switch has failed where its answer is no 200, or other words than the model's first answer (greedy, 8 tokens). Prints and
appends to bench/results/switches.jsonl how many failed, the seconds that a switch took (request to answer), and the server's memory
after the first tenth and at the end. Exit status 1: some failed.
"""
import argparse
import concurrent.futures
import datetime
import json
import os
import pathlib
import statistics
import subprocess
import sys
import time
import urllib.error
import urllib.request

from server import Server

ROOT = pathlib.Path(__file__).resolve().parents[1]


def ask(port, model):
    body = {"model": model, "prompt": "A long time ago,", "max_tokens": 8, "temperature": 0}
    request = urllib.request.Request(f"http://127.0.0.1:{port}/v1/completions", json.dumps(body).encode(), {"Content-Type": "application/json"})
    start = time.perf_counter()
    try:
        with urllib.request.urlopen(request, timeout=300) as response:
            said = json.loads(response.read())["choices"][0]["text"]
    except (urllib.error.URLError, OSError) as error:
        said = error
    return said, time.perf_counter() - start


def resident_mib(process):
    for line in pathlib.Path(f"/proc/{process.pid}/status").read_text().splitlines():
        if line.startswith("VmRSS:"):
            return int(line.split()[1]) / 1024
    return 0


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("models", nargs=2)
    parser.add_argument("-n", "--switches", type=int, default=1000)
    parser.add_argument("--clients", type=int, default=1)
    parser.add_argument("--headrace", default=str(ROOT / "build/headrace"))
    parser.add_argument("flags", nargs="*", help="flags of serve")
    options = parser.parse_args()
    names = ("first", "second")
    a, b = (f"{name}={path}" for name, path in zip(names, options.models, strict=True))
    failures, seconds, memory = [], [], []
    with Server(options.headrace, a, "-m", b, "--models-max", "1", *options.flags) as server:
        expected = {name: ask(server.port, name)[0] for name in names}
        if any(isinstance(said, Exception) for said in expected.values()):
            raise SystemExit(f"the first answers failed: {expected}")
        assert len(set(expected.values())) == 2, f"both models say {expected}: nothing tells them apart"
        with concurrent.futures.ThreadPoolExecutor(options.clients) as pool:
            for done, (said, took) in enumerate(pool.map(lambda i: ask(server.port, names[i % 2]), range(options.switches)), 1):
                seconds.append(took)
                if said != expected[names[(done - 1) % 2]]:
                    failures.append((done, str(said)))
                    print(f"switch {done}: {said!r}", flush=True)
                if done == max(1, options.switches // 10) or done == options.switches:
                    memory.append(resident_mib(server.process))
    commit = subprocess.run(["git", "rev-parse", "--short", "HEAD"], cwd=ROOT, capture_output=True, text=True).stdout.strip()
    row = {"bench": "switches", "commit": commit, "date": datetime.date.today().isoformat(), "machine": f"{os.cpu_count()} CPUs",
           "models": [pathlib.Path(model).name for model in options.models], "flags": " ".join(options.flags) or "default",
           "clients": options.clients, "switches": options.switches, "failures": len(failures), "seconds_p50": statistics.median(seconds),
           "seconds_p99": statistics.quantiles(seconds, n=100)[98] if len(seconds) > 1 else seconds[0], "seconds_max": max(seconds),
           "resident_mib": memory}
    row = {name: round(value, 4) if isinstance(value, float) else value for name, value in row.items()}
    print(json.dumps(row))
    with open(ROOT / "bench/results/switches.jsonl", "a") as file:
        file.write(json.dumps(row) + "\n")
    sys.exit(1 if failures else 0)


if __name__ == "__main__":
    main()
