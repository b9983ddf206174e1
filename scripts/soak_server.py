"""A server of the soak: one process with dummy weights, and what it says of itself."""

import collections
import http.client
import json
import os
import re
import signal
import subprocess
import threading
import time

import soak_adapters
from soak_models import MODEL_LEN, SEQS

START_SECONDS = 120
END_SECONDS = 60
# A context of CUDA with its libraries, beside what the plan counts, seen from outside: 261 to 302 on an H200.
CONTEXT_MIB = 400


class ServerEnded(Exception):
    pass


MAPPING = re.compile(r"([0-9a-f]+)-([0-9a-f]+) \S+ \S+ \S+ \S+\s*(.*)")


ARENA = 64 << 20  # glibc maps the heaps of threads at multiples of it


def mappings_of(lines):
    kinds, kind = collections.Counter(), ""
    for line in lines:
        head = MAPPING.match(line)
        if head:
            size = int(head[2], 16) - int(head[1], 16)
            unnamed = f"mappings of {1 << max(0, size.bit_length() - 21)} MiB"
            if int(head[1], 16) % ARENA == 0 and size < ARENA:
                unnamed = "heaps of threads"
            kind = os.path.basename(head[3]) or unnamed
        elif line.startswith("Rss:"):
            kinds[kind] += int(line.split()[1]) / 1024
    return dict(kinds)


def gpu_count():
    try:
        listed = subprocess.run(["nvidia-smi", "-L"], capture_output=True, text=True, check=False).stdout
    except FileNotFoundError:
        return 0
    return sum(line.startswith("GPU ") for line in listed.splitlines())


class Server:
    def __init__(self, options, shape, flags, folder):
        with open(os.path.join(folder, "config.json"), "w") as out:
            json.dump(shape.config(), out)
        with open(os.path.join(folder, "tokenizer.json"), "w") as out:
            json.dump(shape.tokenizer(), out)
        self.log_path = os.path.join(folder, "log")
        self.alone = options.long > 0 and not options.beside
        pool = flags.pool * shape.token_bytes(flags.element()) * (2 if flags.drafts else 1)
        command = [
            options.headrace, "serve", "-m", folder, "--load-format", "dummy", "--device", options.device, "--port", "0",
            "--served-model-name", "soak", "--dummy-sharpness", f"{shape.sharpness():.4f}", "--kv-cache-memory-bytes", str(pool),
            "--max-model-len", str(MODEL_LEN), "--max-num-seqs", str(SEQS), "--log-level", "info", "--no-access-log",
            "--threads", str(options.threads), *flags.flags,
        ]  # fmt: skip
        if flags.drafts:
            command += ["--model-draft", folder, "--draft-p-min", "0"]
        if flags.adapters and soak_adapters.modules_of(shape):
            command += ["--lora-modules", *soak_adapters.write_adapters(shape, flags.adapters, folder)]
        self.command = " ".join(command)
        environment = {**os.environ, "HEADRACE_PACKED_CACHE": "off"}
        self.gpus = flags.gpus
        if flags.ranks > 1:  # a kernel that is loaded late would wait for the GPU, where the other rank waits for it
            environment["CUDA_MODULE_LOADING"] = "EAGER"
        self.child = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=open(self.log_path, "wb"), env=environment)
        self.port = None
        self.plan = ""
        self.refused = False
        self.last_memory = {}
        self.said = threading.Thread(target=self.read_stdout, daemon=True)
        self.said.start()

    def read_stdout(self):
        for line in self.child.stdout:
            text = line.decode(errors="replace")
            found = re.search(r"listening on http://\S+?:(\d+)", text)
            if found:
                self.port = int(found[1])
            if "weights " in text and "GiB" in text:
                self.plan = text.strip()

    def ended(self):
        return self.child.poll() is not None

    def check_alive(self):
        if self.ended():
            raise ServerEnded(f"the server ended with {self.child.returncode}: {self.last_log()}")

    def log(self):
        with open(self.log_path, errors="replace") as log:
            return log.read()

    def last_log(self):
        return " / ".join(self.log().strip().splitlines()[-3:])

    def wait_ready(self):
        """A refusal's one line; empty: it serves."""
        deadline = time.monotonic() + START_SECONDS
        while True:
            if self.ended():
                self.said.join(5)
                text = self.log().strip()
                errors = [line for line in text.splitlines() if "error" in line.lower()]
                if 0 < self.child.returncode < 10 and len(errors) <= 1 and "CHECK" not in text:
                    self.refused = True
                    return errors[0] if errors else text
                self.check_alive()
            if time.monotonic() > deadline:
                raise ServerEnded(f"not ready in {START_SECONDS} s: {self.last_log()}")
            if self.port and self.get("/health")[0] == 200:
                return ""
            time.sleep(0.02)

    def get(self, path):
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=30)
        try:
            connection.request("GET", path)
            response = connection.getresponse()
            return response.status, response.read().decode()
        except OSError:
            return 0, ""
        finally:
            connection.close()

    def metric(self, name):
        found = re.findall(rf"^{re.escape(name)}(?:\{{[^}}]*\}})? (\S+)$", self.get("/metrics")[1], re.MULTILINE)
        return sum(map(float, found))

    def facts(self):
        facts = {
            "preemptions": int(self.metric("vllm:num_preemptions_total")),
            "pages_stored": int(self.metric("headrace:kv_pages_stored_total")),
            "pages_loaded": int(self.metric("headrace:kv_pages_loaded_total")),
            "proposed": int(self.metric("vllm:spec_decode_num_draft_tokens_total")),
            "accepted": int(self.metric("vllm:spec_decode_num_accepted_tokens_total")),
            "steps": int(self.metric("headrace:steps_total")),
        }  # fmt: skip
        self.wait_idle()
        self.last_memory = self.memory()
        facts.update({name: round(value) for name, value in self.last_memory.items() if value is not None})
        planned = self.planned_mib()
        if planned is not None:
            facts["planned_mib"] = round(planned)
        return facts

    def held(self):
        """What requests hold: themselves, and pages that nobody else may take."""
        names = ("vllm:num_requests_running", "vllm:num_requests_waiting", "vllm:kv_cache_usage_perc")
        return {name: self.metric(name) for name in names if self.metric(name) > 0}

    def wait_idle(self):
        deadline = time.monotonic() + 10
        while self.held() and time.monotonic() < deadline:
            time.sleep(0.05)

    def leaks(self):
        """What is held though nobody asks, and GPU memory beyond the plan: [(kind, text)]."""
        found = [("memory", f"{name} is {value} at the end") for name, value in self.held().items()]
        planned, used = self.planned_mib(), self.last_memory["gpu_mib"]
        if planned is not None and used is not None and used > planned + CONTEXT_MIB:
            found.append(("memory", f"{used:.0f} MiB of the GPU in use, {planned:.0f} planned beside the context"))
        return found

    def memory(self):
        """MiB of the process and of its share of the GPU, None where that cannot be seen."""
        try:
            with open(f"/proc/{self.child.pid}/status") as status:
                resident = int(re.search(r"VmRSS:\s+(\d+)", status.read())[1]) / 1024
        except (OSError, TypeError):
            resident = None
        return {"rss_mib": resident, "gpu_mib": gpu_mib(self.child.pid, self.alone)}

    def mappings(self):
        """Resident MiB by kind of mapping: the heap, a file by its name, other memory by the size of its mapping."""
        try:
            with open(f"/proc/{self.child.pid}/smaps") as smaps:
                return mappings_of(smaps)
        except OSError:
            return {}

    def planned_mib(self):
        if self.gpus > 1:
            return None  # the plan is of one of them
        parts = re.findall(r"(weights|adapters|tables|values|unpacked|steps|kernels) ([0-9.]+)", self.plan)
        return 1024 * sum(float(gib) for _, gib in parts) if parts else None

    def end(self):
        """SIGTERM, and what was wrong with how it went: [(kind, text)]."""
        found = []
        if not self.ended():
            self.child.send_signal(signal.SIGTERM)
            try:
                code = self.child.wait(END_SECONDS)
                if code != 0:
                    found.append(("exit", f"exit status {code}: {self.last_log()}"))
            except subprocess.TimeoutExpired:
                found.append(("exit", f"did not end in {END_SECONDS} s"))
                self.child.kill()
                self.child.wait()
        elif not self.refused:
            found.append(("exit", f"exit status {self.child.returncode}"))
        for line in self.log().splitlines():
            if re.search(r"Z error |CHECK|are not recorded", line) and not self.refused:
                found.append(("log", line))
        self.child.stdout.close()
        return found


def gpu_mib(pid, alone):
    """Of one process; of the whole GPU where it is alone there and processes are not shown."""
    rows = query("--query-compute-apps=pid,used_memory")
    for row in rows:
        if row[0] == str(pid) and row[1].isdigit():
            return float(row[1])
    if alone:
        for row in query("--query-gpu=memory.used"):
            return float(row[0]) if row[0].isdigit() else None
    return None


def query(what):
    try:
        text = subprocess.run(["nvidia-smi", what, "--format=csv,noheader,nounits"], capture_output=True, timeout=20).stdout
    except (OSError, subprocess.TimeoutExpired):
        return []
    return [[part.strip() for part in line.split(",")] for line in text.decode().splitlines() if line.strip()]
