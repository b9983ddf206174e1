#!/usr/bin/env python3
"""Faults of workers, disks, networks and routers behind `headrace route`, for as long as asked:

    scripts/soak_route.py [--faults 1000] [--workers 4] [--clients 6] [--seed 1] [--kinds kill,stop,...] [--real-model]

Clients of every protocol (the streams of tests/server/test_resume.py), of answers in one piece and of batches ask all the time. Each
must get, to the byte, what it got before the first fault. Meanwhile one fault after the other comes, some at once, but one worker
always lives:

    kill        SIGKILL, started again              stop        SIGSTOP for a while, also shorter than the bound
    partition   its network namespace loses its link for a while: packets are dropped, connections stay open
    nan         NaN is written into the worker's weights in its memory, taken back or ended with the process
    drain       POST /workers/ID/drain, and undrain shut_down   SIGTERM, started again
    full_disk   the file system of its batches has no room for a while
    etcd        etcd, which knows the workers, is killed or stopped for a while
    hand_over   another router takes the listening socket, then SIGTERM to the first
    router_kill SIGKILL to the router: only then may a client send its request again

Workers are tiny models of random weights (tests/server/tiny_worker_model.py) in namespaces of their own, made by unshare; what this
machine does not let a process do is left out and named. Prints one line of JSON; the exit code is 0 if no request failed, none was
different, nothing came twice. --etcd BINARY has workers register in it; without it the router has a list.
"""
import argparse
import collections
import concurrent.futures
import ctypes
import http.client
import json
import os
import pathlib
import random
import re
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time

ROOT = pathlib.Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT / "tests/server"))

import tiny_worker_model  # noqa: E402
from streamed_requests import REQUESTS, body_of, told  # noqa: E402

BINARY = os.environ.get("HEADRACE_BINARY") or os.environ.get("HEADRACE_BIN") or str(ROOT / "build/headrace")
MODEL = os.environ.get("HEADRACE_MODEL_SMOLLM2", os.path.expanduser("~/.cache/headrace/models/SmolLM2-135M-Instruct.Q4_1.gguf"))
INSIDE = "HEADRACE_SOAK_INSIDE"
PORT = 8000
KINDS = ("kill", "stop", "partition", "nan", "drain", "shut_down", "full_disk", "etcd", "hand_over", "router_kill")
DISK_BYTES = 4 << 20
PR_SET_PDEATHSIG = 1
LIBC = ctypes.CDLL(None, use_errno=True)


# The kernel takes the thread that forks for the parent: this one lives to the end.
SPAWNER = concurrent.futures.ThreadPoolExecutor(max_workers=1)


def spawn(words, descriptor=None, **options):
    """A child that does not outlive this script. `descriptor` is its third."""

    def prepare():
        LIBC.prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
        if descriptor is not None:
            os.dup2(descriptor, 3)

    kept = () if descriptor is None else (3,)
    return SPAWNER.submit(subprocess.Popen, [*map(str, words)], preexec_fn=prepare, pass_fds=kept, **options).result()


def run(*words):
    done = subprocess.run(words, capture_output=True, text=True)
    if done.returncode != 0:
        raise RuntimeError(f"{' '.join(words)}: {done.stderr.strip()}")


def enter_namespaces():
    """Becomes this script in network and mount namespaces of its own, which end with it. False: this machine does not let it."""
    if os.environ.get(INSIDE):
        if os.environ[INSIDE] == "1":
            run("ip", "link", "set", "lo", "up")
        return os.environ[INSIDE] == "1"
    words = ["unshare", "-m", "-n"] if os.geteuid() == 0 else ["unshare", "-r", "-m", "-n"]
    try:
        run(*words, "sh", "-c", "ip link set lo up && mount -t tmpfs none /mnt")
    except (RuntimeError, OSError):
        os.environ[INSIDE] = "0"
        return False
    os.environ[INSIDE] = "1"
    os.execvp(words[0], [*words, sys.executable, *sys.argv])


class Process:
    """A child that says where it listens. Its log is kept for who asks what happened."""

    def __init__(self, words, log, **options):
        self.log = open(log, "ab")
        self.child = spawn(words, stdout=subprocess.PIPE, stderr=self.log, **options)
        line = self.child.stdout.readline().decode()
        if "listening on" not in line:
            raise RuntimeError(f"no address in {line!r}: {pathlib.Path(log).read_text()[-400:]}")

    def send(self, number):
        self.child.send_signal(number)

    def wait(self, seconds=60):
        self.child.wait(timeout=seconds)
        self.child.stdout.close()
        self.log.close()

    def kill(self):
        if self.child.poll() is None:
            self.child.send_signal(signal.SIGKILL)
        self.wait()


class Place:
    """Where a worker lives: its network, its disk, its address; it has one life after the other there."""

    def __init__(self, index, folder, model, norms, namespaces, flags, etcd):
        self.index, self.norms, self.flags = index, norms, list(flags)
        self.folder = folder / f"worker{index}"
        self.disk = self.folder / "disk"
        self.disk.mkdir(parents=True)
        self.enter, self.host, self.port = [], "127.0.0.1", free_port()
        self.well = True
        self.log = self.folder / "log"
        self.model = model
        if namespaces:
            self.make_network()
            run("mount", "-t", "tmpfs", "-o", f"size={DISK_BYTES}", "none", str(self.disk))
        if etcd:
            near = f"10.231.{index}.1" if namespaces else "127.0.0.1"
            self.flags += ["--register-etcd", f"{near}:{etcd.port}", "--advertise-address", f"{self.host}:{self.port}", "--etcd-lease", 3]
        self.start()

    def make_network(self):
        self.holder = spawn(["unshare", "-n", "sleep", "infinity"])
        self.enter = ["nsenter", "-n", "-t", str(self.holder.pid)]
        deadline = time.monotonic() + 10
        while os.readlink(f"/proc/{self.holder.pid}/ns/net") == os.readlink("/proc/self/ns/net"):
            assert time.monotonic() < deadline
            time.sleep(0.01)
        near, self.host, self.port = f"10.231.{self.index}.1/24", f"10.231.{self.index}.2", PORT
        run("ip", "link", "add", f"hr{self.index}", "type", "veth", "peer", "name", "far", "netns", str(self.holder.pid))
        run("ip", "addr", "add", near, "dev", f"hr{self.index}")
        run("ip", "link", "set", f"hr{self.index}", "up")
        run(*self.enter, "ip", "addr", "add", f"{self.host}/24", "dev", "far")
        run(*self.enter, "ip", "link", "set", "lo", "up")
        run(*self.enter, "ip", "link", "set", "far", "up")

    def start(self):
        environment = {"HEADRACE_PACKED_CACHE": "off", **os.environ}
        self.process = Process([*self.enter, BINARY, "serve", "-m", self.model, "--host", self.host, "--port", self.port,
                                "--batch-dir", self.disk / "batches", *self.flags], self.log, env=environment)

    @property
    def url(self):
        return f"http://{self.host}:{self.port}"

    def cut(self):
        run(*self.enter, "ip", "link", "set", "far", "down")

    def mend(self):
        run(*self.enter, "ip", "link", "set", "far", "up")

    def fill(self):
        with open(self.disk / "filler", "wb", buffering=0) as file:
            for size in (1 << 16, 1 << 12, 1):
                try:
                    while True:
                        file.write(bytes(size))
                except OSError:
                    pass

    def free(self):
        (self.disk / "filler").unlink()

    def poison(self, rng):
        """Writes NaN over a norm wherever the process has it; [(address, bytes before)]"""
        found, pid = [], self.process.child.pid
        norm = self.norms[rng.choice(sorted(self.norms))]
        nan = b"\x00\x00\xc0\x7f" * (len(norm) // 4)
        with open(f"/proc/{pid}/mem", "r+b", buffering=0) as memory:
            for line in open(f"/proc/{pid}/maps"):
                span, rights = line.split()[:2]
                begin, end = (int(each, 16) for each in span.split("-"))
                if not rights.startswith("rw") or end - begin > 512 << 20:
                    continue
                for at in range(begin, end, 16 << 20):
                    try:
                        memory.seek(at)
                        data = memory.read(min(end - at, (16 << 20) + len(norm)))
                    except (OSError, OverflowError):
                        break
                    place = data.find(norm)
                    if place >= 0:
                        found.append((at + place, norm))
            for address, _ in found:
                memory.seek(address)
                memory.write(nan)
        return found

    def heal(self, found):
        with open(f"/proc/{self.process.child.pid}/mem", "r+b", buffering=0) as memory:
            for address, before in found:
                memory.seek(address)
                memory.write(before)


def free_port():
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


class Routers:
    """One router after the other on one listening socket, which this script holds as systemd would."""

    def __init__(self, folder, words):
        self.socket = socket.create_server(("127.0.0.1", 0), backlog=512)
        self.port = self.socket.getsockname()[1]
        self.log, self.words = folder / "router.log", words
        self.lock = threading.Lock()
        self.kills, self.counts, self.recovery = [], collections.Counter(), collections.Counter()
        self.old = []
        self.current = self.start()

    def start(self):
        inherit = 'LISTEN_PID=$$ LISTEN_FDS=1 exec "$@"'
        return Process(["sh", "-c", inherit, "sh", BINARY, "route", *self.words], self.log, descriptor=self.socket.fileno())

    def call(self, method, path, body=None, timeout=60):
        return call(self.port, method, path, body, timeout=timeout)

    def keep_counts(self):
        """What a router knows ends with it. REQUIRES: lock"""
        page = self.call("GET", "/metrics")[1].decode()
        for name in ("requests", "retries", "resumes"):
            found = re.findall(rf"^headrace_route_worker_{name}_total\S* (\d+)$", page, re.M)
            self.counts[name] += sum(map(int, found))
        self.counts["failed"] += int(re.search(r"^headrace_route_failed_total (\d+)$", page, re.M)[1])
        before = 0
        for bound, count in re.findall(r'^headrace_route_recovery_seconds_bucket\{le="(\S+)"\} (\d+)$', page, re.M):
            self.recovery[float(bound.replace("+Inf", "inf"))] += int(count) - before
            before = int(count)

    def hand_over(self):
        with self.lock:
            self.keep_counts()
            first, self.current = self.current, self.start()
            first.send(signal.SIGTERM)
            self.old.append(first)

    def kill(self):
        with self.lock:
            self.keep_counts()
            for router in [*self.old, self.current]:
                router.kill()
            self.kills.append(time.monotonic())  # who began before this may have met the one that was killed
            self.old = []
            self.current = self.start()

    def was_killed_since(self, begin):
        with self.lock:  # a kill that is under way is told when it is over
            return any(kill >= begin for kill in self.kills)

    def end(self):
        with self.lock:
            self.keep_counts()
            for router in [*self.old, self.current]:
                router.send(signal.SIGTERM)
            for router in [*self.old, self.current]:
                router.wait()


def call(port, method, path, body=None, headers=None, timeout=120, on_bytes=None):
    """(status, body)"""
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=timeout)
    try:
        data = body if isinstance(body, (bytes, type(None))) else json.dumps(body).encode()
        connection.request(method, path, data, {"Content-Type": "application/json", **(headers or {})})
        answer = connection.getresponse()
        parts = []
        while piece := answer.read1(1 << 16):
            parts.append(piece)
            if on_bytes:
                on_bytes()
        if answer.length not in (0, None):
            raise http.client.IncompleteRead(b"".join(parts))
        return answer.status, b"".join(parts)
    finally:
        connection.close()


def percentile(values, share):
    values = sorted(values)
    return round(values[min(len(values) - 1, int(share * len(values)))], 3) if values else None


class Clients:
    GAP = 0.25  # seconds without a byte that a fault may be the cause of

    def __init__(self, routers, faults, model, factor, count, batches, seed):
        self.routers, self.faults, self.model, self.factor = routers, faults, model, factor
        self.counts, self.kinds = collections.Counter(), collections.Counter()
        self.failed, self.different, self.twice = [], [], []
        self.recovery = collections.defaultdict(list)
        self.over = threading.Event()
        self.lock = threading.Lock()
        self.wanted = {name: self.ask(name) for name in REQUESTS}
        whole = [("chat", 11), ("completion", 12), ("choices", 13)]
        self.whole_wanted = {each: self.ask_whole(*each) for each in whole}
        self.lines = {f"line-{i}": {"model": model, "messages": [{"role": "user", "content": f"Say {i}."}], "seed": i, "max_tokens": 40}
                      for i in range(8)}
        self.line_wanted = {name: self.text_of(self.call("POST", "/v1/chat/completions", body)[1]) for name, body in self.lines.items()}
        self.threads = [threading.Thread(target=self.run, args=(random.Random(f"{seed} {i}"),)) for i in range(count)]
        self.threads += [threading.Thread(target=self.run_batches, args=(i,)) for i in range(batches)]

    def start(self):
        for thread in self.threads:
            thread.start()

    def end(self):
        self.over.set()
        for thread in self.threads:
            thread.join()

    @staticmethod
    def text_of(body):
        return [choice["message"]["content"] if "message" in choice else choice["text"] for choice in json.loads(body)["choices"]]

    def call(self, method, path, body=None, headers=None, on_bytes=None):
        """Once; once more after a kill of the router, which nobody can answer for."""
        while True:
            begin = time.monotonic()
            try:
                return call(self.routers.port, method, path, body, headers, on_bytes=on_bytes)
            except (OSError, http.client.HTTPException):
                if not self.routers.was_killed_since(begin):
                    raise
                with self.lock:
                    self.counts["sent again after a router's kill"] += 1

    def ask(self, name):
        path, body = body_of(name, self.model, self.factor)
        last = [time.monotonic()]

        def on_bytes():
            now = time.monotonic()
            if now - last[0] > self.GAP:
                self.note_gap(last[0], now)
            last[0] = now

        status, answer = self.call("POST", path, body, on_bytes=on_bytes)
        if status != 200:
            raise RuntimeError(f"{status} {answer[:200]!r}")
        return told(name, answer)

    def ask_whole(self, name, seed):
        path, body = body_of(name, self.model, self.factor)
        status, answer = self.call("POST", path, {**body, "stream": False, "stream_options": None, "seed": seed})
        if status != 200:
            raise RuntimeError(f"{status} {answer[:200]!r}")
        return self.text_of(answer)

    def note_gap(self, begin, end):
        """The worst fault that fell into a pause of a stream is taken for its cause."""
        causes = [(kind in ("stop", "partition"), at, kind) for at, kind in self.faults.told() if begin - 0.05 <= at <= end]
        if causes:
            _, at, kind = max(causes)
            with self.lock:
                self.recovery[kind].append(end - at)

    def judge(self, name, answer, wanted):
        with self.lock:
            self.counts["answers"] += 1
            self.kinds[name] += 1
            if answer != wanted:
                self.different.append(f"{name}: {difference(answer, wanted)}")

    def run(self, rng):
        while not self.over.is_set():
            whole = rng.random() < 0.2
            what = rng.choice(list(self.whole_wanted if whole else self.wanted))
            try:
                if whole:
                    self.judge(f"{what[0]} in one piece", self.ask_whole(*what), self.whole_wanted[what])
                else:
                    self.judge(what, self.ask(what), self.wanted[what])
            except Exception as error:  # whatever it is, the client had no answer
                with self.lock:
                    self.failed.append(f"{what} at {time.monotonic():.2f}: {error!r}")

    # --- Batches: an id is one worker's; what cannot be sent twice is refused with 503 and asked again by the client. ---

    def insist(self, method, path, body=None, headers=None, seconds=120):
        deadline = time.monotonic() + seconds
        while True:
            status, answer = self.call(method, path, body, headers)
            if status < 400:
                return answer
            if status not in (500, 503, 507) or time.monotonic() > deadline:
                raise RuntimeError(f"{method} {path}: {status} {answer[:200]!r}")
            with self.lock:
                self.counts["asked again after a 50x of batches"] += 1
            time.sleep(0.2)

    def run_batches(self, index):
        headers = {"Authorization": f"Bearer batch-{index}"}
        number = 0
        while not self.over.is_set():
            number += 1
            try:
                self.one_batch(headers)
            except Exception as error:
                with self.lock:
                    self.failed.append(f"batch {index}.{number} at {time.monotonic():.2f}: {error!r}")

    def one_batch(self, headers):
        lines = "\n".join(json.dumps({"custom_id": name, "method": "POST", "url": "/v1/chat/completions", "body": body})
                          for name, body in self.lines.items())
        form = (b'--x\r\nContent-Disposition: form-data; name="purpose"\r\n\r\nbatch\r\n'
                b'--x\r\nContent-Disposition: form-data; name="file"; filename="a.jsonl"\r\n\r\n' + lines.encode() + b"\r\n--x--\r\n")
        file = json.loads(self.insist("POST", "/v1/files", form, {**headers, "Content-Type": "multipart/form-data; boundary=x"}))
        batch = json.loads(self.insist("POST", "/v1/batches", {
            "input_file_id": file["id"], "endpoint": "/v1/chat/completions", "completion_window": "24h"}, headers))
        deadline = time.monotonic() + 240
        while batch["status"] not in ("completed", "failed", "expired", "cancelled"):
            if time.monotonic() > deadline:
                raise RuntimeError(f"batch is {batch['status']}")
            time.sleep(0.1)
            batch = json.loads(self.insist("GET", f"/v1/batches/{batch['id']}", headers=headers))
        if batch["status"] != "completed" or batch["request_counts"]["failed"]:
            raise RuntimeError(f"batch {batch['status']}: {batch.get('errors')} {batch['request_counts']}")
        output = self.insist("GET", f"/v1/files/{batch['output_file_id']}/content", headers=headers)
        rows = [json.loads(line) for line in output.splitlines()]
        names = collections.Counter(row["custom_id"] for row in rows)
        with self.lock:
            self.twice += [name for name, count in names.items() if count > 1]
        answers = {row["custom_id"]: self.text_of(json.dumps(row["response"]["body"])) for row in rows}
        self.judge("batch", answers, self.line_wanted)
        for kept in (file["id"], batch["output_file_id"]):
            self.insist("DELETE", f"/v1/files/{kept}", headers=headers)


def difference(answer, wanted):
    if isinstance(answer, list) and isinstance(wanted, list):
        for i, (a, b) in enumerate(zip(answer, wanted)):
            if a != b:
                return f"event {i}: {a!r} is not {b!r}"[:400]
        return f"{len(answer)} events are not {len(wanted)}"
    return f"{answer!r} is not {wanted!r}"[:400]


class Etcd:
    def __init__(self, binary, folder):
        self.folder, self.port = folder / "etcd", free_port()
        self.words = [binary, "--data-dir", self.folder, "--listen-peer-urls", f"http://127.0.0.1:{free_port()}", "--log-level", "error"]
        self.start()

    def start(self):
        urls = f"http://0.0.0.0:{self.port}"
        self.child = spawn([*self.words, "--listen-client-urls", urls, "--advertise-client-urls", urls],
                           stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        deadline = time.monotonic() + 60
        while True:
            try:
                return call(self.port, "GET", "/health", timeout=2)
            except (OSError, http.client.HTTPException):
                assert time.monotonic() < deadline, "etcd does not answer"
                time.sleep(0.05)

    def kill(self):
        self.child.kill()
        self.child.wait()


class Faults:
    """One after the other, some at once. One worker is always left alone."""

    def __init__(self, places, routers, etcd, kinds, bound, seed):
        self.places, self.routers, self.etcd, self.bound = places, routers, etcd, bound
        self.kinds, self.rng = kinds, random.Random(seed)
        self.counts, self.history = collections.Counter(), collections.deque(maxlen=64)
        self.deck, self.threads, self.errors = [], [], []
        self.lock = threading.Lock()
        self.etcd_well = True

    def told(self):
        with self.lock:
            return list(self.history)

    def next_kind(self):
        if not self.deck:
            self.deck = list(self.kinds)
            self.rng.shuffle(self.deck)
        return self.deck.pop()

    def one(self):
        """Begins one. False: too many are under way."""
        with self.lock:
            well = [place for place in self.places if place.well]
        if len(well) < 2:
            return False
        kind, place = self.next_kind(), self.rng.choice(well)
        of_worker = kind not in ("etcd", "hand_over", "router_kill")
        if kind == "etcd" and not self.etcd_well:
            return False
        if of_worker:
            place.well = False
        lengths = random.Random(self.rng.random())
        thread = threading.Thread(target=self.run, args=(kind, place if of_worker else None, lengths))
        self.threads = [each for each in self.threads if each.is_alive()] + [thread]
        thread.start()
        return True

    def begin(self, kind):
        with self.lock:
            self.history.append((time.monotonic(), kind))
            self.counts[kind] += 1

    def run(self, kind, place, rng):
        try:
            getattr(self, f"do_{kind}")(place, rng)
            if place:
                self.wait_up(place)
        except Exception as error:
            self.errors.append(f"{kind}: {error!r}")
        if place:
            place.well = True

    def wait_up(self, place, seconds=120):
        """Until the router sends it requests again."""
        deadline = time.monotonic() + seconds
        while time.monotonic() < deadline:
            try:
                workers = json.loads(self.routers.call("GET", "/workers")[1])["workers"]
                if any(each["url"] == place.url and each["state"] == "up" for each in workers):
                    return
            except (OSError, http.client.HTTPException, ValueError, KeyError):
                pass  # the router is killed meanwhile
            time.sleep(0.05)
        raise RuntimeError(f"worker {place.index} does not come back")

    def do_kill(self, place, rng):
        self.begin("kill")
        place.process.kill()
        time.sleep(rng.uniform(0, 0.5))
        place.start()

    def do_shut_down(self, place, rng):
        self.begin("shut_down")
        place.process.send(signal.SIGTERM)
        place.process.wait()
        place.start()

    def a_while(self, rng):
        time.sleep(rng.uniform(0.1, self.bound / 2) if rng.random() < 0.3 else self.bound + rng.uniform(0.3, 1.2))

    def do_stop(self, place, rng):
        self.begin("stop")
        place.process.send(signal.SIGSTOP)
        self.a_while(rng)
        place.process.send(signal.SIGCONT)

    def do_partition(self, place, rng):
        self.begin("partition")
        place.cut()
        self.a_while(rng)
        place.mend()

    def do_nan(self, place, rng):
        self.begin("nan")
        found = place.poison(rng)
        if not found:
            raise RuntimeError("no weights were found in the worker's memory")
        time.sleep(rng.uniform(0.3, 1.5))
        if rng.random() < 0.5:
            return place.heal(found)
        place.process.kill()
        place.start()

    def id_of(self, place):
        workers = json.loads(self.routers.call("GET", "/workers")[1])["workers"]
        return next(each["id"] for each in workers if each["url"] == place.url)

    def do_drain(self, place, rng):
        try:
            number = self.id_of(place)
            self.begin("drain")
            self.routers.call("POST", f"/workers/{number}/drain")
            time.sleep(rng.uniform(0.2, 1))
            self.routers.call("POST", f"/workers/{number}/undrain")
        except (OSError, http.client.HTTPException, StopIteration, ValueError):
            pass  # another router has begun meanwhile, which knows of no drain

    def do_full_disk(self, place, rng):
        self.begin("full_disk")
        place.fill()
        time.sleep(rng.uniform(0.3, 1.5))
        place.free()

    def do_etcd(self, _, rng):
        self.begin("etcd")
        self.etcd_well = False
        if rng.random() < 0.5:
            self.etcd.kill()
            time.sleep(rng.uniform(0.5, 4))
            self.etcd.start()
        else:
            self.etcd.child.send_signal(signal.SIGSTOP)
            time.sleep(rng.uniform(0.5, 6))
            self.etcd.child.send_signal(signal.SIGCONT)
        self.etcd_well = True

    def do_hand_over(self, _, rng):
        self.begin("hand_over")
        self.routers.hand_over()

    def do_router_kill(self, _, rng):
        self.begin("router_kill")
        self.routers.kill()

    def end(self):
        for thread in self.threads:
            thread.join()


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--faults", type=int, default=100)
    parser.add_argument("--workers", type=int, default=4)
    parser.add_argument("--clients", type=int, default=6)
    parser.add_argument("--batch-clients", type=int, default=2)
    parser.add_argument("--longer", type=int, default=16, help="tokens of an answer, in times those of tests/server/streamed_requests.py")
    parser.add_argument("--pause", type=float, default=0.6, help="seconds between two faults, about")
    parser.add_argument("--progress-bound", type=float, default=2)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--kinds", default=",".join(KINDS))
    parser.add_argument("--etcd", default="", help="the program; without it workers are a list")
    parser.add_argument("--real-model", action="store_true", help="SmolLM2-135M and not the tiny model; no NaN")
    parser.add_argument("--keep", action="store_true", help="leaves the folder with the logs")
    options = parser.parse_args()
    namespaces = enter_namespaces()
    folder = pathlib.Path(tempfile.mkdtemp(prefix="headrace-soak-"))
    kinds = [kind for kind in options.kinds.split(",") if kind in KINDS]
    left_out = {} if namespaces else {"partition": "no namespaces", "full_disk": "no namespaces"}
    if not options.etcd:
        left_out["etcd"] = "no --etcd"
    if options.real_model:
        left_out["nan"] = "--real-model"
    kinds = [kind for kind in kinds if kind not in left_out]
    model, norms = folder / "tiny.gguf", {}
    if options.real_model:
        model = MODEL
    else:
        norms = tiny_worker_model.make_file(MODEL, model)
    code = 1
    try:
        code = soak(options, folder, kinds, left_out, model, norms, namespaces)
    finally:
        if not options.keep and code == 0:
            subprocess.run(["umount", *[str(folder / f"worker{i}/disk") for i in range(options.workers)]], capture_output=True)
            shutil.rmtree(folder, ignore_errors=True)
        else:
            print(f"logs: {folder}", file=sys.stderr)
    sys.exit(code)


def soak(options, folder, kinds, left_out, model, norms, namespaces):
    flags = ["--batch-invariant", "--served-model-name", "smol", "--max-model-len", 1024, "--max-num-seqs", 16, "--threads", 1,
             "--shutdown-timeout", 0, "--kv-cache-memory-bytes", "64M", "--max-connections-per-address", 4096,
             "--allowed-hosts", "*", "--log-level", "info"]
    etcd = Etcd(options.etcd, folder) if options.etcd else None
    places = [Place(i, folder, model, norms, namespaces, flags, etcd) for i in range(options.workers)]
    words = [flag for place in places for flag in ("--worker", place.url)]
    if etcd:
        words = ["--worker", f"etcd:127.0.0.1:{etcd.port}", "--resolve-interval", 0.3]
    routers = Routers(folder, ["--port", 0, "--poll-interval", 0.2, "--progress-bound", options.progress_bound, "--connect-timeout", 1,
                               "--log-level", "info", *words])
    faults = Faults(places, routers, etcd, kinds, options.progress_bound, options.seed)
    for place in places:
        faults.wait_up(place)
    clients = Clients(routers, faults, "smol", options.longer, options.clients, options.batch_clients, options.seed)
    clients.start()
    begin, rng = time.monotonic(), random.Random(options.seed)
    while sum(faults.counts.values()) < options.faults:
        time.sleep(rng.uniform(0.2, 1.8) * options.pause)
        faults.one()
        if faults.errors or len(clients.failed) + len(clients.different) > 50:
            break
    faults.end()
    clients.end()
    routers.end()
    for place in places:
        place.process.kill()
    recovered = {kind: {"count": len(values), "p50": percentile(values, 0.5), "p99": percentile(values, 0.99), "max": percentile(values, 1)}
                 for kind, values in sorted(clients.recovery.items())}
    ended_badly = clients.failed + clients.different + clients.twice + faults.errors
    print(json.dumps({
        "faults": sum(faults.counts.values()), "of": dict(sorted(faults.counts.items())), "left_out": left_out, "seed": options.seed,
        "seconds": round(time.monotonic() - begin), "answers": clients.counts["answers"], "failed": len(clients.failed),
        "different": len(clients.different), "twice": len(clients.twice), "fault_errors": len(faults.errors),
        "kinds": dict(sorted(clients.kinds.items())),
        "resumed": routers.counts["resumes"], "sent_again_by_router": routers.counts["retries"],
        **{name.replace(" ", "_"): count for name, count in sorted(clients.counts.items()) if name != "answers"},
        "silence_behind_a_fault_s": recovered, "progress_bound_s": options.progress_bound, "first": ended_badly[:5]}))
    return 1 if ended_badly else 0


main()
