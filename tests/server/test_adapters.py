"""LoRA adapters over the wire: chosen by the model's name, loaded and unloaded under traffic."""

import json
import subprocess
import threading
import urllib.request

import openai
import pytest

from conftest import BINARY, MODEL, NAME
from random_adapter import write_adapter


@pytest.fixture(scope="module")
def adapters(tmp_path_factory):
    folder = tmp_path_factory.mktemp("adapters")
    return [write_adapter(folder / name, seed) for seed, name in enumerate(("sql", "poems"))]


def say(client, model, prompt="The capital of France is", **options):
    options = {"max_tokens": 12, "temperature": 0, **options}
    return client.completions.create(model=model, prompt=prompt, **options).choices[0].text


def test_the_models_name_chooses_the_adapter(start_server, adapters):
    server = start_server("--lora-modules", f"sql={adapters[0]}", json.dumps({"name": "poems", "path": str(adapters[1])}),
                          "--max-lora-rank", 8)
    server.wait_ready()
    client = server.client()
    cards = {card.id: card.model_dump() for card in client.models.list()}
    assert set(cards) == {NAME, "sql", "poems"}
    assert cards["sql"]["parent"] == NAME and cards["sql"]["root"] == "sql" and cards[NAME]["parent"] is None
    assert client.models.retrieve("poems").model_dump()["parent"] == NAME

    alone = {name: say(client, name) for name in cards}
    assert len(set(alone.values())) == 3
    assert client.completions.create(model="sql", prompt="x", max_tokens=1).model == "sql"
    assert client.chat.completions.create(model="poems", max_tokens=4, messages=[{"role": "user", "content": "Hi"}]).model == "poems"
    with pytest.raises(openai.NotFoundError):
        say(client, "sqll")

    # What gateways route by: the adapters of requests that run.
    stream = client.completions.create(model="poems", prompt="x", max_tokens=400, stream=True, extra_body={"ignore_eos": True})
    next(stream)
    shown = [line for line in urllib.request.urlopen(server.url + "/metrics", timeout=10).read().decode().splitlines() if line.startswith("vllm:lora_requests_info{")]
    stream.close()
    assert len(shown) == 1 and 'running_lora_adapters="poems"' in shown[0] and 'waiting_lora_adapters=""' in shown[0]

    # All at once, also streamed and of several choices: each what it is alone.
    together, threads = {}, []
    for i in range(12):
        name = list(cards)[i % 3]
        threads.append(threading.Thread(target=lambda i=i, name=name: together.__setitem__((i, name), say(client, name, n=1 + i % 2))))
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert all(text == alone[name] for (_, name), text in together.items()) and len(together) == 12

    # The cache of one is no other's.
    prompt = "One two three four five six seven eight nine ten " * 8

    def cached(name):
        usage = client.completions.create(model=name, prompt=prompt, max_tokens=1).usage
        return usage.prompt_tokens_details.cached_tokens if usage.prompt_tokens_details else 0

    for name in cards:
        assert cached(name) == 0, name
        assert cached(name) > 0, name


def test_adapters_come_and_go_under_traffic(start_server, adapters, tmp_path):
    server = start_server("--enable-lora", "--max-loras", 2, "--max-lora-rank", 8)
    server.wait_ready()
    client = server.client(max_retries=0)
    import httpx
    http = httpx.Client(base_url=server.url, timeout=60)

    def load(name, path, **more):
        return http.post("/v1/load_lora_adapter", json={"lora_name": name, "lora_path": str(path), **more})

    def unload(name):
        return http.post("/v1/unload_lora_adapter", json={"lora_name": name})

    plain = say(client, NAME)
    with pytest.raises(openai.NotFoundError):
        say(client, "sql")
    answer = load("sql", adapters[0])
    assert answer.status_code == 200 and "added" in answer.text
    own = say(client, "sql")
    assert own != plain == say(client, NAME)

    # An answer that streams while its adapter is unloaded ends with it.
    stream = client.completions.create(model="sql", prompt="The capital of France is", max_tokens=200, temperature=0, stream=True,
                                       extra_body={"ignore_eos": True})
    text = next(iter(stream)).choices[0].text
    assert unload("sql").status_code == 200
    with pytest.raises(openai.NotFoundError):
        say(client, "sql")
    text += "".join(chunk.choices[0].text for chunk in stream if chunk.choices)
    assert text.startswith(own)
    assert [card.id for card in client.models.list()] == [NAME]
    server.wait_idle()

    # The same again, and another in its place.
    assert load("sql", adapters[0]).status_code == 200
    assert say(client, "sql") == own
    assert load("sql", adapters[1]).status_code == 400
    assert load("sql", adapters[1], load_inplace=True).status_code == 200
    assert say(client, "sql") not in (own, plain)

    errors = {
        "is the model's own name": load(NAME, adapters[0]),
        "there is no such adapter": load("a", tmp_path / "nowhere"),
        "lora_path must be a text": http.post("/v1/load_lora_adapter", json={"lora_name": "a"}),
        "lora_name must be a text": http.post("/v1/unload_lora_adapter", json={}),
        "no adapter is called a": unload("a"),
        "is over --max-lora-rank 8": load("a", write_adapter(tmp_path / "rank", 1, rank=9)),
        "the adapter is of another base model": load("a", write_adapter(tmp_path / "base", 1, hidden=512)),
        "DoRA is not supported": load("a", write_adapter(tmp_path / "dora", 1, config={"use_dora": True})),
    }
    for message, answer in errors.items():
        assert answer.status_code in (400, 404) and message in answer.json()["error"]["message"], answer.text
    # SGLang's names.
    answer = http.post("/load_lora_adapter", json={"lora_name": "b", "lora_path": str(adapters[0])}).json()
    assert answer["success"] and set(answer["loaded_adapters"]) == {"sql", "b"}
    assert "--max-cpu-loras" in load("c", adapters[0]).json()["error"]["message"]
    assert http.post("/unload_lora_adapter", json={"lora_name": "b"}).json()["success"]
    # Loads and unloads beside requests of all.
    stop = threading.Event()

    def churn():
        while not stop.is_set():
            load("churned", adapters[0])
            unload("churned")

    thread = threading.Thread(target=churn)
    thread.start()
    in_place = say(client, "sql")
    for _ in range(5):
        assert say(client, NAME) == plain and say(client, "sql") == in_place
        try:
            assert say(client, "churned") == own
        except openai.NotFoundError:
            pass
    stop.set()
    thread.join()


def test_a_flag_that_could_do_nothing_is_refused(adapters):
    arguments = ["--enable-lora", "--enable-sleep-mode", "--lora-modules", f"sql={adapters[0]}"]
    refused = subprocess.run([BINARY, "serve", "-m", MODEL, "--port", "0", *arguments], capture_output=True, text=True, timeout=60)
    assert refused.returncode == 1 and "--enable-lora is for one model that stays" in refused.stderr


def test_one_adapter_of_all_requests(start_server, adapters):
    server = start_server("--lora-scaled", f"{adapters[0]}:0.5")
    server.wait_ready()
    import httpx
    assert httpx.get(server.url + "/lora-adapters").json() == [{"id": 0, "path": "sql", "scale": 0.5}]
    scaled = say(server.client(), NAME)
    assert [card.id for card in server.client().models.list()] == [NAME]
    assert "--enable-lora" in httpx.post(server.url + "/v1/load_lora_adapter", json={"lora_name": "a", "lora_path": "b"}).text
    plain = start_server("--lora-modules", f"sql={adapters[0]}")
    plain.wait_ready()
    assert len({scaled, say(plain.client(), NAME), say(plain.client(), "sql")}) == 3
