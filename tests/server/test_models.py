"""Several models behind one server: by the names that clients use, with the flags that people type."""

import concurrent.futures
import json
import pathlib
import sys
import time
import urllib.error
import urllib.request

import ollama
import pytest

from conftest import MODEL

sys.path.append(str(pathlib.Path(__file__).parents[1] / "cli"))
from stand_in_hub import StandInHub  # noqa: E402

SMOL = f"smol={MODEL}"


def call(server, path, body=None):
    data = None if body is None else json.dumps(body).encode()
    request = urllib.request.Request(server.url + path, data, {"Content-Type": "application/json"})
    try:
        with urllib.request.urlopen(request, timeout=120) as response:
            return response.status, json.loads(response.read())
    except urllib.error.HTTPError as error:
        return error.code, json.loads(error.read())


def states(server):
    return {card["id"]: card["status"]["value"] for card in call(server, "/v1/models")[1]["data"]}


def ask(server, model):
    answer = server.client().completions.create(model=model, prompt="One, two, three,", max_tokens=4, temperature=0)
    assert answer.model == model
    return answer.choices[0].text


def test_two_take_turns(start_server):
    server = start_server("-m", f"twin={MODEL}", "--models-max", 1, names=(), model=SMOL)
    assert states(server) == {"smol": "unloaded", "twin": "unloaded"}
    said = {ask(server, name) for _ in range(3) for name in ("smol", "twin")}
    assert len(said) == 1  # of one file
    with concurrent.futures.ThreadPoolExecutor(4) as pool:
        assert set(pool.map(lambda i: ask(server, ("smol", "twin")[i % 2]), range(12))) == said
    assert sorted(states(server).values()) == ["loaded", "unloaded"]
    text = urllib.request.urlopen(server.url + "/metrics", timeout=10).read().decode()
    assert text.count("# TYPE vllm:generation_tokens_total") == 1
    assert 'vllm:generation_tokens_total{engine="0",model_name="smol"} 36' in text
    assert 'vllm:generation_tokens_total{engine="0",model_name="twin"} 36' in text
    assert server.terminate() == 0


def test_orders(start_server, tmp_path):
    (tmp_path / "one.gguf").symlink_to(MODEL)
    (tmp_path / "torn.gguf").write_bytes(b"GGUF is not all")
    (tmp_path / "notes.txt").write_text("no model")
    server = start_server("--models-dir", tmp_path, "--no-models-autoload", names=(), model=SMOL)
    assert set(states(server)) == {"smol", "one", "torn"}
    body = {"model": "one", "prompt": "hi", "max_tokens": 1}
    assert call(server, "/v1/completions", body)[0] == 400
    assert call(server, "/models/load", {"model": "one"}) == (200, {"success": True})
    assert call(server, "/v1/completions", body)[0] == 200
    status, answer = call(server, "/models/load", {"model": "torn"})
    assert status == 500 and "torn failed to load" in answer["error"]["message"]
    assert str(tmp_path) not in answer["error"]["message"]
    assert [model["name"] for model in call(server, "/api/ps")[1]["models"]] == ["one"]
    assert call(server, "/props?model=one")[1]["model_alias"] == "one"
    assert call(server, "/sleep?level=1", {})[0] == 200 and call(server, "/is_sleeping")[1] == {"is_sleeping": True}
    assert call(server, "/v1/completions", body)[0] == 200  # wakes it
    assert call(server, "/models/unload", {"model": "one"}) == (200, {"success": True})
    assert states(server) == {"smol": "unloaded", "one": "unloaded", "torn": "failed"}


@pytest.mark.timing
def test_one_model_sleeps_when_idle(start_server):
    server = start_server("--model-idle-timeout", 0.3)
    assert ask(server, "smol")
    deadline = time.monotonic() + 20
    while states(server) != {"smol": "sleeping"}:
        assert time.monotonic() < deadline
        time.sleep(0.05)
    assert server.health() == 200
    assert ask(server, "smol")
    call(server, "/api/generate", {"model": "smol", "keep_alive": -1})
    time.sleep(0.6)
    assert states(server) == {"smol": "loaded"}


def test_settings_of_one(start_server, tmp_path):
    config = tmp_path / "models.yaml"
    config.write_text(f"models:\n  short:\n    path: {MODEL}\n    aliases: [brief]\n    max-model-len: 128\nmax-num-seqs: 4\n")
    server = start_server("--config", config, names=(), model=SMOL)
    assert call(server, "/models/load", {"model": "brief"})[0] == 200
    cards = {card["id"]: card for card in call(server, "/v1/models")[1]["data"]}
    assert cards["brief"]["max_model_len"] == cards["short"]["max_model_len"] == 128
    assert call(server, "/props?model=short")[1]["total_slots"] == 4
    assert ask(server, "smol")


@pytest.fixture
def registry(tmp_path):
    """Ollama's, the hub, and the folders of a user who has nothing of them."""
    hub = StandInHub({"maker/tiny": {"tiny-q4_1.gguf": pathlib.Path(MODEL).read_bytes(), "README.md": b"a model"}})
    hub.ollama = {"library/tiny:1b": pathlib.Path(MODEL).read_bytes(), "library/torn:latest": b"GGUF is not all"}
    hub.environment = {"HF_ENDPOINT": hub.url, "HF_HOME": str(tmp_path / "hf"), "XDG_CACHE_HOME": str(tmp_path / "cache"),
                       "HEADRACE_OLLAMA_REGISTRY": hub.url}
    yield hub
    hub.close()


def test_clients_pull_models_where_that_is_allowed(start_server, registry, tmp_path):
    folder = tmp_path / "models"
    folder.mkdir()
    flags = ("--models-dir", folder, "--allow-pull")
    server = start_server(*flags, names=(), model=SMOL, environment=registry.environment)
    client = ollama.Client(server.url)
    lines = list(client.pull("tiny:1b", stream=True))
    assert [lines[0].status, lines[-1].status] == ["pulling manifest", "success"]
    size = len(registry.ollama["library/tiny:1b"])
    assert any(line.completed == line.total == size and line.digest for line in lines)
    assert client.pull("hf.co/maker/tiny").status == "success"
    assert {model.model for model in client.list().models} == {"smol", "tiny:1b", "hf.co/maker/tiny"}
    said = [ask(server, name) for name in ("smol", "tiny:1b", "hf.co/maker/tiny")]
    assert len(set(said)) == 1  # of one file
    fetched = len(registry.requests)
    assert client.pull("tiny:1b").status == "success" and len(registry.requests) == fetched
    # What there is not, what is no model's name, and what would tell of this machine.
    for name in ("tiny:2b", "/etc/hostname", "../models", f"{registry.url}/x.gguf", "https://127.0.0.1:1/x.gguf"):
        with pytest.raises(ollama.ResponseError) as refused:
            client.pull(name)
        assert refused.value.status_code in (400, 404), name
        with pytest.raises(ollama.ResponseError):
            list(client.pull(name, stream=True))
    # A file that is no model is found out when it is loaded.
    assert client.pull("torn").status == "success"
    assert call(server, "/v1/completions", {"model": "torn", "prompt": "x"})[0] == 500
    assert ask(server, "tiny:1b") == said[0]
    assert server.terminate() == 0
    # They are there after a restart, from links, which no -m names.
    assert sorted(path.name for path in folder.iterdir()) == ["hf.co_maker_tiny.gguf", "tiny:1b.gguf", "torn.gguf"]
    again = start_server("--models-dir", folder, names=(), model=SMOL, environment=registry.environment)
    assert ask(again, "tiny:1b") == said[0]
    status, answer = call(again, "/api/pull", {"model": "tiny:2b"})
    assert status == 404 and "--allow-pull" in answer["error"]


def test_a_pull_ends_with_its_client(start_server, registry, tmp_path):
    registry.faults = lambda number, span: "stall" if number == 1 else None
    server = start_server("--models-dir", tmp_path, "--allow-pull", names=(), model=SMOL, environment=registry.environment)
    lines = ollama.Client(server.url).pull("tiny:1b", stream=True)
    assert next(lines).status == "pulling manifest" and next(lines).total > 0  # its bytes come, and then none
    status, answer = call(server, "/api/pull", {"model": "maker/tiny", "stream": False})
    assert status == 503 and "another model is being pulled" in answer["error"]
    lines.close()  # the client leaves
    deadline = time.monotonic() + 60
    while call(server, "/api/pull", {"model": "tiny:1b", "stream": False})[0] == 503 and time.monotonic() < deadline:
        time.sleep(0.05)
    assert "tiny:1b" in states(server)
    assert server.terminate() == 0


def test_pulls_need_a_folder(start_server):
    with pytest.raises(AssertionError, match="no address"):
        start_server("--allow-pull", names=(), model=SMOL)
