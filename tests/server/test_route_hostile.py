"""`headrace route` and workers that misbehave, clients that ask for what is not theirs."""

import http.server
import json
import pathlib
import threading
import time
import urllib.request

import pytest
from ollama import Client

from test_route import call, chat, processes, start_router, start_worker, wait_for  # noqa: F401 (fixtures)

HEAD = b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nTransfer-Encoding: chunked\r\n\r\n"
JOURNAL = b': journal {"head": {"fingerprint": "f"}}\n\n'


class Scripted(http.server.BaseHTTPRequestHandler):
    """Polls are answered; what else comes is the script's: it gets the handler and the body."""

    protocol_version = "HTTP/1.1"

    def log_message(self, *_):
        pass

    def answer(self, status, body, *headers):
        data = json.dumps(body).encode()
        self.send_response(status)
        for name, value in [("Content-Type", "application/json"), ("Content-Length", str(len(data))), *headers]:
            self.send_header(name, value)
        self.end_headers()
        self.wfile.write(data)

    def do_GET(self):
        if self.path == "/v1/models":
            return self.answer(200, {"data": [{"id": "m"}, {"id": "one-clients", "made": True}]})
        if self.path == "/metrics":
            page = b"# of a Headrace server\nheadrace:scripted 1\n"
            return self.wfile.write(b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n%s" % (len(page), page))
        self.answer(200, {"status": "ok"})

    def do_POST(self):
        body = self.rfile.read(int(self.headers.get("Content-Length", 0)))
        self.server.seen.append((time.monotonic(), dict(self.headers), body))
        try:
            self.server.script(self, body)
        except OSError:
            self.close_connection = True

    def begin(self, *events):
        self.wfile.write(HEAD)
        for event in events:
            self.wfile.write(b"%x\r\n%s\r\n" % (len(event), event))

    def die(self):
        self.close_connection = True


@pytest.fixture
def scripted():
    servers = []

    def start(script):
        server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Scripted)
        server.daemon_threads, server.script, server.seen = True, script, []
        server.handle_error = lambda *_: None
        server.url = f"http://127.0.0.1:{server.server_port}"
        threading.Thread(target=server.serve_forever, daemon=True).start()
        servers.append(server)
        return server

    yield start
    for server in servers:
        server.shutdown()
        server.server_close()


def dies_behind_an_event(handler, _):
    handler.begin(JOURNAL, b": journal [1]\n\n", b'data: {"t":1}\n\n')
    handler.die()


@pytest.mark.parametrize("body", [b"", b"[]", b"[{}]"])
def test_a_body_that_is_no_object_is_not_resumed(scripted, start_router, body):
    router = start_router([scripted(dies_behind_an_event)])
    request = urllib.request.Request(router.url + "/api/generate", body, {"Content-Type": "application/json"})
    with urllib.request.urlopen(request, timeout=20) as answer:
        assert b'"error"' in answer.read()
    assert call(router.url + "/workers")[0] == 200  # it lives


@pytest.mark.parametrize("header", [b"X-A: b\nX-Injected: c", b"Content-Length : 2", b"X-A: b\x00c"])
def test_a_head_that_could_be_read_otherwise_does_not_pass(scripted, start_router, header):
    def script(handler, _):
        handler.wfile.write(b"HTTP/1.1 200 OK\r\n" + header + b"\r\nContent-Length: 2\r\n\r\n{}")

    router = start_router([scripted(script)], "--failover-wait", 0.3, "--max-faults", 1)
    status, headers, _ = call(router.url + "/v1/completions", {"prompt": "x"})
    assert status == 503 and "X-Injected" not in headers


@pytest.mark.timing
def test_a_stream_that_ends_inside_of_an_event_goes_on_elsewhere(scripted, start_router):
    def script(handler, body):
        if b"headrace_resume" in body:
            handler.begin(b'data: {"t":1}\n\n', b": journal [2]\n\n", b"data: [DONE]\n\n")
        else:
            handler.begin(JOURNAL, b": journal [1]\n\n", b'data: {"t":1}\n\n', b'data: {"t"')
        handler.wfile.write(b"0\r\n\r\n")

    router = start_router([scripted(script)])
    assert call(router.url + "/v1/completions", {"prompt": "x", "stream": True})[2] == 'data: {"t":1}\n\ndata: [DONE]\n\n'


@pytest.mark.timing
def test_a_worker_that_stays_busy_is_asked_less_and_less(scripted, start_router):
    def script(handler, body):
        if b"headrace_resume" in body:
            return handler.answer(429, {"error": {"message": "full"}}, ("Retry-After", "1"))
        return dies_behind_an_event(handler, body)

    worker = scripted(script)
    router = start_router([worker], "--failover-wait", 4)
    begin = time.monotonic()
    assert '"error"' in call(router.url + "/v1/completions", {"prompt": "x", "stream": True})[2]
    assert 3 < time.monotonic() - begin < 12
    assert 2 <= len(worker.seen) <= 7


@pytest.mark.timing
def test_a_request_that_a_worker_swallows_goes_elsewhere(scripted, start_router):
    first = []

    def script(handler, body):
        if not first:
            first.append(body)
            time.sleep(30)
        handler.begin(JOURNAL, b": journal [1]\n\n", b"data: [DONE]\n\n")
        handler.wfile.write(b"0\r\n\r\n")

    router = start_router([scripted(script)], "--stream-silence", 1)
    begin = time.monotonic()
    assert call(router.url + "/v1/completions", {"prompt": "x", "stream": True})[2] == "data: [DONE]\n\n"
    assert time.monotonic() - begin < 10


@pytest.mark.timing
def test_what_no_other_worker_can_mend_is_not_sent_again(scripted, start_router):
    def script(handler, body):
        if b"headrace_resume" in body:
            return handler.answer(413, {"error": {"message": "too long"}})
        return dies_behind_an_event(handler, body)

    worker = scripted(script)
    router = start_router([worker])
    assert '"error"' in call(router.url + "/v1/completions", {"prompt": "x", "stream": True})[2]
    assert len(worker.seen) == 2


def test_a_worker_that_leads_in_a_circle_is_left_for_another(scripted, start_router):
    loop = scripted(lambda handler, _: handler.answer(508, {"error": {"message": "a circle"}}))
    good = scripted(lambda handler, _: handler.answer(200, {"ok": True}))
    router = start_router([loop, good], "--policy", "round-robin")
    assert [call(router.url + "/v1/completions", {"prompt": "x"})[0] for _ in range(4)] == [200] * 4


def test_workers_are_told_the_clients_address_and_not_what_it_says_of_it(scripted, start_router):
    worker = scripted(lambda handler, _: handler.answer(200, {}))
    router = start_router([worker])
    call(router.url + "/v1/completions", {"prompt": "x"}, headers={"X-Forwarded-For": "198.51.100.7", "Forwarded": "for=198.51.100.7"})
    came = {name.lower(): value for name, value in worker.seen[0][1].items()}
    assert came["x-forwarded-for"] == "127.0.0.1" and "forwarded" not in came


def bearer(key):
    return {"Authorization": "Bearer " + key}


def test_the_admin_key_is_for_the_list_of_workers_alone(scripted, start_router):
    worker = scripted(lambda handler, _: handler.answer(200, {}))
    for flags in ((), ("--api-key", "client")):
        router = start_router([worker], "--admin-key", "root", *flags)
        status, _, text = call(router.url + "/v1/completions", {"prompt": "x"}, headers=bearer("root"))
        assert status == 401 and "/workers" in text
        assert call(router.url + "/workers/0/drain", {}, headers=bearer("root"))[0] == 200
        assert call(router.url + "/workers", headers=bearer("root"))[0] == 200
    assert not worker.seen


def test_with_api_keys_the_list_changes_with_the_admin_key_alone(scripted, start_router):
    router = start_router([scripted(dies_behind_an_event)], "--api-key", "client")
    status, _, text = call(router.url + "/workers/0/drain", {}, headers=bearer("client"))
    assert status == 403 and "--admin-key" in text


def test_behind_one_worker_key_clients_keep_nothing_that_others_could_reach(scripted, start_router):
    worker = scripted(lambda handler, _: handler.answer(200, {"id": "file-1"}))
    router = start_router([worker], "--worker-api-key", "back", "--api-key", "a", "--api-key", "b")
    for path, body in [("/v1/files", {}), ("/v1/batches", {}), ("/v1/files/file-1", None), ("/v1/responses/resp_1", None),
                       ("/v1/responses", {"previous_response_id": "resp_1", "input": "x"}),
                       ("/v1/responses", {"previous_response_id": "resp_1", "input": "x", "input_file_id": ""}),
                       ("/v1/responses", {"input": "x", "background": True}),
                       ("/api/create", {}), ("/api/copy", {}), ("/api/show", {}), ("/api/show", {"model": "one-clients"}),
                       ("/api/show", {"model": "m", "name": "one-clients"}), ("/debug/log", None)]:
        status, _, text = call(router.url + path, body, headers=bearer("a"))
        assert status == 501 and "--worker-api-key" in text, path
    assert not worker.seen
    assert call(router.url + "/api/delete", {}, "DELETE", bearer("a"))[0] == 501
    assert call(router.url + "/v1/completions", {"prompt": "x"}, headers=bearer("a"))[0] == 200
    assert models_of(router, "a") == ["m"]
    # Ollama's clients list and show what is served, and nothing that another client has made.
    ollama = Client(router.url, headers=bearer("a"))
    assert [model.model for model in ollama.list().models] == ["m"]
    assert len(ollama.list().models[0].digest) == 64
    assert call(router.url + "/api/tags", headers=bearer("c"))[0] == 401
    assert call(router.url + "/api/show", {"model": "m:latest"}, headers=bearer("a"))[0] == 200
    alone = start_router([worker], "--worker-api-key", "back", "--api-key", "a")
    assert call(alone.url + "/v1/files", {}, headers=bearer("a"))[0] == 200
    assert call(alone.url + "/v1/responses", {"input": "x", "background": True}, headers=bearer("a"))[0] == 200
    assert models_of(alone, "a") == ["m", "one-clients"]


def models_of(router, key):
    return [card["id"] for card in json.loads(call(router.url + "/v1/models", headers=bearer(key))[2])["data"]]


def test_what_goes_to_everybody_says_who_asks_and_what_is_answered(scripted, start_router):
    def script(handler, _):
        data = b"later"
        handler.wfile.write(b"HTTP/1.1 503 Unavailable\r\nContent-Type: text/plain\r\nRetry-After: 7\r\nContent-Length: %d\r\n\r\n%s" % (len(data), data))

    worker = scripted(script)
    router = start_router([worker])
    status, headers, text = call(router.url + "/flush_cache", {}, headers={"X-API-Key": "mine", "X-Request-Id": "r-1"})
    assert (status, text, headers["Content-Type"], headers["Retry-After"]) == (503, "later", "text/plain", "7")
    came = {name.lower(): value for name, value in worker.seen[0][1].items()}
    assert (came["x-api-key"], came["x-request-id"]) == ("mine", "r-1")
    keyed = start_router([worker], "--worker-api-key", "back")
    call(keyed.url + "/flush_cache", {}, headers={"X-API-Key": "mine"})
    came = {name.lower(): value for name, value in worker.seen[1][1].items()}
    assert came["authorization"] == "Bearer back" and "x-api-key" not in came


def test_what_computes_nothing_is_not_counted(scripted, start_router, tmp_path):
    keys = tmp_path / "keys"
    keys.write_text('{"key": "a", "requests_per_minute": 1}\n')
    worker = scripted(lambda handler, _: handler.answer(200, {}))
    router = start_router([worker], "--api-key-file", keys)
    for _ in range(3):
        for path, body in [("/version", None), ("/tokenize", {"prompt": "x"}), ("/v1/messages/count_tokens", {})]:
            assert call(router.url + path, body, headers=bearer("a"))[0] == 200
    asked = [call(router.url + path, {"input": "x"}, headers=bearer("a"))[0] for path in ("/v1/embeddings", "/v1/responses")]
    assert asked == [200, 429]


@pytest.mark.timing
def test_connections_to_workers_that_are_gone_are_closed(start_worker, start_router):
    def sockets_to(port, pid):
        # The table is of all processes: the tests' own calls to the port are closed by then.
        table = pathlib.Path(f"/proc/{pid}/net/tcp").read_text().splitlines()[1:]
        return [line for line in table if line.split()[2].endswith(f":{port:04X}") and line.split()[3] in ("01", "08")]

    worker, other = start_worker(), start_worker()
    router = start_router([worker, other], "--policy", "round-robin")
    for _ in range(4):
        assert call(router.url + "/v1/chat/completions", chat())[0] == 200
    assert sockets_to(worker.port, router.child.pid)
    call(router.url + "/workers/0", method="DELETE")
    wait_for(lambda: not sockets_to(worker.port, router.child.pid), 5)
    other.child.kill()
    wait_for(lambda: not sockets_to(other.port, router.child.pid), 5)
