#!/usr/bin/env python3
"""Faults of workers behind `headrace route`, for as long as asked: scripts/soak_route.py [--faults 100] [--workers 3] [--clients 6]

Workers are killed, stopped for a while, and shut down, one or two at a time, under clients of every protocol (the streams of
tests/server/test_resume.py) and of answers in one piece. Prints one line of JSON: requests, how many failed or were not the text that
they are without a fault, and how long clients waited for the byte behind a fault (the router's headrace_route_recovery_seconds).
"""
import argparse
import json
import pathlib
import random
import re
import signal
import sys
import threading
import time

ROOT = pathlib.Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT / "tests/server"))

from conftest import BINARY  # noqa: E402
from test_route import Process, call, workers_of  # noqa: E402
import test_route_failover as streams  # noqa: E402


def recovery(router):
    """[(bound, count up to it)]"""
    page = call(router.url + "/metrics")[2]
    found = re.findall(r'^headrace_route_recovery_seconds_bucket\{le="(\S+)"\} (\d+)$', page, re.M)
    return [(float(bound.replace("+Inf", "inf")), int(count)) for bound, count in found]


def percentile(buckets, share):
    total = buckets[-1][1]
    return next((bound for bound, count in buckets if count >= share * total), None) if total else None


class Clients:
    def __init__(self, router, names, wanted, count):
        self.router, self.names, self.wanted = router, names, wanted
        self.requests, self.failed, self.different = 0, [], []
        self.over = threading.Event()
        self.threads = [threading.Thread(target=self.run, args=(i,)) for i in range(count)]
        for thread in self.threads:
            thread.start()

    def run(self, seed):
        rng = random.Random(seed)
        while not self.over.is_set():
            name = rng.choice(self.names)
            self.requests += 1
            try:
                told = streams.told(name, streams.ask(self.router.url, name))
            except Exception as error:  # whatever it is, the client had no answer
                self.failed.append(f"{name}: {error!r}")
                continue
            if told != self.wanted[name]:
                self.different.append(name)

    def end(self):
        self.over.set()
        for thread in self.threads:
            thread.join()


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--faults", type=int, default=100)
    parser.add_argument("--workers", type=int, default=3)
    parser.add_argument("--clients", type=int, default=6)
    parser.add_argument("--progress-bound", type=float, default=2)
    parser.add_argument("--seed", type=int, default=1)
    options = parser.parse_args()
    rng = random.Random(options.seed)

    def start_worker(port=0):
        return Process(BINARY, "serve", *[port if i and streams.FLAGS[i - 1] == "--port" else flag for i, flag in enumerate(streams.FLAGS)])

    workers = [start_worker() for _ in range(options.workers)]
    router = Process(BINARY, "route", "--port", 0, "--poll-interval", 0.2, "--progress-bound", options.progress_bound, "--log-level", "error",
                     *[flag for worker in workers for flag in ("--worker", worker.url)])

    def all_up():
        return all(each["state"] == "up" for each in workers_of(router))

    def wait_up(seconds=120):
        deadline = time.monotonic() + seconds
        while not all_up():
            assert time.monotonic() < deadline, workers_of(router)
            time.sleep(0.05)

    wait_up()
    names = list(streams.REQUESTS)
    wanted = {name: streams.told(name, streams.ask(router.url, name)) for name in names}
    clients = Clients(router, names, wanted, options.clients)
    counts = {"kill": 0, "stop": 0, "shut down": 0}
    for i in range(options.faults):
        time.sleep(rng.uniform(0.1, 1))
        place, kind = rng.randrange(options.workers), rng.choice(list(counts))
        counts[kind] += 1
        victim = workers[place]
        victim.send({"kill": signal.SIGKILL, "stop": signal.SIGSTOP, "shut down": signal.SIGTERM}[kind])
        if kind == "stop":
            time.sleep(options.progress_bound + rng.uniform(0.5, 1.5))
            victim.send(signal.SIGCONT)
        else:
            victim.child.wait(timeout=60)
            victim.end()
            workers[place] = start_worker(victim.port)
        if i % 5 != 4 or options.workers < 3:  # now and then the next comes before this one is back
            wait_up()
    clients.end()
    times = recovery(router)
    snapshot = workers_of(router)
    print(json.dumps({
        "faults": counts, "requests": clients.requests, "failed": len(clients.failed), "different": len(clients.different),
        "first": (clients.failed + clients.different)[:3], "resumed": sum(each["resumes"] for each in snapshot),
        "sent again": sum(each["retries"] for each in snapshot), "recovered": times[-1][1],
        "recovery p50 <=": percentile(times, 0.5), "recovery p99 <=": percentile(times, 0.99)}))
    for child in [router, *workers]:
        child.end()
    sys.exit(bool(clients.failed or clients.different))


main()
