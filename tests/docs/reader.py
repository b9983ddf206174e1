"""A reader's machine: a folder with what the pages take for granted (a model, a file of requests), where their blocks are run as they stand.

What differs from a reader at a terminal, and nothing else:
  - ports 8000 to 8003 are free ones;
  - `headrace serve` and `headrace route` go to the background when they are ready, until the page ends;
  - `headrace top` shows one frame; nobody types in a chat;
  - a NAME.gguf that is not there is the small model; the hub and the registry are stand-ins on this machine."""

import json
import os
import pathlib
import re
import shutil
import signal
import socket
import stat
import subprocess
import sys
import time
import zipfile

ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.path += [str(ROOT / "tests/cli"), str(ROOT / "tests/server"), str(ROOT / "scripts")]

from random_adapter import write_adapter  # noqa: E402
from stand_in_hub import COMMIT, StandInHub  # noqa: E402

FILES = pathlib.Path(__file__).with_name("files")
PORTS = ("8000", "8001", "8002", "8003")
BLOCK_SECONDS_MAX = 60

# What stands for `headrace` on a reader's path.
WRAPPER = """#!/bin/bash
case "${1-}" in
  serve | route)
    log=$(mktemp "$READER_LOGS/XXXXXX")
    [[ " $* " == *" --port "* || " $* " == *" --uds "* ]] || set -- "$@" --port "$READER_PORT"
    setsid "$HEADRACE_BINARY" "$@" >"$log" 2>&1 </dev/null &
    echo $! >>"$READER_LOGS/pids"
    for ((i = 0; i < 600; ++i)); do
      if [[ $1 == route ]] && grep -q '^listening on' "$log"; then sleep 0.3; exit 0; fi
      grep -q '^ready: ' "$log" && exit 0
      kill -0 $! 2>/dev/null || break
      sleep 0.05
    done
    cat "$log" >&2
    exit 1 ;;
  top)
    [[ " $* " == *" --once "* ]] || set -- "$@" --once
    [[ " $* " == *" --url "* ]] || set -- "$@" --url "http://127.0.0.1:$READER_PORT" ;;
esac
exec "$HEADRACE_BINARY" "$@" </dev/null
"""


def free_port():
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


def is_running(pid):
    """Whether the process is there and no zombie: those have no command line."""
    path = pathlib.Path(f"/proc/{pid}/cmdline")
    return path.exists() and path.read_bytes() != b""


class Reader:
    def __init__(self, folder, binary, model, minilm):
        self.folder, self.model, self.minilm = folder, pathlib.Path(model), pathlib.Path(minilm)
        self.work, self.home, self.logs = (folder / name for name in ("work", "home", "logs"))
        shutil.copytree(FILES, self.work)
        (self.work / "build").mkdir()
        cache = self.home / ".cache/headrace/models"
        for path in (cache, self.logs, self.home / ".config/fish/completions", self.home / ".zfunc"):
            path.mkdir(parents=True)
        (cache / self.model.name).symlink_to(self.model)
        for path in (self.home / "bin/headrace", self.work / "build/headrace"):
            path.parent.mkdir(exist_ok=True)
            path.write_text(WRAPPER)
            path.chmod(path.stat().st_mode | stat.S_IXUSR)
        self.ports = {port: str(free_port()) for port in PORTS}
        self.hub = None
        self.environment = {
            "PATH": f"{self.home / 'bin'}:{os.environ['PATH']}", "HOME": str(self.home), "LANG": "C.UTF-8", "TERM": "xterm",
            "HEADRACE_BINARY": str(pathlib.Path(binary).resolve()), "HEADRACE_PACKED_CACHE": "off", "READER_LOGS": str(self.logs),
            "READER_PORT": self.ports["8000"],
        }  # fmt: skip

    # --- the hub

    def start_hub(self):
        """Every model that a page names is there, and is the small one."""
        if self.hub is None:
            self.hub = StandInHub(AnyModel(self.model.read_bytes()))
            self.hub.ollama = AnyTag(self.hub.models)
            self.environment.update(HF_ENDPOINT=self.hub.url, HEADRACE_OLLAMA_REGISTRY=self.hub.url)

    def have_model(self, name):
        """As if `headrace pull NAME` had been said on another day."""
        hub = self.home / ".cache/huggingface/hub" / f"models--{name.replace('/', '--')}"
        snapshot = hub / "snapshots" / COMMIT
        if snapshot.exists():
            return
        snapshot.mkdir(parents=True)
        (hub / "refs").mkdir()
        (hub / "refs/main").write_text(COMMIT)
        if name == "sentence-transformers/all-MiniLM-L6-v2":
            with zipfile.ZipFile(self.minilm) as archive:
                archive.extractall(snapshot)
            inner = next(snapshot.rglob("modules.json")).parent
            for path in list(inner.iterdir()) if inner != snapshot else []:
                path.rename(snapshot / path.name)
        else:
            (snapshot / "model-Q4_K_M.gguf").symlink_to(self.model)

    # --- blocks

    def prepare(self, text):
        """What a block takes for granted."""
        for name in re.findall(r"(?<![\w/.])[\w-]+\.gguf\b", text):
            if not (self.work / name).exists():
                (self.work / name).symlink_to(self.model)
        if re.search(r"headrace (pull|search|recommend)|--pull", text):
            self.start_hub()
        for line in text.split("\n"):
            if found := re.search(r"headrace (?:serve|run|chat|bench|batch) .*-m ([\w-]+/[\w.-]+)(?= |$)", line):
                self.have_model(found[1])
        if re.search(r"headrace (top|chat --url)", text) and "headrace serve" not in text and not (self.logs / "pids").exists():
            self.bash("headrace serve")  # somebody else's
        if found := re.search(r"--load (\w+)", text):
            talk = f"/set max_tokens 8\nHello\n/save {found[1]}\n"
            subprocess.run([self.environment["HEADRACE_BINARY"], "chat"], input=talk, text=True, env=self.environment, capture_output=True, check=True)
        if "adapters/" in text and not (self.work / "adapters").exists():
            write_adapter(self.work / "adapters/sql", seed=1)

    def as_here(self, text):
        """The block with this machine's ports, and its stand-ins for other hosts."""
        for port, here in self.ports.items():
            text = re.sub(rf"(?<!\d){port}(?!\d)", here, text)
        if self.hub is not None:
            text = text.replace("https://example.com/folder/model.gguf", f"{self.hub.url}/plain/model.gguf")
        return text

    def run(self, block):
        """The finished process of a block of sh or python."""
        self.prepare(block.text)
        text = self.as_here(block.text)
        return self.finish(sys.executable, "-c", text) if block.language == "python" else self.bash(text)

    def bash(self, text):
        return self.finish("bash", "-euo", "pipefail", "-c", text)

    def finish(self, *command):
        return subprocess.run(command, stdin=subprocess.DEVNULL, cwd=self.work, env=self.environment, capture_output=True, text=True,
                              timeout=BLOCK_SECONDS_MAX)  # fmt: skip

    def end_servers(self):
        pids = self.logs / "pids"
        running = [int(pid) for pid in pids.read_text().split()] if pids.exists() else []
        pids.unlink(missing_ok=True)
        for signal_number in (signal.SIGTERM, signal.SIGKILL):
            for pid in filter(is_running, running):
                os.kill(pid, signal_number)
            deadline = time.monotonic() + 3
            while any(map(is_running, running)) and time.monotonic() < deadline:
                time.sleep(0.02)

    def close(self):
        self.end_servers()
        if self.hub is not None:
            self.hub.close()


class AnyModel(dict):
    """A hub on which every name is a model with one .gguf file."""

    def __init__(self, data):
        super().__init__(plain={"model.gguf": data})
        self.data = data

    def __contains__(self, name):
        return True

    def __missing__(self, name):
        self[name] = {f"{name.split('/')[-1]}-Q4_K_M.gguf": self.data}
        return self[name]


class AnyTag(dict):
    def __init__(self, models):
        super().__init__()
        self.models = models

    def get(self, name, default=None):
        return self.setdefault(name, self.models.data)
