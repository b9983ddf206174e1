"""A worker for tests of the router: answers at once, says the same for the same request, keeps the journal of docs/scale.md.

    stand_in_worker.py [--gap SECONDS] [--model NAME] [--fingerprint TEXT]

Prints "listening on URL". POST /fault {"kind": KIND, "after": N} makes the next stream do KIND behind N arrivals: `break` (the
connection), `half` (inside of an event), `error` (an error event), `hang` (nothing comes any more); or `busy` (the next request is
a 503), `fail` (a 500).
"""

import argparse
import http.server
import json
import socket
import threading
import time

TOKENS = 30


class Worker(http.server.ThreadingHTTPServer):
    daemon_threads = True
    request_queue_size = 512

    def handle_error(self, request, client_address):
        pass  # a client that has left


class Handler(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    options = None
    faults = []
    files = {}
    seen = []  # what came: path, headers, body
    lock = threading.Lock()

    def log_message(self, *_):
        pass

    def setup(self):
        super().setup()
        self.connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)

    def answer(self, status, body, headers=()):
        data = json.dumps(body).encode() if not isinstance(body, bytes) else body
        self.send_response(status)
        self.send_header("Content-Type", "application/json")
        for name, value in headers:
            self.send_header(name, value)
        self.send_header("Content-Length", str(len(data)))
        self.end_headers()
        self.wfile.write(data)

    def chunk(self, data):
        self.wfile.write(b"%x\r\n%s\r\n" % (len(data), data))
        self.wfile.flush()

    def take_fault(self, kinds):
        with self.lock:
            for fault in self.faults:
                if fault["kind"] in kinds:
                    self.faults.remove(fault)
                    return fault
        return {"kind": "", "after": -1}

    def do_GET(self):
        if self.path == "/health":
            return self.answer(200, {"status": "ok"})
        if self.path == "/v1/models":
            return self.answer(200, {"object": "list", "data": [{"id": self.options.model, "max_model_len": 2048}]})
        if self.path == "/metrics":
            return self.answer(200, b"# of a Headrace server\nheadrace:stand_in 1\n")
        if self.path == "/seen":
            return self.answer(200, self.seen)
        if self.path.startswith("/v1/files/"):
            name = self.path.split("/")[3]
            return self.answer(*((200, self.files[name]) if name in self.files else (404, {"error": {"message": "no such file"}})))
        if self.path == "/large":
            return self.answer(200, b"x" * (20 << 20))
        self.answer(404, {"error": {"message": "no such route"}})

    def do_POST(self):
        body = self.rfile.read(int(self.headers.get("Content-Length", 0)))
        if self.path == "/fault":
            self.faults.append(json.loads(body))
            return self.answer(200, {})
        with self.lock:
            self.seen.append({"path": self.path, "headers": dict(self.headers), "body": body.decode("utf8", "replace")[:4096]})
        if self.path == "/v1/files":
            name = f"file-{self.options.fingerprint}{len(self.files)}"
            self.files[name] = {"id": name, "object": "file"}
            return self.answer(200, self.files[name])
        if self.take_fault(["busy"])["kind"]:
            return self.answer(503, {"error": {"message": "no room"}}, [("Retry-After", "1")])
        if self.take_fault(["fail"])["kind"]:
            return self.answer(500, {"error": {"message": "the model gave no valid output"}})
        request = json.loads(body)
        lines = self.path.startswith("/api/")
        choices = request.get("n", 1)
        if not request.get("stream", lines):
            time.sleep(self.options.gap)
            texts = ["".join(self.word(request, c, i) for i in range(TOKENS)) for c in range(choices)]
            return self.answer(200, {"choices": [{"index": c, "message": {"content": text}} for c, text in enumerate(texts)]})
        resume = request.pop("headrace_resume", None)
        if resume and resume["head"]["fingerprint"] != self.options.fingerprint and not resume.get("inexact"):
            return self.answer(409, {"error": {"message": "another build"}})
        self.stream(request, lines, choices, resume)

    def word(self, request, choice, i):
        key = json.dumps([request.get("messages"), request.get("prompt"), request.get("seed"), choice, i])
        return f" {sum(key.encode()) * 31 % 997}"

    def events(self, request, lines, choice, i, done):
        """Of one arrival: one, or several."""
        if lines:
            return [json.dumps({"message": {"content": self.word(request, choice, i)}, "done": done}).encode() + b"\n"]
        chunk = {"choices": [{"index": choice, "delta": {"content": self.word(request, choice, i)}}]}
        events = [b"data: " + json.dumps(chunk).encode() + b"\n\n"]
        if i % 5 == 0:  # of no text
            events.append(b"data: " + json.dumps({"choices": [{"index": choice, "delta": {}}]}).encode() + b"\n\n")
        if done:
            events.append(b"data: [DONE]\n\n")
        return events

    def stream(self, request, lines, choices, resume):
        journal = self.headers.get("X-Headrace-Journal") == "1"
        fault = self.take_fault(["break", "half", "error", "hang"])
        self.send_response(200)
        self.send_header("Content-Type", "application/x-ndjson" if lines else "text/event-stream")
        self.send_header("Transfer-Encoding", "chunked")
        self.end_headers()
        order = [(c, i) for i in range(TOKENS) for c in range(choices)]
        begin = 0
        if resume:
            begin = len(resume["journal"])
            assert [tuple(each) for each in resume["journal"]] == order[:begin], "the journal was changed"
            if resume.get("resend_last") and begin:
                for event in self.events(request, lines, *order[begin - 1], begin == len(order)):
                    self.chunk(event)
        elif journal:
            self.chunk(b': journal {"head": {"fingerprint": "%s", "seed": 1}}\n\n' % self.options.fingerprint.encode())
        for at in range(begin, len(order)):
            time.sleep(self.options.gap)
            if journal:
                self.chunk(b": journal " + json.dumps(order[at]).encode() + b"\n\n")
            events = self.events(request, lines, *order[at], at == len(order) - 1)
            if at - begin == fault["after"]:
                return self.do_fault(fault["kind"], events[0])
            for event in events:
                self.chunk(event)
        self.wfile.write(b"0\r\n\r\n")

    def do_fault(self, kind, event):
        if kind == "half":
            self.chunk(event[: len(event) // 2])
        if kind == "error":
            self.chunk(b'data: {"error":{"message":"the model gave no valid output"}}\n\n')
            self.chunk(b"data: [DONE]\n\n")
            self.wfile.write(b"0\r\n\r\n")
            return
        if kind == "hang":
            time.sleep(3600)
        self.connection.shutdown(socket.SHUT_RDWR)
        self.close_connection = True


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--gap", type=float, default=0.002)
    parser.add_argument("--model", default="m")
    parser.add_argument("--fingerprint", default="f")
    parser.add_argument("--port", type=int, default=0)
    Handler.options = parser.parse_args()
    server = Worker(("127.0.0.1", Handler.options.port), Handler)
    print(f"listening on http://127.0.0.1:{server.server_port}", flush=True)
    server.serve_forever()


main()
