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
from test_resume import REQUESTS, TIMES
from test_route import Process, call, wait_for, workers_of

FLAGS = ["-m", MODEL, "--port", "0", "--batch-invariant", "--served-model-name", "smol", "--max-model-len", 1024, "--max-num-seqs", 16,
         "--threads", 1, "--shutdown-timeout", 0]
# Which name an answer has, and what its prompt found in the cache.
NAMES = re.compile(rb'"(?:id|item_id|call_id|system_fingerprint|request_id)":"[^"]*"|"(?:created|created_at|completed_at)":[0-9.]+|'
                   rb'"(?:\w*cached\w*|cache_n|tokens_cached|tokens_evaluated|prompt_n|cache_read_input_tokens|input_tokens)":[0-9]+')


def body_of(name):
    path, body = REQUESTS[name]
    body = json.loads(json.dumps(body))
    longer = ("max_tokens", "max_output_tokens", "n_predict")
    body = {key: 6 * value if key in longer else value for key, value in body.items()}
    if path in ("/v1/chat/completions", "/v1/completions", "/completion"):
        body.setdefault("seed", 11)
    elif path.startswith("/api"):
        body["options"] = {"num_predict": 96, "seed": 11}
    elif path == "/generate":
        body["sampling_params"] = {"max_new_tokens": 72, "temperature": 0}
    elif path == "/generate_stream":
        body["parameters"] = {"max_new_tokens": 72, "do_sample": True, "seed": 11}
    else:
        body["temperature"] = 0
    if path != "/generate_stream":
        body["stream"] = True
    return path, {"model": "smol", **body}


def ask(url, name):
    path, body = body_of(name)
    request = urllib.request.Request(url + path, json.dumps(body).encode(), {"Content-Type": "application/json"})
    with urllib.request.urlopen(request, timeout=100) as reply:
        return reply.read()


def told(name, stream):
    """What of a stream is the same each time; which of several choices comes first is not."""
    if name == "form":  # how many tokens an event has is a matter of time where a form leaves but one text
        return b"".join(re.findall(rb'"content":"((?:[^"\\]|\\.)*)"', stream))
    assert b": journal" not in stream
    events = [each for each in NAMES.sub(b"", TIMES.sub(b"", stream)).split(b"\n\n") if not each.startswith(b":")]
    return sorted(events) if name in ("choices", "prompts") else events


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
