"""`headrace route` in front of stand-in workers: what passes, where it goes, and what a fault of a worker costs."""

import concurrent.futures
import json
import os
import pathlib
import re
import signal
import socket
import subprocess
import sys
import time
import urllib.error
import urllib.request

import pytest

from conftest import BINARY

STAND_IN = pathlib.Path(__file__).with_name("stand_in_worker.py")


class Process:
    """A child that says where it listens."""

    def __init__(self, *command):
        self.child = subprocess.Popen([*map(str, command)], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
        line = self.child.stdout.readline()
        found = re.search(r"listening on (http://\S+:\d+)", line)
        assert found, f"no address in {line!r}: {self.child.stderr.read() if self.child.poll() is not None else ''}"
        self.url = found[1]
        self.port = int(self.url.rsplit(":", 1)[1])

    def send(self, signal_number):
        self.child.send_signal(signal_number)

    def end(self):
        if self.child.poll() is None:
            self.child.send_signal(signal.SIGCONT)
            self.child.kill()
        self.child.wait()
        self.child.stdout.close()
        self.child.stderr.close()


def call(url, body=None, method=None, headers=None, timeout=60):
    """(status, headers, text)"""
    data = None if body is None else json.dumps(body).encode()
    request = urllib.request.Request(url, data, {"Content-Type": "application/json", **(headers or {})}, method=method)
    try:
        with urllib.request.urlopen(request, timeout=timeout) as answer:
            return answer.status, answer.headers, answer.read().decode()
    except urllib.error.HTTPError as error:
        return error.code, error.headers, error.read().decode()


@pytest.fixture
def processes():
    if not os.path.exists(BINARY):
        pytest.skip(f"{BINARY} is missing: build first")
    children = []
    yield children
    for child in children:
        child.end()


@pytest.fixture
def start_worker(processes):
    def start(*arguments):
        processes.append(Process(sys.executable, STAND_IN, *arguments))
        return processes[-1]

    return start


@pytest.fixture
def start_router(processes):
    def start(workers, *arguments):
        flags = [flag for worker in workers for flag in ("--worker", getattr(worker, "url", worker))]
        processes.append(Process(BINARY, "route", "--port", 0, "--poll-interval", 0.2, "--progress-bound", 1, *flags, *arguments))
        router = processes[-1]
        up = re.compile(r"^headrace_route_worker_up.* 1$", re.MULTILINE)
        wait_for(lambda: len(up.findall(call(router.url + "/metrics")[2])) == len(workers))
        return router

    return start


def workers_of(router):
    return json.loads(call(router.url + "/workers")[2])["workers"]


def wait_for(condition, seconds=15):
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline, "it did not come"
        time.sleep(0.02)


def chat(text="hello", **fields):
    return {"model": "m", "messages": [{"role": "user", "content": text}], "stream": True, **fields}


PATHS = [("/v1/chat/completions", {}), ("/v1/chat/completions", {"n": 3}), ("/api/chat", {})]


def test_an_answer_passes_unchanged(start_worker, start_router):
    worker = start_worker()
    router = start_router([worker])
    for path, fields in PATHS:
        for stream in (True, False):
            body = {**chat(**fields), "stream": stream}
            direct, through = call(worker.url + path, body), call(router.url + path, body)
            assert through[0] == direct[0] == 200
            assert through[2] == direct[2]
            assert through[1]["Content-Type"] == direct[1]["Content-Type"]
            assert "journal" not in through[2]
    assert call(router.url + "/no/such/route")[0] == 404
    assert len(call(router.url + "/large")[2]) == 20 << 20


def test_headers_of_the_edge_are_the_routers(start_worker, start_router):
    worker = start_worker()
    router = start_router([worker], "--api-key", "front", "--worker-api-key", "back")
    assert call(router.url + "/v1/chat/completions", chat())[0] == 401
    assert call(router.url + "/workers")[0] == 401
    assert call(router.url + "/health")[0] == 200
    headers = {"Authorization": "Bearer front", "X-Request-Id": "mine", "X-Headrace-Journal": "1", "X-Custom": "kept"}
    status, answered, _ = call(router.url + "/v1/chat/completions", {**chat(), "stream": False}, headers=headers)
    assert status == 200 and answered["X-Request-Id"] == "mine"
    came = {name.lower(): value for name, value in json.loads(call(worker.url + "/seen")[2])[-1]["headers"].items()}
    assert came["authorization"] == "Bearer back" and came["x-request-id"] == "mine" and came["x-custom"] == "kept"
    assert "x-headrace-journal" not in came  # a client has no say in it
    status, _, text = call(router.url + "/v1/chat/completions", {"headrace_resume": {}, **chat()}, headers=headers)
    assert status == 400 and "headrace_resume" in text


def test_who_may_change_the_workers_and_how_often_a_key_asks(start_worker, start_router, tmp_path):
    keys = tmp_path / "keys"
    keys.write_text('{"key": "few", "requests_per_minute": 2}\n{"key": "many"}\n')
    router = start_router([start_worker()], "--api-key-file", keys, "--admin-key", "root")
    few, many, root = ({"Authorization": "Bearer " + key} for key in ("few", "many", "root"))
    body = {**chat(), "stream": False}
    assert [call(router.url + "/v1/chat/completions", body, headers=few)[0] for _ in range(3)] == [200, 200, 429]
    assert [call(router.url + "/v1/chat/completions", body, headers=many)[0] for _ in range(3)] == [200, 200, 200]
    assert call(router.url + "/workers/0/drain", {}, headers=many)[0] == 403
    assert call(router.url + "/workers", headers=many)[0] == 200
    assert call(router.url + "/workers/0/drain", {}, headers=root)[0] == 200




@pytest.mark.timing
@pytest.mark.parametrize("kind", ["break", "half", "error", "hang"])
@pytest.mark.parametrize("path,fields", PATHS)
def test_a_stream_goes_on_elsewhere(start_worker, start_router, kind, path, fields):
    workers = [start_worker() for _ in range(3)]
    router = start_router(workers, "--stream-silence", "1")
    whole = call(workers[0].url + path, chat(**fields))[2]
    for after in (0, 1, 7, 29):
        if kind == "error" and path == "/api/chat":
            continue
        for worker in workers[:2]:
            call(worker.url + "/fault", {"kind": kind, "after": after})
        for _ in range(3):
            assert call(router.url + path, chat(**fields))[2] == whole
        wait_for(lambda: all(each["state"] == "up" for each in workers_of(router)))
    metrics = call(router.url + "/metrics")[2]
    assert "headrace_route_failed_total 0" in metrics


@pytest.mark.timing
def test_streams_survive_kills_and_stops(start_worker, start_router, processes):
    workers = [start_worker("--gap", 0.02) for _ in range(3)]
    router = start_router(workers, "--policy", "round-robin")
    whole = {path: call(workers[0].url + path, chat(**fields))[2] for path, fields in PATHS[1:]}
    with concurrent.futures.ThreadPoolExecutor(24) as pool:
        asked = [(path, pool.submit(call, router.url + path, chat(**fields))) for path, fields in PATHS[1:] for _ in range(12)]
        time.sleep(0.3)
        workers[0].send(signal.SIGKILL)
        time.sleep(0.2)
        workers[1].send(signal.SIGSTOP)
        for path, answer in asked:
            assert answer.result()[2] == whole[path]
    states = [each["state"] for each in workers_of(router)]
    assert states == ["down", "down", "up"]
    workers[1].send(signal.SIGCONT)
    wait_for(lambda: [each["state"] for each in workers_of(router)][1] == "up")


@pytest.mark.timing
def test_requests_wait_for_the_last_worker_to_come_back(start_worker, start_router):
    worker = start_worker("--gap", 0.02)
    router = start_router([worker], "--failover-wait", 20)
    whole = call(worker.url + "/v1/chat/completions", chat())[2]
    with concurrent.futures.ThreadPoolExecutor(4) as pool:
        asked = [pool.submit(call, router.url + "/v1/chat/completions", chat()) for _ in range(2)]
        time.sleep(0.2)
        worker.send(signal.SIGKILL)
        asked += [pool.submit(call, router.url + "/v1/chat/completions", chat()) for _ in range(2)]
        time.sleep(0.3)
        start_worker("--gap", 0.02, "--port", worker.port)
        for answer in asked:
            assert answer.result()[2] == whole


@pytest.mark.timing
def test_nobody_comes_back(start_worker, start_router):
    worker = start_worker("--gap", 0.02)
    router = start_router([worker], "--failover-wait", 0.5)
    with concurrent.futures.ThreadPoolExecutor(1) as pool:
        asked = pool.submit(call, router.url + "/v1/chat/completions", chat())
        time.sleep(0.3)
        worker.send(signal.SIGKILL)
        assert '"error"' in asked.result()[2].split("\n\n")[-2]
    status, headers, text = call(router.url + "/v1/chat/completions", chat())
    assert status == 503 and headers["Retry-After"] and "no worker takes requests" in text
    assert call(router.url + "/health")[0] == 503


@pytest.mark.timing
def test_another_arithmetic_is_refused_unless_it_may_be_inexact(start_worker, start_router):
    workers = [start_worker("--fingerprint", name) for name in ("f", "g")]
    for flags, goes_on in (((), False), (("--resume-inexact",), True)):
        router = start_router(workers, *flags)
        whole = call(workers[0].url + "/v1/chat/completions", chat())[2]
        for worker in workers:
            call(worker.url + "/fault", {"kind": "break", "after": 5})
        texts = [call(router.url + "/v1/chat/completions", chat())[2] for _ in range(2)]
        assert all((text == whole) == goes_on for text in texts)
        assert all(('"error"' in text) != goes_on for text in texts)


@pytest.mark.timing
def test_what_was_not_taken_goes_to_another(start_worker, start_router):
    workers = [start_worker() for _ in range(2)]
    router = start_router(workers)
    for kind in ("busy", "fail"):
        for stream in (True, False):
            for worker in workers:
                call(worker.url + "/fault", {"kind": kind})
            answers = [call(router.url + "/v1/chat/completions", {**chat(), "stream": stream})[0] for _ in range(3)]
            assert answers.count(200) >= 1 and set(answers) <= {200, 503, 500}
            wait_for(lambda: all(each["state"] == "up" for each in workers_of(router)))


def test_files_are_found_where_they_are(start_worker, start_router):
    workers = [start_worker("--fingerprint", name) for name in ("f", "g", "h")]
    router = start_router(workers)
    made = json.loads(call(router.url + "/v1/files", {})[2])["id"]
    elsewhere = [json.loads(call(worker.url + "/v1/files", {})[2])["id"] for worker in workers]
    for name in [made, *elsewhere]:  # the router has not heard of those
        assert json.loads(call(router.url + "/v1/files/" + name)[2])["id"] == name
    assert call(router.url + "/v1/files/file-none")[0] == 404
    assert len({json.loads(call(router.url + "/v1/files", {})[2])["id"][5] for _ in range(6)}) == 1  # one client's are together


def test_a_worker_drains_goes_and_comes(start_worker, start_router):
    workers = [start_worker() for _ in range(2)]
    router = start_router(workers, "--policy", "round-robin")
    call(router.url + "/workers/0/drain", {}, "POST")
    assert [each["state"] for each in workers_of(router)] == ["draining", "up"]
    for _ in range(4):
        call(router.url + "/v1/chat/completions", chat())
    assert [each["requests"] for each in workers_of(router)] == [0, 4]
    call(router.url + "/workers/0/undrain", {}, "POST")
    assert call(router.url + "/workers/1", method="DELETE")[0] == 200
    assert call(router.url + "/workers/1", method="DELETE")[0] == 404
    assert call(router.url + "/v1/chat/completions", chat())[0] == 200
    added = start_worker()
    assert json.loads(call(router.url + "/workers", {"url": added.url})[2])["id"] == 2
    assert call(router.url + "/workers", {"url": "ftp://x"})[0] == 400
    wait_for(lambda: len([each for each in workers_of(router) if each["state"] == "up"]) == 2)


def test_tokens_of_a_key_hold_over_all_workers(start_worker, start_router, tmp_path):
    keys = tmp_path / "keys"
    keys.write_text('{"key": "few", "tokens_per_minute": 400}\n{"key": "many"}\n')
    router = start_router([start_worker(), start_worker()], "--api-key-file", keys, "--policy", "round-robin")
    few, many = ({"Authorization": "Bearer " + key} for key in ("few", "many"))

    def ask(headers, **fields):
        return call(router.url + "/v1/chat/completions", chat(**fields), headers=headers)

    # What is named is taken beforehand, what was not generated is given back.
    assert ask(few, max_tokens=1000)[0] == 400
    answers = [ask(few, max_tokens=300) for _ in range(20)]
    refused = next(i for i, each in enumerate(answers) if each[0] == 429)
    assert refused >= 2 and int(answers[refused][1]["Retry-After"]) >= 1 and "400 tokens a minute" in answers[refused][2]
    assert {each["requests"] > 0 for each in workers_of_key(router, many)} == {True}
    assert all(ask(many, max_tokens=300)[0] == 200 for _ in range(20))
    assert call(router.url + "/v1/models", headers=few)[0] == 200  # costs no tokens


@pytest.mark.parametrize("stream", [False, True])
def test_one_request_at_a_time_is_one_after_another(start_worker, start_router, tmp_path, stream):
    keys = tmp_path / "keys"
    keys.write_text('{"key": "one", "concurrent_requests": 1}\n')
    router = start_router([start_worker()], "--api-key-file", keys)
    # Who has read an answer to its end may ask again at once.
    for _ in range(200):
        status, _, text = call(router.url + "/v1/chat/completions", chat(max_tokens=1, stream=stream), headers={"Authorization": "Bearer one"})
        assert status == 200, text


def workers_of_key(router, headers):
    return json.loads(call(router.url + "/workers", headers=headers)[2])["workers"]


def test_a_hard_question_goes_to_the_model_that_takes_it(start_worker, start_router):
    workers = [start_worker("--model", name) for name in ("small", "large")]
    router = start_router(workers, "--alias", "auto=small,large", "--cost", "small=0.1,0.4", "--cost", "large=1,4", "--difficulty", "small=0.4")
    wait_for(lambda: all(each["models"] for each in workers_of(router)))
    for place, fields, headers in [(1, {}, {}), (0, {"reasoning_effort": "low"}, {}), (1, {"reasoning_effort": "high"}, {}),
                                   (0, {}, {"X-Headrace-Difficulty": "0.2"})]:
        before = workers_of(router)[place]["requests"]
        call(router.url + "/v1/chat/completions", {**chat(**fields), "model": "auto", "stream": False}, headers=headers)
        assert workers_of(router)[place]["requests"] == before + 1, (fields, headers)
    for bad in ("small", "small=2"):
        run = subprocess.run([BINARY, "route", "--port", "0", "--worker", workers[0].url, "--difficulty", bad], capture_output=True, text=True)
        assert run.returncode != 0 and "--difficulty" in run.stderr and "0 to 1" in run.stderr


def test_what_a_dead_worker_has_is_not_called_unknown(start_worker, start_router):
    workers = [start_worker(), start_worker()]
    router = start_router(workers, "--failover-wait", 1)
    assert call(router.url + "/v1/files/file-none")[0] == 404  # all were asked
    workers[0].send(signal.SIGKILL)
    workers[0].child.wait()
    wait_for(lambda: workers_of(router)[0]["state"] == "down")
    status, _, text = call(router.url + "/v1/files/file-none")
    assert status == 503 and "away" in text


def test_models_and_aliases(start_worker, start_router):
    workers = [start_worker("--model", name) for name in ("small", "large")]
    router = start_router(workers, "--alias", "auto=large,small", "--cost", "small=0.1,0.4", "--cost", "large=1,4")
    wait_for(lambda: all(each["models"] for each in workers_of(router)))
    names = [card["id"] for card in json.loads(call(router.url + "/v1/models")[2])["data"]]
    assert names == ["small", "large", "auto"]
    for model, place in (("small", 0), ("large", 1), ("auto", 0)):
        before = workers_of(router)[place]["requests"]
        call(router.url + "/v1/chat/completions", {**chat(), "model": model, "stream": False})
        assert workers_of(router)[place]["requests"] == before + 1
    assert json.loads(json.loads(call(workers[0].url + "/seen")[2])[-1]["body"])["model"] == "small"


@pytest.mark.timing
def test_a_client_that_leaves_cancels(start_worker, start_router):
    worker = start_worker("--gap", 0.1)
    router = start_router([worker])
    body = json.dumps(chat()).encode()
    with socket.create_connection(("127.0.0.1", router.port)) as client:
        client.sendall(b"POST /v1/chat/completions HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n%s" % (len(body), body))
        assert client.recv(100).startswith(b"HTTP/1.1 200")
        assert workers_of(router)[0]["in_flight"] == 1
    wait_for(lambda: workers_of(router)[0]["in_flight"] == 0, 2)


def test_bad_input_is_one_line(start_worker, start_router):
    def run(*arguments):
        done = subprocess.run([BINARY, "route", *arguments], capture_output=True, text=True, timeout=20)
        assert done.returncode != 0
        lines = [line for line in done.stderr.splitlines() if line.startswith("headrace: error")]
        assert len(lines) == 1, done.stderr
        return lines[0]

    assert "--worker" in run()
    assert "--worker ftp://x" in run("--worker", "ftp://x") or "ftp://x" in run("--worker", "ftp://x")
    assert "https://x:1" in run("--worker", "https://x:1")
    assert "dns:NAME:PORT" in run("--worker", "dns:x")
    assert "--alias" in run("--worker", "http://127.0.0.1:1", "--alias", "x")
    assert "--cost" in run("--worker", "http://127.0.0.1:1", "--cost", "x=1")
    worker = start_worker()
    assert "--progress-bound" in run("--worker", "http://127.0.0.1:1", "--progress-bound", "1", "--poll-interval", "1")
    assert "--port" in run("--worker", worker.url, "--port", str(worker.port))


@pytest.mark.timing
def test_what_is_no_worker_is_named_and_left_out(start_worker, start_router, processes, tmp_path):
    worker = start_worker()
    with socket.socket() as free, socket.socket() as listener:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
        free.close()
        listener.bind(("127.0.0.1", 0))
        listener.listen()  # takes connections and says nothing
        log = open(tmp_path / "log", "w+")
        child = subprocess.Popen(
            [BINARY, "route", "--port", str(port), "--poll-interval", "0.2", "--progress-bound", "1", "--worker", worker.url,
             "--worker", f"http://127.0.0.1:{port}", "--worker", f"http://127.0.0.1:{listener.getsockname()[1]}"],
            stdout=subprocess.DEVNULL, stderr=log)
        try:
            wait_for(lambda: "no answer in time" in (tmp_path / "log").read_text())
            text = (tmp_path / "log").read_text()
            assert text.count("leads back to this router") == 1 and text.count("no answer in time") == 1
            assert call(f"http://127.0.0.1:{port}/v1/chat/completions", chat())[0] == 200
        finally:
            child.kill()
            child.wait()
            log.close()


@pytest.mark.timing
def test_the_router_ends_what_it_has(start_worker, start_router):
    worker = start_worker("--gap", 0.03)
    router = start_router([worker])
    whole = call(worker.url + "/v1/chat/completions", chat())[2]
    with concurrent.futures.ThreadPoolExecutor(1) as pool:
        asked = pool.submit(call, router.url + "/v1/chat/completions", chat())
        time.sleep(0.2)
        router.send(signal.SIGTERM)
        assert asked.result()[2] == whole
    assert router.child.wait(timeout=10) == 0


def test_the_deployments_are_sound():
    root = STAND_IN.parents[2]
    help_text = subprocess.run([BINARY, "route", "--help"], capture_output=True, text=True, check=True).stdout
    serve_help = subprocess.run([BINARY, "serve", "--help"], capture_output=True, text=True, check=True).stdout
    manifest = (root / "deploy/kubernetes/headrace.yaml").read_text()
    unit = (root / "deploy/headrace-route.service").read_text()
    for text in (manifest, unit):
        for flag in re.findall(r"--[a-z-]+(?=[ ,\]])", "\n".join(re.findall(r"(?:command: \[headrace, route|ExecStart=)[^\]\n]*(?:\n[^\]\n]*)?", text))):
            assert flag in help_text, flag
    for flag in re.findall(r"--[a-z-]+(?=,)", re.search(r"headrace, serve[^\]]*", manifest)[0]):
        assert flag in serve_help, flag
