"""Workers that enter themselves into etcd, and a router that finds them there."""

import shutil
import socket
import subprocess
import time

import pytest

import tiny_worker_model
from conftest import BINARY, MODEL
from test_route import Process, call, processes, wait_for, workers_of  # noqa: F401 (a fixture)

ETCD = shutil.which("etcd")
needs_etcd = pytest.mark.skipif(ETCD is None, reason="there is no etcd: apt-get install etcd-server")


def free_port():
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


class Etcd:
    def __init__(self, folder):
        self.port = free_port()
        url = f"http://127.0.0.1:{self.port}"
        self.words = [ETCD, "--data-dir", str(folder / "etcd"), "--listen-client-urls", url, "--advertise-client-urls", url,
                      "--listen-peer-urls", f"http://127.0.0.1:{free_port()}", "--log-level", "error"]
        self.start()

    def start(self):
        self.child = subprocess.Popen(self.words, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        wait_for(lambda: self.answers(), 30)

    def answers(self):
        try:
            return call(f"http://127.0.0.1:{self.port}/health", timeout=2)[0] == 200
        except OSError:
            return False

    def end(self):
        self.child.kill()
        self.child.wait()


@pytest.fixture(scope="module")
def tiny(tmp_path_factory):
    path = tmp_path_factory.mktemp("model") / "tiny.gguf"
    tiny_worker_model.make_file(MODEL, path)
    return path


@needs_etcd
def test_workers_come_and_go_by_their_leases(processes, tmp_path, tiny):  # noqa: F811
    etcd = Etcd(tmp_path)
    processes.append(etcd)

    def start_worker():
        processes.append(Process(BINARY, "serve", "-m", tiny, "--port", 0, "--batch-invariant", "--threads", 1, "--max-model-len", 512,
                                 "--served-model-name", "tiny", "--kv-cache-memory-bytes", "32M",
                                 "--register-etcd", f"127.0.0.1:{etcd.port}/blue", "--etcd-lease", 2))
        return processes[-1]

    one, two = start_worker(), start_worker()
    router = Process(BINARY, "route", "--port", 0, "--worker", f"etcd:127.0.0.1:{etcd.port}/blue", "--poll-interval", 0.2,
                     "--progress-bound", 2, "--resolve-interval", 0.2)
    processes.append(router)

    def known(*workers):
        listed = workers_of(router)
        return {each["url"] for each in listed} == {each.url for each in workers} and all(each["state"] == "up" for each in listed)

    def answers():
        return call(router.url + "/v1/completions", {"model": "tiny", "prompt": "a", "max_tokens": 3})[0] == 200

    wait_for(lambda: known(one, two), 60)
    assert answers()
    one.end()  # SIGKILL: its lease ends by itself
    wait_for(lambda: known(two), 30)
    etcd.end()
    for _ in range(5):  # what is known stays, and serves
        assert answers() and known(two)
        time.sleep(0.2)
    etcd.start()
    three = start_worker()
    wait_for(lambda: known(two, three), 60)
    three.child.terminate()  # takes its entry with it: sooner than the lease would have ended
    three.child.wait(timeout=30)
    wait_for(lambda: known(two), 30)
    assert answers()


@pytest.mark.parametrize("flags, words", [
    (["--register-etcd", "nowhere"], ["--register-etcd", "HOST:PORT"]),
    (["--register-etcd", "https://a:1"], ["--register-etcd", "without TLS"]),
    (["--register-etcd", "a:1", "--host", "0.0.0.0"], ["0.0.0.0", "--advertise-address"]),
    (["--register-etcd", "a:1", "--advertise-address", "http://b"], ["--advertise-address", "HOST:PORT"]),
    (["--register-etcd", "a:1", "--data-parallel-size", "2"], ["--register-etcd", "--data-parallel-size"]),
])
def test_bad_flags_of_a_worker_are_one_line(flags, words):
    run = subprocess.run([BINARY, "serve", "-m", MODEL, "--port", "0", *flags], capture_output=True, text=True, timeout=60)
    assert run.returncode != 0
    errors = [line for line in run.stderr.splitlines() if line.startswith("headrace: error: ")]
    assert len(errors) == 1 and all(word in errors[0] for word in words), run.stderr


def test_a_dead_etcd_is_named_and_does_not_hang(processes):  # noqa: F811
    child = subprocess.Popen([BINARY, "route", "--port", "0", "--worker", f"etcd:127.0.0.1:{free_port()}", "--failover-wait", "0.2"],
                             stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    try:
        url = child.stdout.readline().split()[2]
        assert call(url + "/v1/models")[0] in (200, 503)
        assert call(url + "/v1/completions", {"model": "m", "prompt": "a"})[0] == 503
    finally:
        child.terminate()
        _, log = child.communicate(timeout=60)
    assert "etcd:127.0.0.1" in log and "workers stay as they were" in log


@pytest.mark.parametrize("worker", ["etcd:", "etcd:a", "etcd:http://a:1"])
def test_a_router_wants_an_address(worker):
    run = subprocess.run([BINARY, "route", "--port", "0", "--worker", worker], capture_output=True, text=True, timeout=60)
    assert run.returncode != 0 and "HOST:PORT" in run.stderr
