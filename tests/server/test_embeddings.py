"""Embeddings as OpenAI's and Ollama's clients see them: all-MiniLM-L6-v2 against sentence-transformers, a tiny encoder for the rest."""

import array
import asyncio
import base64
import json
import math
import os
import pathlib

import httpx
import ollama
import openai
import pytest

from conftest import BINARY, NAME, ROOT, RunningServer

TINY = ROOT / "tests/data/encoders/bert"
GOLDEN = ROOT / "tests/data/golden/minilm_vectors.jsonl"


@pytest.fixture
def tiny():
    if not os.path.exists(BINARY):
        pytest.skip(f"{BINARY} is missing: build first")
    running = RunningServer(model=TINY)
    yield running.wait_ready()
    running.kill()


def golden_rows():
    rows = [json.loads(line) for line in pathlib.Path(GOLDEN).read_text(encoding="utf-8").splitlines()]
    for row in rows:
        row["vector"] = array.array("f", base64.b64decode(row["vector"]))
    return rows


def cosine(a, b):
    return sum(x * y for x, y in zip(a, b, strict=True)) / math.hypot(*a) / math.hypot(*b)


def test_vectors_are_those_of_sentence_transformers(minilm):
    rows = golden_rows()
    for encoding in ("float", "base64", None):  # None: the client asks for base64 and decodes it
        format = {"encoding_format": encoding} if encoding else {}
        answer = minilm.client().embeddings.create(model=NAME, input=[row["text"] for row in rows], **format)
        assert [item.index for item in answer.data] == list(range(len(rows)))
        assert answer.usage.prompt_tokens == sum(row["tokens"] for row in rows)
        for row, item in zip(rows, answer.data, strict=True):
            vector = item.embedding
            if encoding == "base64":
                vector = array.array("f", base64.b64decode(vector))
            assert cosine(vector, row["vector"]) > 0.9999, row["text"]
            assert math.isclose(math.hypot(*vector), 1, abs_tol=1e-5)


def test_ids_and_texts_are_the_same(minilm):
    text = golden_rows()[2]["text"]
    ids = httpx.post(minilm.url + "/tokenize", json={"prompt": text}).json()["tokens"]
    client = minilm.client()
    by_text = client.embeddings.create(model=NAME, input=text).data[0].embedding
    by_ids = client.embeddings.create(model=NAME, input=ids).data[0].embedding
    assert by_text == by_ids


def test_dimensions_and_truncation(minilm):
    client = minilm.client()
    whole = client.embeddings.create(model=NAME, input="short").data[0].embedding
    short = client.embeddings.create(model=NAME, input="short", dimensions=64).data[0].embedding
    assert len(short) == 64 and math.isclose(math.hypot(*short), 1, abs_tol=1e-5)
    assert cosine(short, whole[:64]) > 0.999999
    with pytest.raises(openai.BadRequestError, match="256") as refused:
        client.embeddings.create(model=NAME, input="word " * 300)
    assert refused.value.body["param"] == "input"
    answer = client.embeddings.create(model=NAME, input="word " * 300, extra_body={"truncate_prompt_tokens": -1})
    assert answer.usage.prompt_tokens == 256
    assert cosine(answer.data[0].embedding, golden_rows()[7]["vector"]) > 0.9999


def test_ollamas_client(minilm):
    client = ollama.Client(minilm.url)
    row = golden_rows()[1]
    answer = client.embed(model=NAME, input=[row["text"], "x"])
    assert len(answer.embeddings) == 2 and cosine(answer.embeddings[0], row["vector"]) > 0.9999
    old = client.embeddings(model=NAME, prompt=row["text"])
    assert cosine(old.embedding, row["vector"]) > 0.9999
    assert client.list().models[0].model == NAME


def test_many_clients_share_passes(tiny):
    """Texts of many requests are computed together, and each gets its own vectors, bit for bit."""
    rows = json.loads((TINY / "vectors.json").read_text())
    alone = [tiny.client().embeddings.create(model=NAME, input=row["ids"]).data[0].embedding for row in rows]
    before = tiny.metric("headrace:steps_total")

    async def ask_all():
        client = tiny.async_client()
        return await asyncio.gather(*(client.embeddings.create(model=NAME, input=[rows[i % len(rows)]["ids"]] * 50)
                                      for i in range(40)))

    for i, answer in enumerate(asyncio.run(ask_all())):
        assert all(item.embedding == alone[i % len(rows)] for item in answer.data)
    assert tiny.metric("headrace:steps_total") - before < 40 * 50 / 4
    assert tiny.metric("vllm:request_success_total") == 40 + len(rows)


def test_what_an_encoder_does_not_do(tiny):
    client = tiny.client()
    with pytest.raises(openai.BadRequestError, match="generates no text"):
        client.chat.completions.create(model=NAME, messages=[{"role": "user", "content": "hi"}])
    with pytest.raises(openai.BadRequestError, match="no tokenizer"):
        client.embeddings.create(model=NAME, input="text")
    with pytest.raises(openai.NotFoundError):
        client.embeddings.create(model="other", input=[5])
    assert tiny.terminate() == 0


def test_a_decoder_has_no_embeddings(client):
    with pytest.raises(openai.BadRequestError, match="--embedding"):
        client.embeddings.create(model=NAME, input="text")


def test_a_gguf_encoder_is_the_folder_it_was_made_of():
    if not os.path.exists(BINARY):
        pytest.skip(f"{BINARY} is missing: build first")
    cases = json.loads((TINY / "vectors.json").read_text())
    running = RunningServer("--dtype", "float32", model=TINY.with_suffix(".gguf"))
    try:
        client = running.wait_ready().client()
        for case in cases:
            vector = client.embeddings.create(model=NAME, input=case["ids"], encoding_format="float").data[0].embedding
            norm = math.hypot(*case["first"])
            assert vector == pytest.approx([value / norm for value in case["first"]], abs=2e-6)
        answer = client.embeddings.create(model=NAME, input="The cats sat")
        assert answer.usage.prompt_tokens == 6 and len(answer.data[0].embedding) == 16
        ids = httpx.post(running.url + "/tokenize", json={"prompt": "The cats sat"}).json()["tokens"]
        assert ids == [2, 9, 5, 11, 7, 3]
    finally:
        running.kill()
