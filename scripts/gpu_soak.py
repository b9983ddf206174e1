#!/usr/bin/env python3
"""The soak: starts of the server x shapes of models x flags x mixed requests at once, every answer held against the same request
alone. Standard library only. scripts/gpu_check --soak runs it; CONTRIBUTING.md says when.

  gpu_soak.py --headrace PROGRAM [--device cuda|cpu] [--minutes N] [--starts N] [--jobs J] [--seed S] [--out FILE.jsonl]
              [--shapes a,b] [--flags a,b] [--requests N] [--seconds S] [--expect-red]
  gpu_soak.py --headrace PROGRAM --long MINUTES [--periods N] [--beside] [--out FILE.jsonl]

A start is one server with dummy weights: mixed requests from many threads at once (greedy, sampled, n, penalties, biases,
log-probabilities, prompts scored, long and shared prompts, streams, forms, whose answers are checked, aborts), then each distinct request
alone. With
--batch-invariant the bits are equal; without, ln p differs by at most 0.1 (with states 0.25, with experts 0.5, with FP8 0.6) as long as tokens are the same, and at the first that
is not the two distributions still agree. The server must end with 0, log no error and keep to its memory plan.
Each start is a line of FILE; a run that finds lines there goes on behind them. Exit status: 0 green, 1 red
(with --expect-red, for builds with a planted fault: 0 red, 1 green)."""

import argparse
import collections
import json
import multiprocessing
import os
import pathlib
import queue
import random
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import time

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent))
import soak_check
import soak_models
import soak_requests
from soak_server import Server, ServerEnded, gpu_count

LANES = 32  # requests at once
MESSAGES_MAX = 6  # of a start, in its line


class Start:
    """One server: its requests, what was wrong with them."""

    def __init__(self, options, number, shape, flags):
        self.options, self.number, self.shape, self.flags = options, number, shape, flags
        self.random = random.Random(f"{options.seed} {number}")
        self.messages = []
        self.counts = collections.Counter()
        self.worst = 0.0
        self.lock = threading.Lock()

    def run(self):
        begin = time.monotonic()
        outcome, facts = "ok", {}
        folder = tempfile.mkdtemp(prefix="soak-", dir=self.options.scratch)
        server = None
        try:
            server = Server(self.options, self.shape, self.flags, folder)
            refusal = server.wait_ready()
            if refusal:
                return self.line("refused", begin, {"refusal": refusal})
            cases = soak_requests.make_cases(self.random, self.shape, self.flags)
            answers = queue.Queue()
            self.mix(server, cases, lambda *answer: answers.put(answer))
            alone = self.ask_alone(server, cases)
            for case, answer in answers.queue:
                self.check(case, answer, alone)
            facts = self.facts(server)
        except ServerEnded as error:
            self.note("crash", str(error))
        except Exception as error:  # the driver's own: a start that proves nothing is not green
            self.note("driver", f"{type(error).__name__}: {error}")
        finally:
            if server is not None:
                for kind, text in server.end():
                    self.note(kind, text)
            shutil.rmtree(folder, ignore_errors=True)
        if any(self.counts[kind] for kind in soak_check.RED):
            outcome = next(kind for kind in soak_check.RED if self.counts[kind])
        return self.line(outcome, begin, facts)

    def line(self, outcome, begin, facts):
        return {"start": self.number, "shape": self.shape.name, "flags": self.flags.name, "outcome": outcome,
                "seconds": round(time.monotonic() - begin, 1), "worst_dlnp": round(self.worst, 4),
                **{name: self.counts[name] for name in ("requests", "aborts", "tokens", "alone")},
                **facts, "messages": self.messages}  # fmt: skip

    def note(self, kind, text):
        with self.lock:
            self.counts[kind] += 1
            if len(self.messages) < MESSAGES_MAX:
                self.messages.append(f"{kind}: {text}"[:600])

    def mix(self, server, cases, take):
        """Cases in any order, LANES at once, until there are enough and the time is up: take(case, answer) of each."""
        deadline = time.monotonic() + self.options.seconds
        weights = soak_requests.weights(cases, self.flags)
        seeds = [self.random.random() for _ in range(LANES)]

        def lane(seed):
            own = random.Random(seed)
            while time.monotonic() < deadline or self.counts["requests"] < self.options.requests:
                if server.ended() or self.counts["driver"] > 0:
                    return
                case = own.choices(cases, weights)[0]
                abort = own.random() < soak_requests.ABORTED
                try:
                    answer = soak_requests.send(server.port, case, own, self.flags, abort)
                except Exception as error:
                    if server.ended():
                        return
                    answer = error
                with self.lock:
                    self.counts["requests"] += 1
                    self.counts["aborts"] += abort
                if not abort or isinstance(answer, Exception):
                    take(case, answer)

        threads = [threading.Thread(target=lane, args=(seed,), daemon=True) for seed in seeds]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(max(1.0, deadline + self.options.patience - time.monotonic()))
        server.check_alive()
        if any(thread.is_alive() for thread in threads):
            self.note("hang", f"requests were not answered in {self.options.patience} s")

    def ask_alone(self, server, cases):
        alone = {}
        for case in cases:
            try:
                alone[case.name] = soak_requests.send(server.port, case, self.random, self.flags)
            except Exception as error:
                time.sleep(0.5)  # a dead server's end is seen
                server.check_alive()
                self.note("answer", f"{case.name} alone: {type(error).__name__}: {error}")
                break
            self.counts["alone"] += 1
        return alone

    def check(self, case, answer, alone):
        if isinstance(answer, Exception):
            return self.note("answer", f"{case.name}: {type(answer).__name__}: {answer}")
        if case.name not in alone:
            return None
        near = soak_check.NEAR_OF_STATES if self.shape.keeps_states() else soak_check.NEAR
        eights = self.flags.keeps_small() + self.flags.multiplies_fp8()
        if eights > 0:
            near = soak_check.NEAR_OF_FP8 * eights * (2 if self.shape.keeps_states() else 1)
        if self.shape.has_experts():
            near = soak_check.NEAR_OF_EXPERTS
        check = soak_check.compare(answer, alone[case.name], self.flags.exact, near)
        with self.lock:
            self.counts["tokens"] += check.tokens
            self.worst = max(self.worst, check.worst)
        if check.problem:
            self.note("wrong", f"{case.name}: {check.problem}")
        if (text := case.invalid(answer)) is not None:
            self.note("wrong", f"{case.name}: not of its form: {text!r}")
        return None

    def facts(self, server):
        facts = server.facts()
        for kind, text in server.leaks():
            self.note(kind, text)
        if self.flags.pressure:
            missing = [name for name in self.flags.pressure if facts[name] == 0]
            if missing:
                self.note("pressure", f"nothing of {', '.join(missing)}: {facts}")
        return facts


def work(options, numbers, lines):
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    plan = soak_models.plan(options.seed, options.shapes, options.flags, options.device, gpu_count())
    while True:
        try:
            number = numbers.get_nowait()
        except queue.Empty:
            return lines.put(None)
        if time.time() > options.deadline:
            return lines.put(None)
        lines.put(Start(options, number, *plan(number)).run())


def read_lines(path):
    if not os.path.exists(path):
        return []
    lines = []
    for text in open(path):
        try:
            lines.append(json.loads(text))
        except ValueError:
            pass  # cut off with the run that wrote it
    return [line for line in lines if "start" in line]


def summary(lines):
    outcomes = collections.Counter(line["outcome"] for line in lines)
    starts = [line for line in lines if line["outcome"] != "refused"]
    total = lambda name: sum(line.get(name, 0) for line in starts)
    red = [line for line in starts if line["outcome"] != "ok"]
    return {"summary": "red" if red or not starts else "green", "starts": len(starts), "refused": outcomes["refused"],
            **{kind: outcomes[kind] for kind in soak_check.RED if outcomes[kind]},
            "shapes": len({line["shape"] for line in starts}), "flags": len({line["flags"] for line in starts}),
            "requests": total("requests"), "aborts": total("aborts"), "tokens_checked": total("tokens"),
            "preemptions": total("preemptions"), "pages_stored": total("pages_stored"),
            "pages_loaded": total("pages_loaded"), "gpu_memory_seen": sum("gpu_mib" in line for line in starts), "least_requests": min((l["requests"] for l in starts), default=0),
            "worst_dlnp": max((line["worst_dlnp"] for line in starts), default=0),
            "red": [f"{l['start']} {l['shape']} {l['flags']}: {l['outcome']}" for l in red][:40]}  # fmt: skip


def soak(options):
    done = {line["start"] for line in read_lines(options.out)}
    first = max(done, default=-1) + 1
    numbers, lines = multiprocessing.Queue(), multiprocessing.Queue()
    for number in range(first, first + options.starts):
        numbers.put(number)
    time.sleep(0.2)  # a queue's feeder
    options.deadline = time.time() + 60 * options.minutes
    workers = [multiprocessing.Process(target=work, args=(options, numbers, lines)) for _ in range(options.jobs)]
    for worker in workers:
        worker.start()
    left = len(workers)
    with open(options.out, "a") as out:
        while left > 0:
            try:
                line = lines.get(timeout=5)
            except queue.Empty:
                if not any(worker.is_alive() for worker in workers):
                    break
                continue
            left -= line is None
            if line is None:
                continue
            out.write(json.dumps(line) + "\n")
            out.flush()
            text = f"{line['start']:4} {line['shape']:14} {line['flags']:16} {line['outcome']:8} {line['seconds']:6} s"
            print(text, *line["messages"][:1], flush=True)
        if left > 0:  # a worker that ended took its start with it
            broken = {"start": -1, "shape": "", "flags": "", "outcome": "driver", "messages": [f"{left} workers ended too early"]}
            out.write(json.dumps({**broken, "requests": 0, "worst_dlnp": 0}) + "\n")
    for worker in workers:
        worker.join(5)
    # What was put back is nobody's.
    numbers.cancel_join_thread()
    return summary(read_lines(options.out))


def long_run(options):
    """One server under mixed load and aborts: answers as above, and memory that does not grow."""
    periods = []
    for period in range(options.periods):
        plan = soak_models.plan(options.seed, options.shapes, options.flags, options.device, gpu_count())
        start = Start(options, period, *plan(period))
        samples = []
        stop = threading.Event()
        folder = tempfile.mkdtemp(prefix="soak-", dir=options.scratch)
        server = Server(options, start.shape, start.flags, folder)
        facts = {}
        try:
            refusal = server.wait_ready()
            if refusal:
                start.note("driver", f"refused: {refusal}")
            else:
                options.seconds, options.requests = 60 * options.long, 0
                mappings = []
                sampler = threading.Thread(
                    target=lambda: sample_memory(server, samples, mappings, stop, options.long), daemon=True
                )
                sampler.start()
                cases = soak_requests.make_cases(start.random, start.shape, start.flags)
                alone = start.ask_alone(server, cases)  # first, so that answers need not be kept
                start.mix(server, cases, lambda case, answer: start.check(case, answer, alone))
                stop.set()
                sampler.join()
                facts = start.facts(server)
                for text in soak_check.growth(samples):
                    start.note("memory", text)
                    start.note("memory", f"grew: {soak_check.grown(mappings[2 * len(mappings) // 3], mappings[-1])}")
                if options.device == "cuda" and all(sample["gpu_mib"] is None for sample in samples):
                    start.note("memory", "of the GPU cannot be seen")
        except ServerEnded as error:
            start.note("crash", str(error))
        finally:
            stop.set()
            for kind, text in server.end():
                start.note(kind, text)
            shutil.rmtree(folder, ignore_errors=True)
        red = [kind for kind in soak_check.RED if start.counts[kind]]
        line = start.line(red[0] if red else "ok", time.monotonic(), facts)
        line["seconds"], line["memory"] = round(60 * options.long), soak_check.thirds(samples)
        line["rss_series"] = [round(sample["rss_mib"]) for sample in samples if sample["rss_mib"] is not None]
        periods.append(line)
        with open(options.out, "a") as out:
            out.write(json.dumps(line) + "\n")
        print(json.dumps(line), flush=True)
    return summary(periods)


def sample_memory(server, samples, mappings, stop, minutes):
    while not stop.wait(max(0.2, min(5.0, 60 * minutes / 100))):
        samples.append({"seconds": time.monotonic(), **server.memory()})
        mappings.append(server.mappings())


def parse():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--headrace", required=True)
    parser.add_argument("--device", default="cuda")
    parser.add_argument("--minutes", type=float, default=9, help="no start begins after them")
    parser.add_argument("--starts", type=int, default=100000)
    parser.add_argument("--jobs", type=int, default=8, help="servers at once")
    parser.add_argument("--seed", default="1")
    parser.add_argument("--out", default="soak.jsonl")
    parser.add_argument("--shapes", default="", help="comma list; all, where empty")
    parser.add_argument("--flags", default="", help="comma list of flag sets; all, where empty")
    parser.add_argument("--requests", type=int, default=200, help="of a start, at least")
    parser.add_argument("--seconds", type=float, default=5, help="of mixed load in a start, at least")
    parser.add_argument("--patience", type=float, default=120, help="seconds for what is unanswered then")
    parser.add_argument("--threads", type=int, default=4, help="CPU threads of a server")
    parser.add_argument("--scratch", default=None)
    parser.add_argument("--long", type=float, default=0, help="minutes of one server under load, in place of starts")
    parser.add_argument("--periods", type=int, default=1)
    parser.add_argument("--beside", action="store_true", help="with --long: others use the GPU too")
    parser.add_argument("--expect-red", action="store_true")
    options = parser.parse_args()
    options.shapes = [name for name in options.shapes.split(",") if name]
    options.flags = [name for name in options.flags.split(",") if name]
    if options.scratch:
        os.makedirs(options.scratch, exist_ok=True)
    return options


def main():
    options = parse()
    result = long_run(options) if options.long > 0 else soak(options)
    print(json.dumps(result))
    red = result["summary"] == "red"
    return 0 if red == options.expect_red else 1


if __name__ == "__main__":
    sys.exit(main())
