"""Spans over OTLP/HTTP, as a collector sees them, and logs as JSON."""

import http.server
import json
import re
import ssl
import threading
import time
import urllib.request

import pytest

from conftest import NAME, ROOT

CERTIFICATE = ROOT / "tests/data/tls/cert.pem"  # of localhost and 127.0.0.1, signed by itself

TRACE = "0af7651916cd43dd8448eb211c80319c"
PARENT = "b7ad6b7169203331"


class Collector:
    """Takes spans as an OpenTelemetry collector does."""

    def __init__(self, status=200, seconds=0, tls=False, host="127.0.0.1"):
        self.requests = []
        collector = self

        class Handler(http.server.BaseHTTPRequestHandler):
            def do_POST(self):
                body = self.rfile.read(int(self.headers["Content-Length"]))
                time.sleep(seconds)
                collector.requests.append((self.path, self.headers, json.loads(body)))
                self.send_response(status)
                self.end_headers()
                self.wfile.write(b"{}")

            def log_message(self, *args):
                pass

        self.server = http.server.ThreadingHTTPServer((host, 0), Handler)
        self.url = f"http{'s' if tls else ''}://{host}:{self.server.server_port}"
        if tls:
            context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
            context.load_cert_chain(CERTIFICATE, CERTIFICATE.with_name("key.pem"))
            self.server.socket = context.wrap_socket(self.server.socket, server_side=True)
        threading.Thread(target=self.server.serve_forever, daemon=True).start()

    def spans(self, count, seconds=20):
        deadline = time.monotonic() + seconds
        while True:
            found = [
                span
                for _, _, body in list(self.requests)
                for resource in body["resourceSpans"]
                for scope in resource["scopeSpans"]
                for span in scope["spans"]
            ]
            if len(found) >= count:
                return found
            assert time.monotonic() < deadline, f"{len(found)} of {count} spans"
            time.sleep(0.05)

    def close(self):
        self.server.shutdown()
        self.server.server_close()


@pytest.fixture
def collector():
    made = []

    def make(**options):
        made.append(Collector(**options))
        return made[-1]

    yield make
    for each in made:
        each.close()


def post(url, body, **headers):
    request = urllib.request.Request(url, json.dumps(body).encode(), {"Content-Type": "application/json", **headers})
    return json.load(urllib.request.urlopen(request, timeout=60))


def attributes(span):
    read = {"intValue": int, "doubleValue": float, "stringValue": str}
    found = {}
    for entry in span["attributes"]:
        ((kind, value),) = entry["value"].items()
        found[entry["key"]] = read[kind](value)
    return found


def test_a_span_continues_the_trace_of_the_request(start_server, collector):
    there = collector()
    server = start_server("--otlp-traces-endpoint", there.url,
                          environment={"OTEL_SERVICE_NAME": "smol-service", "OTEL_EXPORTER_OTLP_HEADERS": "x-team=a%20b, x-key=1"})
    before = time.time_ns()
    chat = {"model": NAME, "messages": [{"role": "user", "content": "SECRET-WORD"}], "max_tokens": 5, "temperature": 0.5, "top_p": 0.75, "seed": 1}
    answer = post(server.url + "/v1/chat/completions", chat,
                  traceparent=f"00-{TRACE}-{PARENT}-01", tracestate="vendor=1, other=2", **{"X-Request-Id": "my-id"})
    after = time.time_ns()
    (span,) = there.spans(1)
    path, headers, body = there.requests[0]
    assert path == "/v1/traces" and headers["Content-Type"] == "application/json"
    assert (headers["x-team"], headers["x-key"]) == ("a b", "1")
    (resource,) = body["resourceSpans"]
    assert {"key": "service.name", "value": {"stringValue": "smol-service"}} in resource["resource"]["attributes"]
    assert resource["scopeSpans"][0]["scope"]["name"] == "headrace"
    assert (span["traceId"], span["parentSpanId"], span["traceState"]) == (TRACE, PARENT, "vendor=1, other=2")
    assert re.fullmatch("[0-9a-f]{16}", span["spanId"]) and span["spanId"] != PARENT
    assert (span["name"], span["kind"], span["status"]) == ("llm_request", 2, {})
    assert before <= int(span["startTimeUnixNano"]) <= int(span["endTimeUnixNano"]) <= after
    found = attributes(span)
    usage = answer["usage"]
    assert found["gen_ai.request.id"] == "my-id"
    assert found["gen_ai.response.model"] == NAME
    assert (found["gen_ai.usage.prompt_tokens"], found["gen_ai.usage.completion_tokens"]) == (usage["prompt_tokens"], usage["completion_tokens"])
    assert (found["gen_ai.request.max_tokens"], found["gen_ai.request.n"]) == (5, 1)
    assert (found["gen_ai.request.temperature"], found["gen_ai.request.top_p"]) == (0.5, 0.75)
    parts = [found[f"gen_ai.latency.{name}"] for name in ("time_in_queue", "time_in_model_prefill", "time_in_model_decode")]
    assert sum(parts) == pytest.approx(found["gen_ai.latency.e2e"], rel=0.01)
    assert parts[0] <= found["gen_ai.latency.time_to_first_token"] <= found["gen_ai.latency.e2e"]
    assert "SECRET-WORD" not in json.dumps(body)
    assert answer["choices"][0]["message"]["content"] not in json.dumps(body)


def test_traces_begin_here_and_unsampled_ones_are_left_out(start_server, collector):
    there = collector()
    server = start_server("--otlp-traces-endpoint", there.url + "/my/path")
    body = {"model": NAME, "prompt": "a", "max_tokens": 2}
    for parent in (f"00-{TRACE}-{PARENT}-00", None, "00-nonsense-01", f"00-{'0' * 32}-{PARENT}-01", f"00-{TRACE}-{PARENT}-01-more"):
        post(server.url + "/v1/completions", body, **({"traceparent": parent} if parent else {}))
    post(server.url + "/v1/completions", body, traceparent=f"01-{TRACE}-{PARENT}-01-more")
    spans = there.spans(5)
    assert there.requests[0][0] == "/my/path"
    assert len(spans) == 5  # the first was not sampled
    assert [span["traceId"] == TRACE for span in spans] == [False] * 4 + [True]
    assert all(("parentSpanId" in span) == (span["traceId"] == TRACE) for span in spans)
    assert len({span["traceId"] for span in spans}) == len({span["spanId"] for span in spans}) == 5
    deadline = time.monotonic() + 10
    while server.metric("headrace:trace_spans_total") < 5:
        assert time.monotonic() < deadline
        time.sleep(0.05)


def test_the_last_spans_are_sent_at_the_end(start_server, collector):
    there = collector()
    server = start_server("--otlp-traces-endpoint", there.url)
    post(server.url + "/v1/completions", {"model": NAME, "prompt": "a", "max_tokens": 2})
    assert server.terminate() == 0
    assert len(there.spans(1, seconds=1)) == 1


@pytest.mark.timing
@pytest.mark.parametrize("fault", ["none there", "refuses", "slow"])
def test_a_bad_collector_costs_spans_and_no_time(start_server, collector, tmp_path, fault):
    there = collector(status=503 if fault == "refuses" else 200, seconds=30 if fault == "slow" else 0)
    url = there.url
    if fault == "none there":
        there.close()
    log = tmp_path / "log"
    server = start_server("--otlp-traces-endpoint", url, log=log)
    began = time.monotonic()
    for _ in range(20):
        post(server.url + "/v1/completions", {"model": NAME, "prompt": "a", "max_tokens": 1})
    assert time.monotonic() - began < 5
    deadline = time.monotonic() + 15
    pattern = re.compile(r'^headrace:trace_spans_total\{.*outcome="dropped".*\} (\d+)', re.MULTILINE)
    while True:
        text = urllib.request.urlopen(server.url + "/metrics").read().decode()
        if int(pattern.search(text)[1]) > 0:
            break
        assert time.monotonic() < deadline
        time.sleep(0.1)
    assert log.read_text().count("spans are dropped") == 1
    began = time.monotonic()
    assert server.terminate() == 0
    assert time.monotonic() - began < 10


@pytest.mark.parametrize("url,word", [("grpc://a:4317", "4318"), ("localhost:4318", "http://HOST"),
                                      ("http://:80", "http://HOST"), ("https://:80", "https://"), ("http://a:99999", "http://HOST")])
def test_endpoints_that_cannot_be_are_refused_at_the_start(url, word):
    import subprocess

    from conftest import BINARY, MODEL

    done = subprocess.run([BINARY, "serve", "-m", MODEL, "--port", "0", "--otlp-traces-endpoint", url],
                          capture_output=True, text=True, timeout=60)
    assert done.returncode != 0
    assert "--otlp-traces-endpoint" in done.stderr and word in done.stderr


def test_spans_over_tls(start_server, collector):
    trusted = collector(tls=True)
    server = start_server("--otlp-traces-endpoint", trusted.url, environment={"OTEL_EXPORTER_OTLP_CERTIFICATE": str(CERTIFICATE)})
    post(server.url + "/v1/completions", {"model": NAME, "prompt": "Hi", "max_tokens": 2})
    assert trusted.spans(1)[0]["name"] == "llm_request"


@pytest.mark.parametrize("host, environment, why", [
    ("127.0.0.1", {}, "not trusted"),  # nobody whom the system knows has signed it
    ("127.0.0.2", {"OTEL_EXPORTER_OTLP_CERTIFICATE": str(CERTIFICATE)}, "not trusted: .*mismatch"),
])
def test_a_collector_that_is_not_trusted_gets_nothing(start_server, collector, tmp_path, host, environment, why):
    other = collector(tls=True, host=host)
    log = tmp_path / "log"
    server = start_server("--otlp-traces-endpoint", other.url, log=log,
                          environment=environment)
    post(server.url + "/v1/completions", {"model": NAME, "prompt": "Hi", "max_tokens": 2})
    deadline = time.monotonic() + 20
    while "spans are dropped" not in log.read_text():
        assert time.monotonic() < deadline
        time.sleep(0.05)
    assert re.search(f"certificate is {why}", log.read_text())
    assert not other.requests


def test_authorities_that_cannot_be_read_are_refused_at_the_start():
    import os
    import subprocess

    from conftest import BINARY, MODEL

    done = subprocess.run([BINARY, "serve", "-m", MODEL, "--port", "0", "--otlp-traces-endpoint", "https://a:4318"],
                          capture_output=True, text=True, timeout=60,
                          env={**os.environ, "OTEL_EXPORTER_OTLP_CERTIFICATE": "/nonexistent.pem"})
    assert done.returncode != 0
    assert "OTEL_EXPORTER_OTLP_CERTIFICATE" in done.stderr and "/nonexistent.pem" in done.stderr


def test_logs_as_json_without_a_word_of_the_prompt(start_server, tmp_path):
    log = tmp_path / "log"
    server = start_server("--log-format", "json", "--log-level", "debug", log=log)
    answer = post(server.url + "/v1/completions", {"model": NAME, "prompt": "SECRET-WORD", "max_tokens": 8}, **{"X-Request-Id": "my-id"})
    assert server.terminate() == 0
    lines = [json.loads(line) for line in log.read_text().splitlines()]
    assert all(set(line) >= {"time", "level", "message"} for line in lines)
    (line,) = [line for line in lines if line.get("path") == "/v1/completions"]
    assert (line["method"], line["status"], line["request_id"], line["level"]) == ("POST", 200, "my-id", "info")
    assert line["duration_ms"] > 0 and line["bytes"] > 0
    text = log.read_text()
    assert "SECRET-WORD" not in text and answer["choices"][0]["text"] not in text
