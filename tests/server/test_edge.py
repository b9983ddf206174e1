"""The running program under TLS and on a UNIX socket."""

import os
import shutil
import signal
import socket
import ssl
import subprocess
import time
import urllib.parse

import httpx
import openai
import pytest

from conftest import BINARY, MODEL, NAME, ROOT

PEM = ROOT / "tests" / "data" / "tls"
QUESTION = [{"role": "user", "content": "Say hi."}]


def shown_certificate(port):
    with socket.create_connection(("127.0.0.1", port), timeout=10) as plain:
        context = ssl._create_unverified_context()
        with context.wrap_socket(plain, server_hostname="localhost") as wrapped:
            return wrapped.getpeercert(binary_form=True)


def test_openai_client_over_tls_under_the_filter(program_server, tmp_path):
    for name in ("cert.pem", "key.pem"):
        shutil.copy(PEM / name, tmp_path / name)
    address = program_server("--ssl-certfile", tmp_path / "cert.pem", "--ssl-keyfile", tmp_path / "key.pem", "--seccomp")
    assert address.startswith("https://127.0.0.1:")
    trust = ssl.create_default_context(cafile=PEM / "cert.pem")
    client = openai.OpenAI(base_url=address + "/v1", api_key="x", http_client=httpx.Client(verify=trust), timeout=60)
    stream = client.chat.completions.create(model=NAME, messages=QUESTION, max_tokens=8, temperature=0, stream=True)
    text = "".join(chunk.choices[0].delta.content or "" for chunk in stream if chunk.choices)
    whole = client.chat.completions.create(model=NAME, messages=QUESTION, max_tokens=8, temperature=0)
    assert text == whole.choices[0].message.content

    # A renewal, told by SIGHUP; a broken file changes nothing.
    port = urllib.parse.urlsplit(address).port
    before = shown_certificate(port)
    (tmp_path / "cert.pem").write_text("no certificate")
    program_server.child.send_signal(signal.SIGHUP)
    time.sleep(0.2)
    assert shown_certificate(port) == before and program_server.child.poll() is None
    assert program_server.stop() == 0


def test_a_unix_socket_is_served_and_removed(program_server, tmp_path):
    path = tmp_path / "api.sock"
    assert program_server("--uds", path, "--uds-mode", "660") == f"http+unix:{path}"
    assert path.stat().st_mode & 0o777 == 0o660
    transport = httpx.HTTPTransport(uds=str(path))
    client = openai.OpenAI(base_url="http://anything/v1", api_key="x", http_client=httpx.Client(transport=transport), timeout=60)
    assert client.models.list().data[0].id == NAME
    second = subprocess.run(
        [BINARY, "serve", "-m", MODEL, "--host", path], capture_output=True, text=True, timeout=60)
    assert second.returncode == 1 and "another server listens there" in second.stderr
    assert program_server.stop() == 0
    assert not path.exists()


@pytest.mark.parametrize("flags, told", [
    (["--ssl-certfile", "/none.pem"], "--ssl-certfile /none.pem: No such file or directory"),
    (["--ssl-cert-file", PEM / "cert.pem"], "name its file with --ssl-keyfile"),
    (["--ssl-certfile", PEM / "cert.pem", "--ssl-keyfile", PEM / "key.pem", "--ssl-cert-reqs", "2"], "--ssl-ca-certs"),
    (["--ssl-keyfile", PEM / "key.pem"], "--ssl-certfile"),
    (["--uds-mode", "660"], "--uds"),
])
def test_wrong_flags_end_the_start(flags, told):
    ended = subprocess.run([BINARY, "serve", "-m", MODEL, *map(str, flags)], capture_output=True, text=True, timeout=60)
    assert ended.returncode != 0 and told in ended.stderr


class ProgramServer:
    """Starts the program with its own flags and returns the address that it tells when it is ready."""

    child = None

    def __call__(self, *flags):
        self.child = subprocess.Popen(
            [BINARY, "serve", "-m", MODEL, "--port", "0", "--served-model-name", NAME, *map(str, flags)],
            stdout=subprocess.PIPE, text=True, env={"HEADRACE_PACKED_CACHE": "off", **os.environ})
        line = self.child.stdout.readline()
        assert line.startswith("listening on "), line
        while not self.child.stdout.readline().startswith("ready: "):
            assert self.child.poll() is None
        return line.removeprefix("listening on ").strip()

    def stop(self):
        self.child.send_signal(signal.SIGTERM)
        return self.child.wait(timeout=40)


@pytest.fixture
def program_server():
    for path in (BINARY, MODEL):
        if not os.path.exists(path):
            pytest.skip(f"{path} is missing: build and fetch first")
    server = ProgramServer()
    yield server
    if server.child:
        server.child.kill()
        server.child.wait()
        server.child.stdout.close()
