"""`serve --data-parallel-size 2`: two processes and a router in one process tree."""

import fcntl
import json
import os
import pathlib
import re
import signal
import socket
import subprocess
import threading
import time
import urllib.request

import pytest

from conftest import BINARY, MODEL, NAME

QUESTION = [{"role": "user", "content": "Write five sentences about the sea."}]


def replicas_of(server):
    tasks = pathlib.Path(f"/proc/{server.child.pid}/task")
    return sorted(int(pid) for task in tasks.iterdir() for pid in (task / "children").read_text().split())


def exists(pid):
    try:
        return pathlib.Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[0] != "Z"
    except OSError:
        return False


def wait_until(condition, seconds=60):
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.05)


def workers(server):
    return json.loads(urllib.request.urlopen(server.url + "/workers", timeout=10).read())["workers"]


@pytest.fixture
def replicated(start_server):
    server = start_server("--data-parallel-size", 2, "--max-model-len", 1024, "--max-num-seqs", 8)
    wait_until(lambda: all(worker["state"] == "up" for worker in workers(server)))
    return server


def test_replicas_share_the_requests(replicated):
    client = replicated.client()
    asked = [threading.Thread(target=lambda i=i: client.chat.completions.create(
        model=NAME, messages=[{"role": "user", "content": f"{i}: what is the sea?"}], max_tokens=24)) for i in range(8)]
    for thread in asked:
        thread.start()
    for thread in asked:
        thread.join()
    listed = workers(replicated)
    counts = [worker["requests"] for worker in listed]
    assert len(counts) == 2 and min(counts) > 0 and sum(counts) >= 8
    children = replicas_of(replicated)
    assert len(children) == 2
    assert replicated.terminate() == 0
    assert not any(map(exists, children))
    said = replicated.child.stdout.read().decode()
    ports = [worker["url"].rsplit(":", 1)[1] for worker in listed]
    for index, port in enumerate(ports):  # what runs where
        assert re.search(rf"^ready: 2 replicas: .*\b{index} on CPUs? [0-9, -]+ \(127\.0\.0\.1:{port}\)", said, re.MULTILINE), said


def test_a_stream_outlives_its_replica_which_comes_again(replicated):
    client = replicated.client()
    ask = dict(model=NAME, messages=QUESTION, max_tokens=160, temperature=0)
    whole = client.chat.completions.create(**ask).choices[0].message.content
    children = replicas_of(replicated)
    text = ""
    killed = None
    for event in client.chat.completions.create(**ask, stream=True):
        text += event.choices[0].delta.content or ""
        if killed is None and len(text) > 40:
            ports = {worker["url"].rsplit(":", 1)[1]: worker["in_flight"] for worker in workers(replicated)}
            busy = next(port for port, flight in ports.items() if flight > 0)
            killed = next(pid for pid in children if listens(pid, busy))
            os.kill(killed, signal.SIGKILL)
    assert killed is not None and text == whole
    wait_until(lambda: len(replicas_of(replicated)) == 2 and killed not in replicas_of(replicated))
    wait_until(lambda: all(worker["state"] == "up" for worker in workers(replicated)))
    assert client.chat.completions.create(**ask).choices[0].message.content == whole


def listens(pid, port):
    """Whether a socket of the process listens on that port of 127.0.0.1."""
    wanted = f"0100007F:{int(port):04X}"
    inodes = {row.split()[9] for row in pathlib.Path("/proc/net/tcp").read_text().splitlines()[1:]
              if row.split()[1] == wanted and row.split()[3] == "0A"}
    for file in pathlib.Path(f"/proc/{pid}/fd").iterdir():
        try:
            target = os.readlink(file)
        except OSError:
            continue
        if target.startswith("socket:[") and target[8:-1] in inodes:
            return True
    return False


def test_no_replica_outlives_its_parent(replicated):
    children = replicas_of(replicated)
    replicated.child.kill()
    replicated.child.wait()
    wait_until(lambda: not any(map(exists, children)), 45)


@pytest.mark.timing
def test_a_replica_that_hangs_holds_nobody_up(start_server):
    server = start_server("--data-parallel-size", 2, "--max-model-len", 512, "--shutdown-timeout", 0)
    children = replicas_of(server)
    os.kill(children[0], signal.SIGSTOP)
    server.child.terminate()
    server.child.wait(timeout=40)
    wait_until(lambda: not any(map(exists, children)), 10)


def test_nobody_gets_the_port_of_a_dead_replica(replicated):
    port = int(workers(replicated)[0]["url"].rsplit(":", 1)[1])
    children = replicas_of(replicated)
    os.kill(next(pid for pid in children if listens(pid, port)), signal.SIGKILL)
    while sorted(children) == replicas_of(replicated):
        pass
    # It is a second until it comes again. Who asks for the port does not get it, who calls it is told at once.
    with socket.socket() as other:
        for option in (socket.SO_REUSEADDR, socket.SO_REUSEPORT):
            other.setsockopt(socket.SOL_SOCKET, option, 1)
        with pytest.raises(OSError):
            other.bind(("127.0.0.1", port))
    client = replicated.client()
    ask = dict(model=NAME, messages=QUESTION, max_tokens=4, temperature=0)
    assert client.chat.completions.create(**ask).choices[0].message.content
    wait_until(lambda: all(worker["state"] == "up" for worker in workers(replicated)))
    assert [int(worker["url"].rsplit(":", 1)[1]) for worker in workers(replicated)].count(port) == 1


def test_nobody_who_reads_the_log_holds_nobody_up():
    reader, writer = os.pipe()
    fcntl.fcntl(writer, fcntl.F_SETPIPE_SZ, 4096)
    server = subprocess.Popen([BINARY, "serve", "-m", MODEL, "--port", "0", "--data-parallel-size", "2", "--max-model-len", "512",
                               "--log-level", "debug"], stdout=subprocess.PIPE, stderr=writer, text=True)
    os.close(writer)
    try:
        url = re.search(r"http://\S+", server.stdout.readline())[0]
        assert any(line.startswith("ready: 2 replicas") for line in server.stdout)
        for _ in range(60):  # each is a line of the access log, and more of the router's
            urllib.request.urlopen(url + "/v1/models", timeout=30).read()
        server.terminate()
        assert server.wait(timeout=60) == 0
    finally:
        server.kill()
        server.wait()
        server.stdout.close()
        os.close(reader)


def test_names_may_stand_behind_two_dashes(tmp_path):
    torn = tmp_path / "torn.gguf"
    torn.write_bytes(b"GGUF")
    run = subprocess.run([BINARY, "serve", "--port", "0", "--data-parallel-size", "2", "--", str(torn)],
                         capture_output=True, text=True, timeout=60)
    assert run.returncode == 1 and "torn.gguf" in run.stderr and "no such file" not in run.stderr


@pytest.mark.parametrize("arguments, word", [
    (["--api-key", "x"], "--api-key-file"), (["--uds", "x.sock"], "--uds"), (["--batch-dir", "x"], "--batch-dir"),
    (["--kv-save", "x"], "--kv-save"), (["--allowed-origins", "http://a.example"], "--allowed-origins"),
    (["--trusted-proxy", "127.0.0.1"], "--trusted-proxy"),
])
def test_what_a_single_process_has_is_refused(arguments, word):
    run = subprocess.run([BINARY, "serve", "-m", MODEL, "--port", "0", "--data-parallel-size", "2", *arguments],
                         capture_output=True, text=True, timeout=60)
    assert run.returncode == 1 and word in run.stderr and "--data-parallel-size 2" in run.stderr


def test_a_model_that_cannot_be_loaded_ends_it(tmp_path):
    torn = tmp_path / "torn.gguf"
    torn.write_bytes(b"GGUF")
    run = subprocess.run([BINARY, "serve", "-m", str(torn), "--port", "0", "--data-parallel-size", "4"],
                         capture_output=True, text=True, timeout=60)
    assert run.returncode == 1 and "replica" in run.stderr + run.stdout
    assert run.stderr.count("file ends at byte 4") == 1  # of four that found it


def test_logs_say_whose_they_are(start_server, tmp_path):
    log = tmp_path / "log"
    server = start_server("--data-parallel-size", 2, "--max-model-len", 1024, "--log-level", "info", log=log)
    wait_until(lambda: all(worker["state"] == "up" for worker in workers(server)))
    server.terminate()
    for index in range(2):
        assert re.search(rf"^\[{index}\] \S+ info ", log.read_text(), re.MULTILINE)
