"""`headrace serve` as a process: it listens at once, gets ready, drains on a signal."""

import json
import re
import signal
import subprocess
import threading
import time
import urllib.error
import urllib.request

import pytest


class Server:
    def __init__(self, program, *arguments):
        self.child = program.start(
            "serve", "--port", "0", *arguments, stdout=subprocess.PIPE, stderr=subprocess.PIPE
        )
        line = self.child.stdout.readline().decode()
        found = re.fullmatch(r"listening on (http://\S+:\d+)\n", line)
        assert found, line + self.child.stderr.read().decode()
        self.url = found[1]

    def wait_ready(self):
        assert self.child.stdout.readline().decode().startswith("ready: ")
        return self

    def get(self, path, **headers):
        return self.send(urllib.request.Request(self.url + path, headers=headers))

    def post(self, path, body):
        data = json.dumps(body).encode()
        return self.send(
            urllib.request.Request(
                self.url + path, data=data, headers={"Content-Type": "application/json"}
            )
        )

    @staticmethod
    def send(request):
        try:
            with urllib.request.urlopen(request, timeout=60) as response:
                return response.status, response.read()
        except urllib.error.HTTPError as error:
            return error.code, error.read()

    def stop(self, signal_number=signal.SIGTERM):
        self.child.send_signal(signal_number)
        return self.child.wait(timeout=40)


@pytest.fixture
def serve(program):
    servers = []

    def start(*arguments):
        servers.append(Server(program, *arguments))
        return servers[-1]

    yield start
    for server in servers:
        server.child.kill()
        server.child.communicate()


def test_serves_the_positional_model_and_stops_on_sigterm(serve, model):
    server = serve(model, "--served-model-name", "smol").wait_ready()
    status, body = server.get("/v1/models")
    assert status == 200 and json.loads(body)["data"][0]["id"] == "smol"
    status, body = server.post(
        "/v1/completions", {"model": "smol", "prompt": "Once", "max_tokens": 4, "temperature": 0}
    )
    assert status == 200 and json.loads(body)["usage"]["completion_tokens"] == 4
    assert server.stop() == 0


@pytest.mark.timing
def test_interrupt_drains(serve, model):
    server = serve("-m", model).wait_ready()
    answers = []
    body = {"prompt": "Once", "max_tokens": 100, "ignore_eos": True}
    asking = threading.Thread(target=lambda: answers.append(server.post("/v1/completions", body)))
    asking.start()
    while json.loads(server.get("/load")[1])["server_load"] < 1:
        time.sleep(0.01)
    assert server.stop(signal.SIGINT) == 0
    asking.join()
    status, text = answers[0]
    assert status == 200 and json.loads(text)["usage"]["completion_tokens"] == 100


def test_api_key_from_the_environment(program, serve, model):
    program.environment["VLLM_API_KEY"] = "secret"
    try:
        server = serve("-m", model).wait_ready()
    finally:
        del program.environment["VLLM_API_KEY"]
    assert server.get("/v1/models")[0] == 401
    assert server.get("/v1/models", Authorization="Bearer secret")[0] == 200
    assert server.get("/health")[0] == 200


def test_a_model_that_does_not_load_ends_the_server(program, tmp_path):
    path = tmp_path / "broken.gguf"
    path.write_bytes(b"GGUF")
    done = program.run("serve", path, "--port", "0", check=1)
    assert b"broken.gguf" in done.stderr


def test_a_taken_port_is_an_error(program, serve, model):
    server = serve("-m", model).wait_ready()
    port = server.url.rsplit(":", 1)[1]
    assert port in program.error("serve", "-m", model, "--port", port)
