"""A stand-in for a Hugging Face hub, for the storage that it redirects to, and for Ollama's registry: with the faults that a test asks for."""

import functools
import hashlib
import http.server
import json
import random
import ssl
import threading
import time
import urllib.parse

COMMIT = "0123456789abcdef0123456789abcdef01234567"
LFS_BYTES = 1000  # files from this size on have a SHA-256


@functools.lru_cache(maxsize=4096)
def sha256(data):
    return hashlib.sha256(data).hexdigest()


def git_hash(data):
    return hashlib.sha1(b"blob %d\0" % len(data) + data).hexdigest()


class StandInHub(http.server.ThreadingHTTPServer):
    """`models`: {"maker/name": {path: bytes}}. `faults`: called with the number of a request for a file's bytes and the range
    that it asks for; gives a fault's name or None. Bytes of large files come from `storage`, another server, by a redirect."""

    daemon_threads = True
    request_queue_size = 128

    def __init__(self, models, storage=None, certificate=None):
        super().__init__(("127.0.0.1", 0), Handler)
        self.scheme = "http"
        if certificate:  # (file, key): under TLS
            context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
            context.load_cert_chain(*certificate)
            self.socket = context.wrap_socket(self.socket, server_side=True)
            self.scheme = "https"
        self.models = models
        self.ollama = {}  # {"library/name:tag": bytes}
        self.storage = storage
        self.hub = None  # of a storage
        self.faults = lambda number, span: None
        self.private = {}  # name: the token that opens it
        self.gated = set()
        self.change = lambda: None  # done after "drop and change"
        self.retry_after = None
        self.location = None  # where every file is said to lie
        self.drip_seconds = 0.2
        self.lock = threading.Lock()
        self.requests = []  # (path, range, whether a token came), of files
        self.changes = {}  # of what the hub says of a model: key: value
        self.validators = {}  # headers of a file: ETag, Last-Modified; If-Range is obeyed by them
        threading.Thread(target=self.serve_forever, kwargs={"poll_interval": 0.02}, daemon=True).start()

    @property
    def url(self):
        return f"{self.scheme}://127.0.0.1:{self.server_address[1]}"

    def close(self):
        self.shutdown()
        self.server_close()

    def handle_error(self, request, client_address):
        pass  # a client that left

    def number_of(self, path, span, token):
        with self.lock:
            self.requests.append((path, span, token))
            return len(self.requests)


class Handler(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True

    def log_message(self, *_):
        pass

    def token(self):
        return (self.headers.get("Authorization") or "").removeprefix("Bearer ")

    def send_whole(self, status, text, **headers):
        body = text if isinstance(text, bytes) else text.encode()
        self.send_response(status)
        self.send_header("Content-Length", str(len(body)))
        for name, value in headers.items():
            self.send_header(name.replace("_", "-"), value)
        self.end_headers()
        self.wfile.write(body)

    def do_GET(self):
        path = urllib.parse.urlsplit(self.path)
        words = [urllib.parse.unquote(word) for word in path.path.strip("/").split("/")]
        if path.path == "/api/models":
            return self.send_search(urllib.parse.parse_qs(path.query))
        if words[:2] == ["api", "models"]:
            return self.send_model("/".join(words[2:4]))
        if words[0] == "v2":
            return self.send_ollama(words)
        if words[0] == "storage":
            return self.send_file(self.server.hub.models["/".join(words[1:3])]["/".join(words[3:])])
        if words[0] == "plain":
            return self.send_file(self.server.models["plain"]["/".join(words[1:])])
        return self.resolve("/".join(words[:2]), words[3], "/".join(words[4:]))

    def send_search(self, query):
        word = query["search"][0].lower().split("-")[0]
        found = [name for name in self.server.models if word in name.lower()][: int(query["limit"][0])]
        self.send_whole(200, json.dumps([{"id": name, "downloads": 7, "tags": ["gguf"]} for name in found]))

    def refused(self, name):
        if name in self.server.gated and not self.token():
            self.send_whole(401, "{}", X_Error_Code="GatedRepo")
        elif name not in self.server.models or self.server.private.get(name, self.token()) != self.token():
            self.send_whole(401, "{}", X_Error_Code="RepoNotFound")
        else:
            return False
        return True

    def send_model(self, name):
        if self.refused(name):
            return
        if self.server.faults(self.server.number_of(self.path, None, self.token()), "model") == "busy":
            retry = {"Retry_After": str(self.server.retry_after)} if self.server.retry_after else {}
            return self.send_whole(503, "", **retry)
        siblings = []
        for path, data in self.server.models[name].items():
            sibling = {"rfilename": path, "size": len(data), "blobId": git_hash(data)}
            if len(data) >= LFS_BYTES:
                sibling["lfs"] = {"sha256": sha256(data), "size": len(data), "pointerSize": 130}
            siblings.append(sibling)
        self.send_whole(200, json.dumps({"id": name, "sha": COMMIT, "siblings": siblings, **self.server.changes}))

    def send_ollama(self, words):
        name = "/".join(words[1:3])
        if words[3] == "manifests":
            data = self.server.ollama.get(f"{name}:{words[4]}")
            if data is None:
                return self.send_whole(404, "{}")
            layers = [{"mediaType": "application/vnd.ollama.image.license", "digest": "sha256:" + "0" * 64, "size": 3},
                      {"mediaType": "application/vnd.ollama.image.model", "size": len(data),
                       "digest": "sha256:" + sha256(data)}]
            return self.send_whole(200, json.dumps({"schemaVersion": 2, "layers": layers}))
        for data in self.server.ollama.values():
            if words[4] == "sha256:" + sha256(data):
                return self.send_file(data)
        return self.send_whole(404, "")

    def resolve(self, name, commit, path):
        if self.refused(name):
            return
        data = self.server.models[name].get(path) if commit == self.server.changes.get("sha", COMMIT) else None
        if data is None:
            return self.send_whole(404, "")
        storage = self.server.storage
        if storage is None or len(data) < LFS_BYTES:
            return self.send_file(data)
        self.send_whole(302, "", Location=f"{storage.url}/storage/{name}/{urllib.parse.quote(path)}",
                        X_Linked_Etag=f'"{sha256(data)}"')

    def span_of(self, size):
        header = self.headers.get("Range")
        condition = self.headers.get("If-Range")
        if not header or (condition and condition not in self.server.validators.values()):
            return None
        first, last = header.removeprefix("bytes=").split("-")
        return int(first), min(int(last) + 1, size)

    def send_file(self, data):
        span = self.span_of(len(data))
        number = self.server.number_of(self.path, span, self.token())
        fault = self.server.faults(number, span)
        if self.server.location:
            return self.send_whole(302, "", Location=self.server.location)
        if fault in ("ignore range", "whole of wrong bytes"):
            span = None
        elif fault in ("busy", "too many", "broken"):
            status = {"busy": 503, "too many": 429, "broken": 500}[fault]
            extra = {"Retry_After": str(self.server.retry_after)} if self.server.retry_after else {}
            return self.send_whole(status, "x", **extra)
        elif fault == "refuse":
            self.close_connection = True
            return None
        first, end = span or (0, len(data))
        body = memoryview(data)[first:end]
        total = len(data)
        if fault in ("wrong bytes", "whole of wrong bytes") and body:
            body = bytes([body[0] ^ 1]) + bytes(body[1:])
        elif fault == "other range" and span:
            first += 1
        elif fault == "wrong total":
            total += 1000
        elif fault == "cut short":  # and says so
            body = body[: len(body) // 2]
        self.send_response(206 if span else 200)
        length = len(body) + (1000 if fault == "wrong total" and not span else 0)
        self.send_header("Content-Length", str(length))
        self.send_header("Accept-Ranges", "bytes")
        for name, value in self.server.validators.items():
            self.send_header(name, value)
        if span:
            self.send_header("Content-Range", f"bytes {first}-{end - 1}/{total}")
        self.end_headers()
        if fault in ("drop", "drop and change"):
            body = body[: random.Random(number).randrange(len(body) + 1)]
            self.close_connection = True
        if fault == "stall":
            self.wfile.write(body[: len(body) // 2])
            time.sleep(30)
            self.close_connection = True
            return None
        if fault == "drip":
            for at in range(0, len(body), max(1, len(body) // 10)):
                self.wfile.write(body[at : at + max(1, len(body) // 10)])
                time.sleep(self.server.drip_seconds / 10)
            return None
        self.wfile.write(body)
        if fault == "drop and change":
            self.server.change()
        if fault == "wrong total":
            self.close_connection = True
        return None
