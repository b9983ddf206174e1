"""headrace pull, list, show, rm, search, and run --pull, against a stand-in hub that fails in all the ways of a network.
HEADRACE_FAULTY_PULLS says how many faulty downloads there are (100; ./test --full: 1,000)."""

import concurrent.futures
import datetime
import hashlib
import json
import os
import pathlib
import random
import shutil
import signal
import subprocess
import time

import pytest

from pseudo_terminal import Terminal
from stand_in_hub import COMMIT, StandInHub, git_hash

DOWNLOADS = int(os.environ.get("HEADRACE_FAULTY_PULLS", 100))
HEADER = b"GGUF"  # of what is no model, but called one


def some_bytes(size, seed=0):
    return random.Random(seed).randbytes(size)


@pytest.fixture
def hub():
    storage = StandInHub({})
    server = StandInHub({}, storage)
    storage.hub = server
    yield server
    server.close()
    storage.close()


class Machine:
    """A user's folder, whose hub is the stand-in."""

    def __init__(self, program, hub, folder):
        self.program, self.folder = program, folder
        self.environment = {"HF_ENDPOINT": hub.url, "HF_HOME": str(folder / "hf"), "XDG_CACHE_HOME": str(folder / "cache"),
                            "HEADRACE_OLLAMA_REGISTRY": hub.url}

    def pull(self, *arguments, **environment):
        return self.program.run("pull", *arguments, environment={**self.environment, **environment})

    def error(self, *arguments, **environment):
        return self.program.error(*arguments, environment={**self.environment, **environment})

    def text(self, *arguments, **environment):
        return self.program.text(*arguments, environment={**self.environment, **environment})

    def model_folder(self, name):
        return self.folder / "hf" / "hub" / f"models--{name.replace('/', '--')}"

    def leftovers(self):
        """Files that are neither blobs, refs nor snapshots of the hub's layout."""
        found = []
        for path in self.folder.rglob("*"):
            if path.is_dir() or path.parent.name in ("refs",) or "snapshots" in path.parts:
                continue
            if path.suffix == ".gguf" or (path.parent.name == "blobs" and "." not in path.name):
                continue
            found.append(path)
        return found

    def snapshot(self, name):
        """{path: bytes}, read through the layout as the hub's own tools read it."""
        folder = self.model_folder(name)
        if not (folder / "refs" / "main").exists():
            return {}
        snapshot = folder / "snapshots" / (folder / "refs" / "main").read_text()
        return {str(path.relative_to(snapshot)): path.read_bytes() for path in snapshot.rglob("*") if not path.is_dir()}


@pytest.fixture
def machine(program, hub, tmp_path):
    return Machine(program, hub, tmp_path)


FILES = {"config.json": b'{"model_type": "llama"}', "1_Pooling/config.json": b"{}", "tokenizer.json": b"x" * 5000,
         "model.safetensors": some_bytes(3_000_000), "pytorch_model.bin": b"y" * 2000, ".gitattributes": b"z"}
WANTED = {path: data for path, data in FILES.items() if path not in ("pytorch_model.bin", ".gitattributes")}


def test_a_model_lies_in_the_hubs_layout(machine, hub):
    hub.models["maker/model"] = FILES
    done = machine.pull("maker/model")
    assert done.returncode == 0, done.stderr.decode()
    folder = machine.model_folder("maker/model")
    assert done.stdout.decode().strip() == str(folder / "snapshots" / COMMIT)
    assert machine.snapshot("maker/model") == WANTED
    assert (folder / "refs" / "main").read_text() == COMMIT
    names = {hashlib.sha256(data).hexdigest() if len(data) >= 1000 else git_hash(data) for data in WANTED.values()}
    assert {path.name for path in (folder / "blobs").iterdir()} == names
    for path in (folder / "snapshots" / COMMIT).rglob("*"):
        assert path.is_dir() or (path.is_symlink() and not os.readlink(path).startswith("/"))
    assert machine.leftovers() == []
    requests = len(hub.requests) + len(hub.storage.requests)
    assert b"all of it is there" in machine.pull("maker/model").stderr
    assert len(hub.requests) + len(hub.storage.requests) == requests + 1  # what the hub says of the model


def test_revisions(machine, hub):
    hub.models["maker/model"] = FILES
    assert machine.pull("maker/model@pr/7").returncode == 0
    assert (machine.model_folder("maker/model") / "refs" / "pr" / "7").read_text() == COMMIT
    assert "maker/model@" in machine.text("list")


def test_a_quant(machine, hub):
    hub.models["maker/model-GGUF"] = {f"model-{quant}.gguf": some_bytes(5000, size) for size, quant in enumerate(
        ("Q2_K", "Q4_0_4_4", "Q4_K_M", "Q8_0"))}
    for name, file in (("maker/model-GGUF", "Q4_K_M"), ("hf.co/maker/model-GGUF:q8_0", "Q8_0")):
        done = machine.pull(name)
        assert done.stdout.decode().strip().endswith(f"/model-{file}.gguf"), done.stderr
    assert set(machine.snapshot("maker/model-GGUF")) == {"model-Q4_K_M.gguf", "model-Q8_0.gguf"}
    message = machine.error("pull", "maker/model-GGUF:Q5_K_M")
    assert "no Q5_K_M" in message and "model-Q8_0 (5 kB)" in message
    listed = [line.split()[0] for line in machine.text("list").splitlines()[1:]]
    assert listed == ["maker/model-GGUF:Q4_K_M", "maker/model-GGUF:Q8_0"]
    assert "5 kB are free again" in machine.text("rm", "maker/model-GGUF:Q8_0")
    assert set(machine.snapshot("maker/model-GGUF")) == {"model-Q4_K_M.gguf"}
    machine.text("rm", "maker/model-GGUF")
    assert not machine.model_folder("maker/model-GGUF").exists()
    assert "there is none on this machine" in machine.error("rm", "maker/model-GGUF")


def blobs_of(machine, name):
    return {path.name for path in (machine.model_folder(name) / "blobs").iterdir()}


def test_a_revision_is_removed_alone(machine, hub):
    hub.models["maker/model"] = FILES
    assert machine.pull("maker/model").returncode == 0
    assert machine.pull("maker/model@v2").returncode == 0  # another name of that commit
    of_main = blobs_of(machine, "maker/model")
    hub.models["maker/model"] = {**FILES, "model.safetensors": some_bytes(2_000_000, 1)}
    hub.changes = {"sha": "f" * 40}
    assert machine.pull("maker/model@v1").returncode == 0
    assert len(blobs_of(machine, "maker/model")) == len(of_main) + 1
    assert "2 MB are free again" in machine.text("rm", "maker/model@v1")
    folder = machine.model_folder("maker/model")
    assert blobs_of(machine, "maker/model") == of_main and machine.snapshot("maker/model") == WANTED
    assert [path.name for path in (folder / "snapshots").iterdir()] == [COMMIT]
    assert sorted(path.name for path in (folder / "refs").iterdir()) == ["main", "v2"]
    assert "there is none" in machine.error("rm", "maker/model@v1")
    machine.text("rm", "maker/model@v2")
    assert machine.snapshot("maker/model") == WANTED
    machine.text("rm", f"maker/model@{COMMIT}")
    assert not folder.exists()


def test_a_removal_leaves_a_pull_alone(machine, hub):
    kept = some_bytes(1_000_000)
    hub.models["maker/model"] = {"m-Q4_0.gguf": some_bytes(5000, 1), "m-Q8_0.gguf": kept}
    assert machine.pull("maker/model:Q4_0").returncode == 0
    hub.storage.faults = lambda number, span: "drip"
    hub.storage.drip_seconds = 4
    pull = subprocess.Popen([machine.program.binary, "pull", "maker/model:Q8_0"],
                            env={**machine.program.environment, **machine.environment})
    part = machine.model_folder("maker/model") / "blobs" / (hashlib.sha256(kept).hexdigest() + ".part")
    deadline = time.monotonic() + 20
    while not (part.exists() and part.stat().st_size > 0):
        assert time.monotonic() < deadline
        time.sleep(0.02)
    assert "5 kB are free again" in machine.text("rm", "maker/model:Q4_0")
    assert "it is being pulled" in machine.error("rm", "maker/model")
    assert part.exists() and pull.poll() is None
    assert pull.wait(30) == 0
    assert machine.snapshot("maker/model") == {"m-Q8_0.gguf": kept}
    assert len(hub.storage.requests) == 2 and machine.leftovers() == []


def test_a_list_says_when_a_model_came(machine, hub):
    hub.models["maker/model"] = FILES
    begun = datetime.datetime.now() - datetime.timedelta(minutes=1)
    assert machine.pull("maker/model").returncode == 0
    [model] = json.loads(machine.text("list", "--json"))
    assert begun <= datetime.datetime.fromisoformat(model["pulled"]) <= datetime.datetime.now()


def test_ollamas_names_and_addresses(machine, hub):
    data, other = HEADER + some_bytes(40_000), HEADER + some_bytes(50_000, 1)
    hub.ollama = {"library/tiny:1b": data, "library/tiny:latest": other, "maker/tiny:1b": other}
    hub.models["plain"] = {"folder/m.gguf": data}
    for name, content in (("tiny:1b", data), ("tiny", other), ("ollama:maker/tiny:1b", other),
                          (f"{hub.url}/plain/folder/m.gguf", data)):
        done = machine.pull(name)
        assert done.returncode == 0, done.stderr.decode()
        assert pathlib.Path(done.stdout.decode().strip()).read_bytes() == content
    listed = [line.split()[0] for line in machine.text("list").splitlines()[1:]]
    assert sorted(listed) == sorted(["tiny:1b", "tiny", "ollama:maker/tiny:1b", f"{hub.url}/plain/folder/m.gguf".replace("http:", "https:")])
    hub.ollama["library/tiny:1b"] = other  # the tag has moved on
    assert pathlib.Path(machine.pull("tiny:1b").stdout.decode().strip()).read_bytes() == other
    assert b"all of it is there" in machine.pull("tiny:1b").stderr
    assert "no such model (library/none:latest)" in machine.error("pull", "none")
    machine.text("rm", "tiny:1b")
    assert machine.leftovers() == []


FAULTS = ["busy", "broken", "refuse", "drop", "drop", "cut short", "wrong total", "other range", "ignore range", "drip"]


def faulty_download(program, hub, folder, seed):
    """One file of a few kilobytes, pulled until it is there. How many pulls ended at a wrong hash."""
    chance = random.Random(seed)
    name = f"maker/m{seed}"
    data = some_bytes(chance.randrange(1, 40_000), seed)
    hub.models[name] = {"m-Q8_0.gguf": data, "README.md": b"x"}
    machine = Machine(program, hub, folder / str(seed))
    wrong = 0
    for _ in range(30):
        done = machine.pull(name)
        found = machine.snapshot(name)
        if done.returncode == 0:
            assert found == {"m-Q8_0.gguf": data}, seed
            assert machine.leftovers() == [], seed
            shutil.rmtree(folder / str(seed))
            return wrong
        assert done.stderr.count(b"\n") == 1 and done.stderr.startswith(b"headrace: error: "), done.stderr
        assert found == {}, seed
        wrong += b"another hash" in done.stderr
    raise AssertionError(f"30 pulls of {seed}: {done.stderr}")


def test_faulty_downloads_give_no_wrong_file_and_no_leftovers(program, hub, tmp_path):
    hub.drip_seconds = hub.storage.drip_seconds = 0.05
    lies = []

    def fault(number, span):
        chance = random.Random(number)
        if span == "model":
            return "busy" if chance.random() < 0.1 else None
        if chance.random() < 0.02:
            lies.append(number)
            return "wrong bytes"
        return chance.choice(FAULTS) if chance.random() < 0.6 else None

    hub.faults = hub.storage.faults = fault
    with concurrent.futures.ThreadPoolExecutor(8) as pool:
        wrong = sum(pool.map(lambda seed: faulty_download(program, hub, tmp_path, seed), range(DOWNLOADS)))
    assert len(hub.requests) + len(hub.storage.requests) > 2 * DOWNLOADS
    assert 0 < wrong <= len(lies)


def test_it_goes_on_at_the_byte(machine, hub):
    data = some_bytes(5_000_000)
    hub.models["maker/model"] = {"m-Q8_0.gguf": data}
    hub.storage.faults = lambda number, span: "stall"
    child = subprocess.Popen([machine.program.binary, "pull", "maker/model"],
                             env={**machine.program.environment, **machine.environment}, stderr=subprocess.PIPE)
    part = machine.model_folder("maker/model") / "blobs" / (hashlib.sha256(data).hexdigest() + ".part")
    deadline = time.monotonic() + 20
    while not (part.exists() and part.stat().st_size >= 2_500_000):
        assert time.monotonic() < deadline
        time.sleep(0.02)
    child.send_signal(signal.SIGINT)
    assert child.wait(20) == 130
    assert b"the next pull goes on from it" in child.stderr.read()
    assert machine.snapshot("maker/model") == {}
    hub.storage.faults = lambda number, span: None
    hub.storage.requests.clear()
    assert machine.pull("maker/model").returncode == 0
    assert [span for _, span, _ in hub.storage.requests] == [(2_500_000, 5_000_000)]
    assert machine.snapshot("maker/model") == {"m-Q8_0.gguf": data}
    assert machine.leftovers() == []


def test_a_killed_pull_goes_on_too(machine, hub):
    data = some_bytes(40_000_000)
    hub.models["maker/model"] = {"m-Q8_0.gguf": data}
    hub.storage.faults = lambda number, span: "drip"
    hub.storage.drip_seconds = 8
    child = subprocess.Popen([machine.program.binary, "pull", "maker/model"],
                             env={**machine.program.environment, **machine.environment}, stderr=subprocess.PIPE)
    time.sleep(4)
    child.kill()
    child.wait()
    assert machine.snapshot("maker/model") == {}
    hub.storage.faults = lambda number, span: None
    hub.storage.requests.clear()
    assert machine.pull("maker/model").returncode == 0
    assert sum(end - first for _, (first, end), _ in hub.storage.requests) < 39_000_000
    assert machine.snapshot("maker/model") == {"m-Q8_0.gguf": data}
    assert machine.leftovers() == []


def test_an_address_gives_no_mixture_of_versions(machine, hub):
    """The content changes while a pull of it runs: never a mixture under its name, and the next pull has the new one whole."""
    old, new = some_bytes(40_000_000), some_bytes(40_000_000, 1)
    for before, after, meanwhile in (
            ({"ETag": '"1"'}, {"ETag": '"2"'}, 0), ({"ETag": 'W/"1"'}, {"ETag": 'W/"2"'}, 0), ({}, {}, 1),
            ({"Last-Modified": "Mon, 01 Jan 2024 00:00:00 GMT"}, {"Last-Modified": "Mon, 01 Jan 2024 00:00:09 GMT"}, 0)):
        hub.models["plain"] = {"m.gguf": old}
        hub.validators = before
        hub.requests.clear()

        def change(after=after):
            hub.models["plain"] = {"m.gguf": new}
            hub.validators = after

        hub.change = change
        hub.faults = lambda number, span: "drop and change" if number == 2 else None  # the first asks for the size
        done = machine.pull(f"{hub.url}/plain/m.gguf", "--connections", "1")
        if meanwhile:  # the server tells nothing: it began anew by itself
            assert done.returncode == 0 and [span for _, span, _ in hub.requests] == [(0, 1), None, None]
        else:
            assert done.returncode == 1 and b"another version" in done.stderr, (before, done)
            assert [path for path in machine.folder.rglob("*.gguf")] == []
            hub.faults = lambda number, span: None
            done = machine.pull(f"{hub.url}/plain/m.gguf")
        assert pathlib.Path(done.stdout.decode().strip()).read_bytes() == new, before
        assert machine.leftovers() == []
        machine.text("rm", f"{hub.url}/plain/m.gguf")


def test_an_address_without_a_version_begins_anew_with_every_pull(machine, hub):
    for size, validators, resumes in ((40_000_000, {}, False), (30_000_000, {"ETag": '"1"'}, True)):
        data = some_bytes(size)
        hub.models["plain"] = {"m.gguf": data}
        hub.validators = validators
        hub.drip_seconds = 30
        hub.faults = lambda number, span: "drip" if number > 1 else None
        hub.requests.clear()
        child = subprocess.Popen([machine.program.binary, "pull", f"{hub.url}/plain/m.gguf"],
                                 env={**machine.program.environment, **machine.environment}, stderr=subprocess.PIPE)
        time.sleep(1.5)
        child.send_signal(signal.SIGINT)
        assert child.wait(20) == 130
        assert (b"begins anew" in child.stderr.read()) == (not resumes)
        hub.faults = lambda number, span: None
        hub.requests.clear()
        done = machine.pull(f"{hub.url}/plain/m.gguf")
        assert pathlib.Path(done.stdout.decode().strip()).read_bytes() == data  # nothing of a longer part behind it
        assert (sum(span is None for _, span, _ in hub.requests) == 1) == (not resumes)
        machine.text("rm", f"{hub.url}/plain/m.gguf")


def test_ctrl_c_ends_a_wait_for_the_hub(machine, hub):
    hub.models["maker/model"] = FILES
    hub.retry_after = 29
    hub.faults = lambda number, span: "busy"
    child = subprocess.Popen([machine.program.binary, "pull", "maker/model"],
                             env={**machine.program.environment, **machine.environment}, stderr=subprocess.PIPE)
    deadline = time.monotonic() + 20
    while not hub.requests:
        assert time.monotonic() < deadline
        time.sleep(0.02)
    time.sleep(0.3)
    child.send_signal(signal.SIGINT)
    assert child.wait(5) == 130
    assert child.stderr.read() == b"headrace: error: interrupted\n"


def test_what_a_server_says_commands_no_terminal(machine, hub):
    hub.models["plain"] = {"m.gguf": some_bytes(1000)}
    hub.location = "ftp://\x1b[31mred\x9b31m/"
    message = machine.error("pull", f"{hub.url}/plain/m.gguf")
    assert "redirects to where nothing is fetched from: ftp://[31mred" in message
    assert not any(ord(c) < 0x20 and c != "\n" or 0x7f <= ord(c) < 0xa0 for c in message)
    hub.models["maker/model"] = FILES
    for name in ("a\x1b[31m.json", "a\x9b31m.json", "a\x7f.json"):
        hub.changes = {"siblings": [{"rfilename": name, "size": 5, "blobId": "0" * 40}]}
        assert "would lie elsewhere, or has control characters" in machine.error("pull", "maker/model")


def test_a_link_at_the_name_of_the_ranges_is_not_followed(machine, hub):
    hub.models["maker/model"] = {"m-Q8_0.gguf": some_bytes(50_000)}
    hub.storage.faults = lambda number, span: "too many"
    hub.storage.retry_after = 100_000
    precious = machine.folder / "precious"
    precious.write_text("kept")
    blobs = machine.model_folder("maker/model") / "blobs"
    blobs.mkdir(parents=True)
    ranges = blobs / (hashlib.sha256(some_bytes(50_000)).hexdigest() + ".part.ranges")
    ranges.with_name(ranges.name + ".new").symlink_to(precious)
    assert "429" in machine.error("pull", "maker/model")
    assert ranges.exists() and not ranges.is_symlink() and precious.read_text() == "kept"


def test_two_pulls_of_one_model_fetch_it_once(machine, hub):
    data = some_bytes(3_000_000)
    hub.models["maker/model"] = {"m-Q8_0.gguf": data}
    hub.storage.faults = lambda number, span: "drip"
    hub.storage.drip_seconds = 1
    with concurrent.futures.ThreadPoolExecutor(2) as pool:
        done = list(pool.map(lambda _: machine.pull("maker/model"), range(2)))
    assert [each.returncode for each in done] == [0, 0], done
    assert len(hub.storage.requests) == 1
    assert machine.snapshot("maker/model") == {"m-Q8_0.gguf": data}
    assert machine.leftovers() == []


def test_a_server_without_ranges(machine, hub):
    data = some_bytes(40_000_000)
    hub.models["maker/model"] = {"m-Q8_0.gguf": data}
    hub.storage.faults = lambda number, span: "ignore range"
    assert machine.pull("maker/model").returncode == 0
    assert machine.snapshot("maker/model") == {"m-Q8_0.gguf": data}


def test_a_server_that_no_longer_takes_ranges_is_not_believed(machine, hub):
    """What was hashed comes again, and other bytes may come."""
    hub.models["maker/model"] = {"m-Q8_0.gguf": some_bytes(40_000_000)}

    def faults(number, span):
        if span and span[0] == 0:
            return None
        time.sleep(0.5)  # the first range is hashed by then
        return "whole of wrong bytes"

    hub.storage.faults = faults
    message = machine.error("pull", "maker/model")
    assert "another hash" in message
    assert [path for path in machine.folder.rglob("*") if path.is_file()] == []
    hub.storage.faults = lambda number, span: None if span and span[0] == 0 else "ignore range"
    assert machine.pull("maker/model").returncode == 0
    assert machine.snapshot("maker/model") == hub.models["maker/model"]


def test_an_outage_of_seconds_is_one_trouble_of_all_connections(machine, hub):
    data = some_bytes(140_000_000)
    hub.models["maker/model"] = {"m-Q8_0.gguf": data}
    until = time.monotonic() + 2.5
    hub.storage.faults = lambda number, span: "refuse" if time.monotonic() < until else None
    assert machine.pull("maker/model").returncode == 0
    assert machine.snapshot("maker/model") == {"m-Q8_0.gguf": data}
    hub.storage.faults = lambda number, span: "refuse"  # for ever is too long
    machine.text("rm", "maker/model")
    assert "Empty reply" in machine.error("pull", "maker/model")


def test_addresses_of_the_hub_have_its_token_and_patience(machine, hub):
    hub.models["maker/private"] = {"m-Q8_0.gguf": some_bytes(50_000)}
    hub.private["maker/private"] = "hf_secret"
    address = f"{hub.url}/maker/private/resolve/{COMMIT}/m-Q8_0.gguf"
    assert "HF_TOKEN" in machine.error("pull", address)
    hub.storage.faults = lambda number, span: "busy" if number == 1 else None
    assert machine.pull(address, HF_TOKEN="hf_secret").returncode == 0
    assert {token for _, _, token in hub.storage.requests} == {""}


def test_two_pulls_of_one_address_fetch_it_once(machine, hub):
    hub.models["plain"] = {"m.gguf": some_bytes(3_000_000)}
    hub.faults = lambda number, span: "drip" if span is None or span[1] > 1 else None
    hub.drip_seconds = 1
    with concurrent.futures.ThreadPoolExecutor(2) as pool:
        done = list(pool.map(lambda _: machine.pull(f"{hub.url}/plain/m.gguf"), range(2)))
    assert [each.returncode for each in done] == [0, 0], done
    assert len([span for _, span, _ in hub.requests if span != (0, 1)]) == 1


def test_a_quant_is_a_word_of_a_name(machine, hub, model):
    data = pathlib.Path(model).read_bytes()
    hub.models["maker/model"] = {"m-BF16.gguf": data[:2000], "m-Q6_K_L.gguf": data[:3000]}
    for quant in ("BF16", "Q6_K_L"):
        assert machine.pull(f"maker/model:{quant}").returncode == 0
    for quant in ("F16", "Q6_K"):
        assert quant in machine.error("show", f"maker/model:{quant}")


def test_a_wrong_hash_leaves_nothing(machine, hub):
    hub.models["maker/model"] = {"m-Q8_0.gguf": some_bytes(50_000)}
    hub.storage.faults = lambda number, span: "wrong bytes"
    message = machine.error("pull", "maker/model")
    assert "another hash" in message and "pull it again" in message
    assert [path for path in machine.folder.rglob("*") if path.is_file()] == []


def test_a_stalled_connection_is_tried_again(machine, hub):
    data = some_bytes(50_000)
    hub.models["maker/model"] = {"m-Q8_0.gguf": data}
    hub.storage.faults = lambda number, span: "stall" if number == 1 else None
    begun = time.monotonic()
    assert machine.pull("maker/model", HF_HUB_DOWNLOAD_TIMEOUT="1").returncode == 0
    assert time.monotonic() - begun < 15
    assert hub.storage.requests[1][1] == (25_000, 50_000)


def test_it_waits_as_long_as_the_server_asks(machine, hub):
    hub.models["maker/model"] = {"m-Q8_0.gguf": some_bytes(50_000)}
    hub.storage.retry_after = 2
    hub.storage.faults = lambda number, span: "too many" if number == 1 else None
    begun = time.monotonic()
    assert machine.pull("maker/model").returncode == 0
    assert time.monotonic() - begun >= 2
    machine.text("rm", "maker/model")
    hub.storage.retry_after = 100_000
    hub.storage.faults = lambda number, span: "too many"
    assert "429" in machine.error("pull", "maker/model")


def test_a_token_goes_to_the_hub_alone(machine, hub):
    hub.models["maker/private"] = {"m-Q8_0.gguf": some_bytes(50_000)}
    hub.private["maker/private"] = "hf_secret"
    message = machine.error("pull", "maker/private")
    assert "set HF_TOKEN" in message
    assert machine.pull("maker/private", HF_TOKEN="hf_secret").returncode == 0
    assert {token for _, _, token in hub.requests} == {"hf_secret"}
    assert {token for _, _, token in hub.storage.requests} == {""}
    hub.models["maker/gated"] = hub.models["maker/private"]
    hub.gated.add("maker/gated")
    message = machine.error("pull", "maker/gated")
    assert "gated" in message and "HF_TOKEN" in message
    token = machine.folder / "hf" / "token"
    token.write_text("hf_secret\n")
    assert machine.pull("maker/gated").returncode == 0


def test_a_certificate_is_verified_and_https_stays_https(program, hub, tmp_path):
    folder = pathlib.Path(__file__).resolve().parents[1] / "data" / "tls"
    hub.models["maker/model"] = {"m-Q8_0.gguf": some_bytes(50_000), "README.md": b"x"}
    secure = StandInHub(hub.models, certificate=(folder / "cert.pem", folder / "key.pem"))
    try:
        machine = Machine(program, secure, tmp_path)
        message = machine.error("pull", "maker/model")
        assert "certificate" in message and secure.url in message
        assert machine.pull("maker/model", SSL_CERT_FILE=str(folder / "cert.pem")).returncode == 0
        machine.text("rm", "maker/model")
        secure.storage = hub.storage  # by plain HTTP
        message = machine.error("pull", "maker/model", SSL_CERT_FILE=str(folder / "cert.pem"))
        assert "redirects to where nothing is fetched from" in message
        assert hub.storage.requests == [] and machine.snapshot("maker/model") == {}
    finally:
        secure.close()


def test_what_stands_in_the_way_is_one_line(machine, hub):
    hub.models["maker/smollm-one"] = FILES
    message = machine.error("pull", "other/smollm-two")
    assert "nearest: maker/smollm-one" in message
    assert "HF_HUB_OFFLINE" in machine.error("pull", "maker/smollm-one", HF_HUB_OFFLINE="1")
    assert "127.0.0.1" in machine.error("pull", "maker/smollm-one", HF_ENDPOINT="http://127.0.0.1:9")
    assert "HF_ENDPOINT" in machine.error("pull", "maker/smollm-one", HF_ENDPOINT="file:///etc")
    hub.changes = {"siblings": [{"rfilename": "../../../x.gguf", "size": 5, "blobId": "0" * 40}]}
    assert "would lie elsewhere" in machine.error("pull", "maker/smollm-one")
    hub.changes = {"siblings": [{"rfilename": "x.gguf", "size": 5, "blobId": "../../x"}]}
    assert "no hash" in machine.error("pull", "maker/smollm-one")
    hub.changes = {"siblings": [{"rfilename": "x.gguf", "size": 1 << 60, "blobId": "0" * 40}]}
    assert "are free in" in machine.error("pull", "maker/smollm-one:x")
    hub.changes = {"sha": "../../x"}
    assert "no commit" in machine.error("pull", "maker/smollm-one")
    for name in ("../../etc/passwd", "hf:../x", "ollama:../x", "file:///etc/passwd", "https://host/../x.gguf"):
        machine.error("pull", name)
    assert [path for path in machine.folder.rglob("*") if path.is_file()] == []


def test_recommend_asks_for_sizes_and_fetches_nothing(machine, hub):
    hub.models["maker/model"] = {"m-Q8_0.gguf": some_bytes(2_000_000)}
    found = json.loads(machine.text("recommend", "maker/model", "--json"))
    assert [model["bytes"] for model in found["models"]] == [2_000_000]
    assert found["best"] == "maker/model" and found["bytes_per_second"] > 1e8
    rate = found["models"][0]["tokens_per_second_max"]
    assert rate == pytest.approx(found["bytes_per_second"] / 2_000_000)
    assert hub.storage.requests == []
    assert "no such file" in machine.error("recommend", "/no/such.gguf").lower()


def test_search(machine, hub):
    hub.models = {"maker/smollm-one": FILES, "maker/smollm-two": FILES, "maker/other": FILES}
    lines = machine.text("search", "smollm").splitlines()
    assert [line.split()[0] for line in lines[1:]] == ["maker/smollm-one", "maker/smollm-two"]


def test_a_run_pulls_what_it_is_told_to(machine, hub, model):
    hub.models["maker/SmolLM2-GGUF"] = {"SmolLM2-Q4_1.gguf": pathlib.Path(model).read_bytes()}
    ask = ("run", "maker/SmolLM2-GGUF", "The capital of France is", "-n", "8")
    message = machine.error(*ask)
    assert "'headrace pull maker/SmolLM2-GGUF'" in message
    answer = machine.program.text("run", model, *ask[2:])
    assert machine.text(*ask, "--pull") == answer
    assert machine.text(*ask) == answer
    assert "SmolLM2" in machine.text("show", "maker/SmolLM2-GGUF:Q4_1")


def test_a_person_is_asked(machine, hub, model):
    hub.ollama["library/smollm2:latest"] = pathlib.Path(model).read_bytes()
    ask = ("run", "smollm2", "The capital of France is", "-n", "8")
    for answer, code in (("n", 1), ("y", 0)):
        terminal = Terminal(machine.program, *ask, environment=machine.environment, columns=200)
        try:
            terminal.wait_for(r"smollm2 is not on this machine. Pull \d+ MB from http://127.0.0.1:\d+\? \[y/N\] ")
            terminal.type(answer + "\r")
            assert terminal.exit_code() == code, terminal.output
            assert ("answer 8 tokens" in terminal.output) == (code == 0)
        finally:
            terminal.close()


@pytest.mark.timing
def test_it_is_as_fast_as_the_server(machine, hub, tmp_path):
    """Nine tenths of what curl does with the same server; both to the same disk."""
    data = some_bytes(200_000_000)
    hub.models["maker/model"] = {"m-Q8_0.gguf": data}
    machine.pull("maker/model")  # the stand-in knows its hash
    machine.text("rm", "maker/model")
    url = f"{hub.storage.url}/storage/maker/model/m-Q8_0.gguf"
    ours, theirs = [], []
    # A machine that stood still in one of three turns says nothing: then there are more.
    while len(ours) < 3 or (len(ours) < 8 and min(ours) > min(theirs) / 0.9):
        begun = time.monotonic()
        subprocess.run(["curl", "-sf", "-o", tmp_path / "curl", url], check=True)
        subprocess.run(["sha256sum", tmp_path / "curl"], check=True, capture_output=True)
        theirs.append(time.monotonic() - begun)
        begun = time.monotonic()
        assert machine.pull("maker/model").returncode == 0
        ours.append(time.monotonic() - begun)
        machine.text("rm", "maker/model")
    print(f"pull {min(ours):.2f} s, curl and sha256sum {min(theirs):.2f} s")
    assert min(ours) <= min(theirs) / 0.9
