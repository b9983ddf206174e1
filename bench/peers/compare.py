#!/usr/bin/env python3
"""Headrace and llama.cpp (or ik_llama.cpp) on the same model file, in one run, taking turns.

    bench/peers/compare.py [-r ROUNDS] [-t THREADS] [-m MODEL] [--only decode,prefill,...]
                           [--peer ik_llama.cpp]

Every round runs each program once per measure, so that whatever else the machine does hits both.
Prints a table of medians with spread and appends one figure (bench/README.md) per measure to
bench/results/llama_cpp.jsonl. Speeds are tokens a second; a ratio above 1 is in Headrace's favour.
Where llama.cpp has a choice (flash attention on or off), its better median counts.
"""

import argparse
import dataclasses
import datetime
import json
import os
import pathlib
import shlex
import statistics
import subprocess
import sys
import tempfile
import time

ROOT = pathlib.Path(__file__).resolve().parents[2]
DEFAULT_MODEL = "SmolLM2-135M-Instruct.Q4_1.gguf"
STREAMS = 8
FIRST_TOKEN_PROMPT = "The capital of France is"
# About 500 ids with SmolLM2's tokenizer.
MEMORY_PROMPT = "The quick brown fox jumps over the lazy dog while it rains in the old town. " * 29


@dataclasses.dataclass
class Run:
    """What one process did."""

    command: str
    stdout: bytes
    first_byte_s: float  # from its start to its first byte on stdout
    rss_max_bytes: int


@dataclasses.dataclass
class Measured:
    value: float
    command: str


def text_of(command: list[str]) -> str:
    """The command without the folders of this machine, long prompts cut."""
    words = [pathlib.Path(word).name if word.startswith("/") else word for word in command]
    return shlex.join(word if len(word) <= 60 else word[:40] + "..." for word in words)


def run(command: list[str]) -> Run:
    with tempfile.TemporaryFile() as errors:
        start = time.perf_counter()
        process = subprocess.Popen(
            command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=errors
        )
        first = process.stdout.read(1)
        first_byte_s = time.perf_counter() - start
        rest = process.stdout.read()
        _, status, usage = os.wait4(process.pid, 0)
        process.returncode = os.waitstatus_to_exitcode(status)
        if process.returncode != 0:
            errors.seek(0)
            tail = errors.read()[-2000:].decode(errors="replace")
            sys.exit(f"{' '.join(command)}\nexit code {process.returncode}\n{tail}")
    return Run(text_of(command), first + rest, first_byte_s, usage.ru_maxrss * 1024)


def json_values(text: bytes) -> list[dict]:
    """The objects in a JSON array, or in JSON lines with other lines between."""
    decoded = text.decode()
    if decoded.lstrip().startswith("["):
        return json.loads(decoded)
    return [json.loads(line) for line in decoded.splitlines() if line.startswith("{")]


@dataclasses.dataclass
class Setting:
    model: str
    threads: int
    headrace: str
    peer: pathlib.Path  # folder of llama.cpp's programs


# ---- The measures: each gives {variant: Measured} for one program, one round ----


def bench_speed(program: list[str], test: list[str]) -> Measured:
    done = run(program + test + ["-r", "1", "-o", "json"])
    (row,) = json_values(done.stdout)
    return Measured(row["avg_ts"], done.command)


def bench_commands(setting: Setting, test: list[str]):
    common = ["-m", setting.model, "-t", str(setting.threads)]
    ours = [setting.headrace, "bench", *common]
    theirs = [str(setting.peer / "llama-bench"), *common]
    return (
        lambda: {"headrace": bench_speed(ours, test)},
        lambda: {f"fa {fa}": bench_speed(theirs + ["-fa", fa], test) for fa in ("0", "1")},
    )


def read_ceiling(setting: Setting) -> float:
    """What `headrace bench ceilings` reads of 1 GiB, in GB/s."""
    command = [setting.headrace, "bench", "ceilings", "-t", str(setting.threads)]
    text = run(command + ["--sizes", "1024M", "-r", "3"]).stdout.decode()
    (line,) = [line for line in text.splitlines() if line.startswith("read ")]
    return float(line.split()[-2])


def decode(setting: Setting):
    return bench_commands(setting, ["-p", "0", "-n", "128"])


def prefill(setting: Setting):
    return bench_commands(setting, ["-p", "512", "-n", "0"])


def long_prefill(setting: Setting):
    return bench_commands(setting, ["-p", "4096", "-n", "0"])


def our_streams(setting: Setting, streams: int) -> Measured:
    # 128 tokens of prompt and 128 of answer for each stream, as theirs below.
    command = [setting.headrace, "bench", "-m", setting.model, "-t", str(setting.threads)]
    command += ["-p", "0", "-n", "0", "--streams", str(streams), "-r", "1", "-o", "json"]
    done = run(command)
    (row,) = json_values(done.stdout)
    return Measured(row["avg_ts"], done.command)


def their_streams(setting: Setting, streams: int, flash_attention: str) -> Measured:
    command = [str(setting.peer / "llama-batched-bench"), "-m", setting.model, "-c", "4096"]
    command += ["-t", str(setting.threads), "-tb", str(setting.threads), "-fa", flash_attention]
    command += ["-npp", "128", "-ntg", "128", "-npl", str(streams), "--output-format", "jsonl"]
    done = run(command)
    (row,) = [row for row in json_values(done.stdout) if row.get("pl") == streams]
    return Measured(row["speed_tg"], done.command)


def streams_of(count: int):
    def measure(setting: Setting):
        return (
            lambda: {"headrace": our_streams(setting, count)},
            lambda: {f"fa {fa}": their_streams(setting, count, fa) for fa in ("off", "on")},
        )

    return measure


def completion(setting: Setting, context: int, tokens: int, prompt: str) -> list[str]:
    command = [str(setting.peer / "llama-completion"), "-m", setting.model, "-c", str(context)]
    command += ["-n", str(tokens), "-p", prompt, "-no-cnv", "--no-display-prompt", "--temp", "0"]
    return command + ["--no-warmup", "-t", str(setting.threads)]


def our_answer(setting: Setting, tokens: int, prompt: str) -> list[str]:
    command = [setting.headrace, "run", "-m", setting.model, "-n", str(tokens), "--raw"]
    return command + ["-p", prompt, "--temperature", "0", "-t", str(setting.threads)]


def first_byte_ms(command: list[str]) -> Measured:
    done = run(command)
    return Measured(done.first_byte_s * 1e3, done.command)


def peak_mib(command: list[str]) -> Measured:
    done = run(command)
    return Measured(done.rss_max_bytes / 2**20, done.command)


def first_token(setting: Setting):
    ours = our_answer(setting, 1, FIRST_TOKEN_PROMPT)
    theirs = completion(setting, 512, 1, FIRST_TOKEN_PROMPT)
    return (
        lambda: {"headrace": first_byte_ms(ours)},
        lambda: {"llama-completion": first_byte_ms(theirs)},
    )


def memory(setting: Setting):
    ours = our_answer(setting, 128, MEMORY_PROMPT) + ["--max-model-len", "2048"]
    theirs = completion(setting, 2048, 128, MEMORY_PROMPT)
    return (
        lambda: {"headrace": peak_mib(ours)},
        lambda: {"llama-completion": peak_mib(theirs)},
    )


@dataclasses.dataclass
class Measure:
    title: str
    bench: str  # with lengths and flags (beside the threads), as the figure says it
    lengths: str
    flags: str
    unit: str
    larger_is_better: bool
    programs: object  # Setting -> (ours, theirs), each () -> {variant: Measured}
    reads: bool = False  # bound by reading memory: its ceiling is measured in each round


# ik_llama.cpp is a fork of an older llama.cpp: its completion program has other flags.
# A peer: how it is called in figures, what stands for its commit (the package that its source is from), its measures.
PEERS = {
    "llama.cpp": ("llama.cpp 0.5.0-dev", "llama-cpp-python 0.3.36", None),
    "ik_llama.cpp": ("ik_llama.cpp", "ik-llama-cpp-python 0.1.5", ("decode", "prefill")),
}

MEASURES = {
    "decode": Measure("decode, 1 stream, tg128", "decode", "0 in, 128 out", "", "tok/s", True, decode, reads=True),
    "prefill": Measure("prefill, pp512", "prefill", "512 in, 0 out", "", "tok/s", True, prefill),
    "prefill4096": Measure("prefill, pp4096", "prefill", "4,096 in, 0 out", "", "tok/s", True, long_prefill),
    "streams1": Measure(
        "decode at 128, 1 stream", "decode of streams", "1 × 128 in, 128 out", "", "tok/s", True, streams_of(1)),
    f"streams{STREAMS}": Measure(
        f"decode at 128, {STREAMS} streams, in all", "decode of streams", f"{STREAMS} × 128 in, 128 out", "",
        "tok/s", True, streams_of(STREAMS)),
    "first-token": Measure(
        "process start to first byte", "start to first byte", "5 words in, 1 out", "", "ms", False, first_token),
    "memory": Measure(
        "peak RSS", "peak memory", "about 500 in, 128 out", ", context 2,048", "MiB", False, memory),
}


# ---- Running, judging, writing ----


def spread_of(values: list[float]) -> dict:
    spread = {"n": len(values), "median": statistics.median(values), "min": min(values), "max": max(values)}
    return {**spread, "samples": values}


def side_of(samples: list[Measured]) -> dict:
    return {"command": samples[0].command, **spread_of([sample.value for sample in samples])}


def best_variant(variants: dict, larger_is_better: bool) -> tuple[str, dict]:
    sides = {variant: side_of(samples) for variant, samples in variants.items()}
    choose = max if larger_is_better else min
    return choose(sides.items(), key=lambda item: item[1]["median"])


def take_turns(measure: Measure, setting: Setting, rounds: int) -> tuple[dict, dict]:
    """What is measured of our side and of the peer's, for a figure."""
    ours, theirs = measure.programs(setting)
    samples = ({}, {})
    reads = []
    for program in (ours, theirs):  # warms the page cache; not counted
        program()
    for turn in range(rounds):
        if measure.reads:
            reads.append(read_ceiling(setting))
        order = ((0, ours), (1, theirs)) if turn % 2 == 0 else ((1, theirs), (0, ours))
        for side, program in order:
            for variant, measured in program().items():
                samples[side].setdefault(variant, []).append(measured)
    _, mine = best_variant(samples[0], measure.larger_is_better)
    variant, peer = best_variant(samples[1], measure.larger_is_better)
    ceiling = {"read_gb_per_s": spread_of(reads)} if reads else {}
    return {**mine, **ceiling}, {"variant": variant, **peer}


def git(*arguments: str) -> str:
    """What git prints; nothing where there is no git or no checkout."""
    try:
        result = subprocess.run(["git", *arguments], cwd=ROOT, capture_output=True, text=True)
    except FileNotFoundError:
        return ""
    return result.stdout.strip()


def machine() -> dict:
    fields = {}
    for line in pathlib.Path("/proc/cpuinfo").read_text().splitlines():
        key, _, value = line.partition(":")
        fields.setdefault(key.strip(), value.strip())
    wanted = ("avx2", "avx512", "avx_vnni", "amx")
    flags = sorted(flag for flag in fields["flags"].split() if flag.startswith(wanted))
    cpu = f"{fields['model name']} (family {fields['cpu family']}, model {fields['model']})"
    return {"cpu": cpu, "cpus": os.cpu_count(), "flags": flags}


def parse_arguments() -> argparse.Namespace:
    cache = pathlib.Path(os.environ.get("XDG_CACHE_HOME") or pathlib.Path.home() / ".cache")
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("-m", "--model", default=str(cache / "headrace/models" / DEFAULT_MODEL))
    parser.add_argument("-r", "--rounds", type=int, default=5)
    parser.add_argument("-t", "--threads", type=int, default=2)
    parser.add_argument("--headrace", default=str(ROOT / "build/headrace"))
    parser.add_argument("--peer", choices=PEERS, default="llama.cpp")
    parser.add_argument("--only", help=",".join(MEASURES))
    parser.add_argument("--output", default=str(ROOT / "bench/results/llama_cpp.jsonl"))
    return parser.parse_args()


def origin() -> dict:
    """Of which program, where and when."""
    return {
        "commit": git("rev-parse", "--short", "HEAD"),
        "changed": bool(git("status", "--porcelain", "--untracked-files=no")),
        "machine": machine(),
        "date": datetime.datetime.now(datetime.timezone.utc).isoformat(timespec="seconds"),
    }


def figure(measure: Measure, setting: Setting, sides: tuple[dict, dict], peer: tuple[str, str], ours: dict) -> dict:
    """A row as bench/README.md says; `peer`: its name and version, `ours`: our origin()."""
    work = {
        "model": pathlib.Path(setting.model).name,
        "lengths": measure.lengths,
        "flags": f"{setting.threads} threads{measure.flags}",
        "unit": measure.unit,
    }
    where = {"machine": ours["machine"], "date": ours["date"]}
    theirs = {"program": peer[0], "commit": peer[1], **where, **work, **sides[1]}
    return {"bench": measure.bench, **ours, **work, **sides[0], "one_run": True, "peer": theirs}


def main() -> None:
    arguments = parse_arguments()
    peer_name, peer_commit, peer_measures = PEERS[arguments.peer]
    only = arguments.only.split(",") if arguments.only else peer_measures or MEASURES
    folder = subprocess.run(
        [ROOT / "bench/peers/llama_cpp.sh", arguments.peer], check=True, stdout=subprocess.PIPE, text=True
    ).stdout.strip()
    setting = Setting(arguments.model, arguments.threads, arguments.headrace, pathlib.Path(folder))
    ours = origin()
    print(f"{ours['machine']['cpu']}, {setting.threads} threads, {pathlib.Path(setting.model).name}, "
          f"{arguments.rounds} rounds, commit {ours['commit']}\n")
    print(f"| measure | unit | headrace | {arguments.peer} | ratio |")
    print("|---|---|---:|---:|---:|", flush=True)
    medians = {}
    with open(arguments.output, "a", encoding="utf-8") as output:
        for name in only:
            measure = MEASURES[name]
            mine, peer = sides = take_turns(measure, setting, arguments.rounds)
            medians[name] = mine["median"]
            record = figure(measure, setting, sides, (peer_name, peer_commit), ours)
            output.write(json.dumps(record, ensure_ascii=False) + "\n")
            cells = ["{median:.1f} ({min:.1f}–{max:.1f})".format(**side) for side in sides]
            ratio = mine["median"] / peer["median"]
            print(f"| {measure.title} | {measure.unit} | {cells[0]} | {cells[1]} ({peer['variant']}) | "
                  f"{ratio if measure.larger_is_better else 1 / ratio:.2f} |", flush=True)
    if "streams1" in medians and "streams8" in medians:
        gain = medians["streams8"] / medians["streams1"]
        print(f"\nheadrace, {STREAMS} streams against one: {gain:.2f} x")


if __name__ == "__main__":
    main()
