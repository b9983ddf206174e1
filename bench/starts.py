#!/usr/bin/env python3
"""From exec to the first byte of an answer, with the machine's free memory in two states.

    bench/starts.py [-m MODEL]... [-r ROUNDS] [-t THREADS] [--given-back ROUNDS] [--cold ROUNDS] [-- FLAG...]

A virtual machine may report its free memory to the host, which takes it away (free page reporting: seconds after it was
freed); touching it again costs milliseconds a MiB, which no program can see or avoid but by not touching. So every start is
measured twice: behind a process that touched and freed a GiB ("warm"), and after four seconds of nothing ("given back").
The file is in the page cache in both. --cold: as "warm", but the system has dropped its page cache just before (as root).
Models take turns. FLAGs behind -- go to `headrace run`. Appends a figure (bench/README.md) a model and state to
bench/results/cpu_load.jsonl.
"""
import argparse
import json
import mmap
import os
import pathlib
import subprocess
import sys
import time

ROOT = pathlib.Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT / "bench/peers"))
import compare  # noqa: E402

CACHE = pathlib.Path(os.environ.get("XDG_CACHE_HOME") or pathlib.Path.home() / ".cache")
MODELS = ["SmolLM2-135M-Instruct.Q4_1.gguf", "gemma-3-270m-q4_k_m.gguf", "qwen2.5-coder-0.5b-instruct-q4_k_m.gguf"]
TOUCH = f"""
import mmap
memory = mmap.mmap(-1, 1 << 30)
memory.madvise({getattr(mmap, "MADV_HUGEPAGE", 14)})
for at in range(0, 1 << 30, 4096): memory[at] = 1
"""


def start_command(arguments, model):
    return [arguments.headrace, "run", "-m", model, "-n", "1", "--raw", "-p", "The capital of France is",
            "--temperature", "0", "-t", str(arguments.threads), *arguments.flags]


def start(arguments, model):
    command = start_command(arguments, model)
    begin = time.perf_counter()
    process = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL)
    if not process.stdout.read(1):
        sys.exit(f"no answer from {' '.join(command)}")
    milliseconds = (time.perf_counter() - begin) * 1e3
    process.stdout.read()
    _, process.returncode, usage = os.wait4(process.pid, 0)
    return milliseconds, usage.ru_maxrss / 1024


def prepare(state):
    if state == "given back":
        time.sleep(4)
        return
    subprocess.run([sys.executable, "-c", TOUCH], check=True)
    if state == "cold":
        os.sync()
        pathlib.Path("/proc/sys/vm/drop_caches").write_text("3")


def figure(arguments, model, state, pairs, origin):
    times = [pair[0] for pair in pairs]
    flags = [f"{arguments.threads} threads", *([" ".join(arguments.flags)] if arguments.flags else [])]
    return {"bench": "start to first byte", **origin, "model": pathlib.Path(model).name, "lengths": "5 words in, 1 out",
            "flags": ", ".join(flags), "unit": "ms", "command": compare.text_of(start_command(arguments, model)),
            **compare.spread_of(times), "page_cache": "cold" if state == "cold" else "hot",
            "memory": "warm" if state == "cold" else state, "peak_mib": max(pair[1] for pair in pairs)}


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("-m", "--model", action="append")
    parser.add_argument("-r", "--rounds", type=int, default=9)
    parser.add_argument("-t", "--threads", type=int, default=2)
    parser.add_argument("--given-back", type=int, default=3, help="rounds with memory given back (0: none)")
    parser.add_argument("--cold", type=int, default=0, help="rounds with the page cache dropped, as root (0: none)")
    parser.add_argument("--headrace", default=str(ROOT / "build/headrace"))
    parser.add_argument("--output", default=str(ROOT / "bench/results/cpu_load.jsonl"))
    parser.add_argument("flags", nargs="*")
    arguments = parser.parse_args()
    models = arguments.model or [str(CACHE / "headrace/models" / name) for name in MODELS]
    origin = compare.origin()
    samples = {}
    for model in models:  # page cache; with --packed-cache, the file
        start(arguments, model)
    for state, rounds in (("warm", arguments.rounds), ("given back", arguments.given_back), ("cold", arguments.cold)):
        for _ in range(rounds):
            for model in models:
                prepare(state)
                samples.setdefault((model, state), []).append(start(arguments, model))
    with open(arguments.output, "a", encoding="utf-8") as output:
        for (model, state), pairs in samples.items():
            row = figure(arguments, model, state, pairs, origin)
            output.write(json.dumps(row) + "\n")
            size = pathlib.Path(model).stat().st_size / 2**20
            print(f"{row['model']:42} {state:10} {row['median']:7.1f} ms ({row['min']:.1f} to {row['max']:.1f})  "
                  f"peak {row['peak_mib']:.1f} MiB, {row['peak_mib'] / size:.2f} x file", flush=True)


if __name__ == "__main__":
    main()
