"""A stand-in for a server with OpenAI's API, and for one with metrics: it says what a test gives it to say."""

import http.server
import json
import threading
import time

MODELS = ["first-model", "second-model"]


class StandIn(http.server.ThreadingHTTPServer):
    """Answers chats with `pieces` (texts, or (text, "thought")), one an event."""

    daemon_threads = True

    def __init__(self):
        super().__init__(("127.0.0.1", 0), Handler)
        self.pieces = ["Hello."]
        self.status = 200
        self.key = None
        self.delay = 0  # seconds between events
        self.metrics = ""
        self.usage = True
        self.breaks_off = False  # in the middle of an answer
        self.refusal = "not today"  # what an answer of another status says
        self.raw = None  # bytes of a whole answer to a chat, instead of all else
        self.slow = {}  # path: seconds until it is answered
        self.drip = 0  # seconds between the bytes of metrics
        self.models = None  # (status, text) instead of the list
        self.bodies = []  # of chats, in the order of their coming
        self.gone = threading.Event()  # a client left before its answer's end
        threading.Thread(target=self.serve_forever, daemon=True).start()

    @property
    def url(self):
        return f"http://127.0.0.1:{self.server_address[1]}"

    def close(self):
        self.shutdown()
        self.server_close()


class Handler(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def log_message(self, *_):
        pass

    def send_whole(self, status, text, kind="application/json"):
        body = text.encode()
        self.send_response(status)
        self.send_header("Content-Type", kind)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def allowed(self):
        if self.server.key and self.headers.get("Authorization") != f"Bearer {self.server.key}":
            self.send_whole(401, json.dumps({"error": {"message": "wrong key"}}))
            return False
        return True

    def do_GET(self):
        if not self.allowed():
            return
        time.sleep(self.server.slow.get(self.path, 0))
        if self.path == "/v1/models" and self.server.models:
            self.send_whole(*self.server.models)
        elif self.path == "/v1/models":
            self.send_whole(200, json.dumps({"object": "list", "data": [{"id": name} for name in MODELS]}))
        elif self.path == "/metrics":
            self.send_metrics()
        else:
            self.send_whole(404, json.dumps({"error": {"message": f"no {self.path}"}}))

    def send_metrics(self):
        if not self.server.drip:
            self.send_whole(200, self.server.metrics, "text/plain")
            return
        self.close_connection = True
        self.wfile.write(b"HTTP/1.1 200 OK\r\n\r\n")
        for byte in self.server.metrics.encode():
            self.wfile.write(bytes([byte]))
            time.sleep(self.server.drip)

    def do_POST(self):
        body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        if not self.allowed():
            return
        self.server.bodies.append(body)
        if self.path != "/v1/chat/completions" or self.server.status != 200:
            self.send_whole(self.server.status if self.server.status != 200 else 404,
                            json.dumps({"error": {"message": self.server.refusal}}))
            return
        if self.server.raw is not None:
            self.wfile.write(self.server.raw)
            self.close_connection = True
            return
        self.send_response(200)
        self.send_header("Content-Type", "text/event-stream")
        self.send_header("Transfer-Encoding", "chunked")
        self.end_headers()
        try:
            self.stream()
        except OSError:
            self.server.gone.set()

    def stream(self):
        for piece in self.server.pieces:
            text, kind = piece if isinstance(piece, tuple) else (piece, "text")
            name = "reasoning_content" if kind == "thought" else "content"
            self.event({"choices": [{"index": 0, "delta": {name: text}}]})
            time.sleep(self.server.delay)
        if self.server.breaks_off:
            self.close_connection = True
            return
        if self.server.usage:
            self.event({"choices": [], "usage": {"prompt_tokens": 11, "completion_tokens": 7, "total_tokens": 18}})
        self.chunk(b"data: [DONE]\n\n")
        self.wfile.write(b"0\r\n\r\n")

    def event(self, value):
        self.chunk(f"data: {json.dumps(value)}\n\n".encode())

    def chunk(self, data):
        self.wfile.write(f"{len(data):x}\r\n".encode() + data + b"\r\n")
        self.wfile.flush()
