"""Real workers behind `headrace route` that are killed, stopped and shut down while they answer: every client gets, in every
protocol, what it would have got without the fault."""

import concurrent.futures
import json
import os
import re
import signal
import subprocess
import time
import urllib.request

import pytest

from conftest import BINARY, MODEL
from streamed_requests import REQUESTS, body_of, told
from test_route import Process, call, wait_for, workers_of

FLAGS = ["-m", MODEL, "--port", "0", "--batch-invariant", "--served-model-name", "smol", "--max-model-len", 1024, "--max-num-seqs", 16,
         "--threads", 1, "--shutdown-timeout", 0]


def ask(url, name):
    path, body = body_of(name)
    request = urllib.request.Request(url + path, json.dumps(body).encode(), {"Content-Type": "application/json"})
    with urllib.request.urlopen(request, timeout=100) as reply:
        return reply.read()


@pytest.fixture
def cluster():
    for path in (BINARY, MODEL):
        if not os.path.exists(path):
            pytest.skip(f"{path} is missing: build and fetch first")
    children = []

    def start_worker(port=0):
        flags = [str(port) if flag == "0" and FLAGS[i - 1] == "--port" else flag for i, flag in enumerate(FLAGS)]
        os.environ.setdefault("HEADRACE_PACKED_CACHE", "off")
        children.append(Process(BINARY, "serve", *flags))
        return children[-1]

    workers = [start_worker() for _ in range(3)]
    flags = [flag for worker in workers for flag in ("--worker", worker.url)]
    router = Process(BINARY, "route", "--port", 0, "--policy", "round-robin", "--poll-interval", 0.2, "--progress-bound", 2, *flags)
    children.append(router)
    wait_for(lambda: all(each["state"] == "up" for each in workers_of(router)), 60)
    yield router, workers, start_worker
    for child in children:
        child.end()


def kill(worker):
    worker.send(signal.SIGKILL)


def stop(worker):
    worker.send(signal.SIGSTOP)


def shut_down(worker):
    worker.send(signal.SIGTERM)


def resumed(router):
    return sum(each["resumes"] for each in workers_of(router))


@pytest.mark.timing
def test_every_protocol_survives_its_worker(cluster):
    router, workers, start_worker = cluster
    wanted = {name: told(name, ask(router.url, name)) for name in REQUESTS}
    with concurrent.futures.ThreadPoolExecutor(len(REQUESTS)) as pool:
        faults = [kill, stop, shut_down]
        tries = 0
        while faults:
            fault, tries = faults[0], tries + 1
            before = resumed(router)
            victim = workers[0]
            asked = {name: pool.submit(ask, router.url, name) for name in REQUESTS}
            # On a fast machine all may have ended before the fault: it is given again, sooner.
            assert tries < 9, fault.__name__
            wait_for(lambda: workers_of(router)[0]["in_flight"] >= max(1, 4 - tries) or all(each.done() for each in asked.values()))
            if all(each.done() for each in asked.values()):
                continue
            time.sleep(0.4 / tries**2)
            fault(victim)
            for name, answer in asked.items():
                assert told(name, answer.result()) == wanted[name], (fault.__name__, name)
            if resumed(router) > before:
                faults.pop(0)
                tries = 0
            victim.send(signal.SIGCONT)
            if fault != stop:
                victim.child.wait(timeout=20)
                workers[0] = start_worker(victim.port)
            wait_for(lambda: all(each["state"] == "up" for each in workers_of(router)), 60)
    assert "headrace_route_failed_total 0" in call(router.url + "/metrics")[2]
