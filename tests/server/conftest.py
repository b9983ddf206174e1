"""A running `headrace serve` with a real model, and OpenAI clients for it."""

import importlib.util
import os
import pathlib
import re
import resource
import signal
import subprocess
import time
import urllib.error
import urllib.request
import zipfile

import openai
import pytest

# Suites whose packages are in an environment of their own, or in none.
NEEDS = {"llama_index": "llama_index", "lm_eval": "lm_eval", "schemathesis": "schemathesis", "schemas": "jsonschema_rs"}
collect_ignore = [f"test_{suite}.py" for suite, package in NEEDS.items() if not importlib.util.find_spec(package)]


def pytest_configure(config):
    config.addinivalue_line("markers", "timing: looks at a clock or races a signal; ./test may try it again")


ROOT = pathlib.Path(__file__).resolve().parents[2]
BINARY = os.environ.get("HEADRACE_BINARY") or os.environ.get("HEADRACE_BIN") or str(ROOT / "build" / "headrace")
MODEL = os.environ.get(
    "HEADRACE_MODEL_SMOLLM2",
    os.path.expanduser("~/.cache/headrace/models/SmolLM2-135M-Instruct.Q4_1.gguf"),
)
MINILM = os.environ.get("HEADRACE_MODEL_MINILM",
                        os.path.expanduser("~/.cache/headrace/models/all-MiniLM-L6-v2.zip"))
SCRIPTED = pathlib.Path(os.environ.get("HEADRACE_SCRIPTED_SERVER") or pathlib.Path(BINARY).parent / "src/server/scripted_server")
NAME = "smol"


class RunningServer:
    """The server as a child process on a free port of loopback."""

    def __init__(self, *arguments, environment=None, log=None, file_bytes_max=None, preexec=None, names=(NAME,),
                 model=MODEL):
        """`log`: a file for stderr. `names`: of the model; none: its own. `file_bytes_max`: what RLIMIT_FSIZE lets a file
        of the server have. `preexec`: called in the child before it becomes the server."""
        limit = preexec or (file_bytes_max and (lambda: resource.setrlimit(resource.RLIMIT_FSIZE, (file_bytes_max,) * 2)))
        self.child = subprocess.Popen(
            [BINARY, "serve", "-m", str(model), "--port", "0", "--batch-invariant",
             *(["--served-model-name", *names] if names else []), *map(str, arguments)],
            stdout=subprocess.PIPE,
            stderr=open(log, "w") if log else subprocess.DEVNULL,
            env={"HEADRACE_PACKED_CACHE": "off", **os.environ, **(environment or {})},
            preexec_fn=limit,
        )
        line = self.child.stdout.readline().decode()
        found = re.search(r"listening on (http://\S+:\d+)", line)
        assert found, f"no address in {line!r}"
        self.url = found[1]

    def wait_ready(self, seconds=60):
        deadline = time.monotonic() + seconds
        while self.health() != 200:
            assert self.child.poll() is None, "the server ended while loading"
            assert time.monotonic() < deadline, "not ready in time"
            time.sleep(0.02)
        return self

    def health(self):
        try:
            return urllib.request.urlopen(self.url + "/health", timeout=10).status
        except urllib.error.HTTPError as error:
            return error.code
        except ConnectionError:  # closed under the request, as it happens to who comes while a drain begins
            return 0

    def client(self, **options):
        options = {"api_key": "unused", "max_retries": 0, "timeout": 120, **options}
        return openai.OpenAI(base_url=self.url + "/v1", **options)

    def async_client(self, **options):
        options = {"api_key": "unused", "max_retries": 0, "timeout": 120, **options}
        return openai.AsyncOpenAI(base_url=self.url + "/v1", **options)

    def metric(self, name):
        """The sum over the series of a Prometheus metric."""
        text = urllib.request.urlopen(self.url + "/metrics", timeout=10).read().decode()
        values = re.findall(rf"^{re.escape(name)}(?:\{{[^}}]*\}})? (\S+)$", text, re.MULTILINE)
        assert values, f"no metric {name}"
        return sum(map(float, values))

    def wait_idle(self, seconds=10):
        """Until nothing runs and every KV block is free."""
        deadline = time.monotonic() + seconds
        while self.metric("vllm:num_requests_running") + self.metric("vllm:num_requests_waiting") > 0 or (
            self.metric("vllm:kv_cache_usage_perc") > 0
        ):
            assert time.monotonic() < deadline, "requests or blocks left over"
            time.sleep(0.02)

    def terminate(self, seconds=40):
        """SIGTERM; returns the exit code."""
        self.child.send_signal(signal.SIGTERM)
        return self.child.wait(timeout=seconds)

    def kill(self):
        if self.child.poll() is None:
            self.child.kill()
        self.child.wait()
        self.child.stdout.close()


@pytest.fixture
def start_server():
    """Starts servers with their own flags; they end with the test."""
    for path in (BINARY, MODEL):
        if not os.path.exists(path):
            pytest.skip(f"{path} is missing: build and fetch first")
    servers = []

    def start(*arguments, **options):
        servers.append(RunningServer(*arguments, **options))
        return servers[-1].wait_ready()

    yield start
    for server in servers:
        server.kill()


@pytest.fixture(scope="session")
def server():
    """One server that all tests without wishes of their own share."""
    for path in (BINARY, MODEL):
        if not os.path.exists(path):
            pytest.skip(f"{path} is missing: build and fetch first")
    running = RunningServer("--max-model-len", 2048, "--max-num-seqs", 64)
    yield running.wait_ready()
    running.kill()


@pytest.fixture(scope="session")
def minilm(tmp_path_factory):
    """One server with a real encoder."""
    for path in (BINARY, MINILM):
        if not os.path.exists(path):
            pytest.skip(f"{path} is missing: build and fetch first")
    folder = tmp_path_factory.mktemp("minilm")
    with zipfile.ZipFile(MINILM) as packed:
        packed.extractall(folder)
    running = RunningServer("--batch-dir", tmp_path_factory.mktemp("minilm-batches"), model=folder)
    yield running.wait_ready()
    running.kill()


@pytest.fixture
def client(server):
    return server.client()


@pytest.fixture
def scripted_url(tmp_path):
    """Starts servers that give these answers, one a request, from the front again behind the last."""
    if not SCRIPTED.exists():
        pytest.skip(f"{SCRIPTED} is missing: build the tests first")
    children = []

    def start(*answers, tools="hermes", reasoning="qwen3", forms=False):
        script = tmp_path / f"script{len(children)}"
        script.write_bytes("\x1e".join(answers).encode())
        children.append(subprocess.Popen([SCRIPTED, script, tools, reasoning, *(["forms"] if forms else [])], stdout=subprocess.PIPE, text=True))
        return re.search(r"listening on (\S+)", children[-1].stdout.readline())[1]

    yield start
    for child in children:
        child.kill()
        child.wait()
        child.stdout.close()


@pytest.fixture
def scripted(scripted_url):
    """Their OpenAI clients."""

    def start(*answers, **options):
        return openai.OpenAI(base_url=scripted_url(*answers, **options) + "/v1", api_key="unused", max_retries=0, timeout=60)

    return start
