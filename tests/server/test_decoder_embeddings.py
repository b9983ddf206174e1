"""Vectors and scores by decoders, as clients see them: SmolLM2 with --embedding, and tiny ones against transformers."""

import array
import base64
import json
import math
import os
import subprocess

import httpx
import ollama
import openai
import pytest

from conftest import BINARY, MODEL, NAME, ROOT, RunningServer

POOLED = ROOT / "tests/data/pooled"
TEXTS = ["The cat sat on the mat.", "A cat is sitting on a rug.", "Rust and C++ are languages.", "x",
         "A long text. " * 30]


def serve(model, *flags):
    for path in (BINARY, model):
        if not os.path.exists(path):
            pytest.skip(f"{path} is missing: build and fetch first")
    running = RunningServer(*flags, model=model)
    yield running.wait_ready()
    running.kill()


@pytest.fixture(scope="module")
def smollm2():
    yield from serve(MODEL, "--embedding", "--max-num-batched-tokens", 96)


def cosine(a, b):
    return sum(x * y for x, y in zip(a, b, strict=True)) / math.hypot(*a) / math.hypot(*b)


def as_f32(decimals):
    return list(array.array("f", decimals))


def vectors_of(server, texts, **fields):
    answer = server.client().embeddings.create(model=NAME, input=texts, **fields)
    return [item.embedding for item in answer.data]


def test_a_model_that_generates_gives_vectors(smollm2):
    vectors = vectors_of(smollm2, TEXTS)
    assert all(len(vector) == 576 and math.isclose(math.hypot(*vector), 1, abs_tol=1e-5) for vector in vectors)
    assert cosine(vectors[0], vectors[1]) > cosine(vectors[0], vectors[2])
    floats = vectors_of(smollm2, TEXTS, encoding_format="float")
    assert [as_f32(vector) for vector in floats] == vectors
    packed = vectors_of(smollm2, TEXTS, encoding_format="base64")
    assert [list(array.array("f", base64.b64decode(vector))) for vector in packed] == vectors


def test_a_text_has_its_bits_alone_and_among_others(smollm2):
    together = vectors_of(smollm2, TEXTS * 2)
    assert together[:5] == together[5:]
    for text, vector in zip(TEXTS, together[:5], strict=True):
        assert vectors_of(smollm2, [text]) == [vector]


def test_dimensions_and_ids_and_other_clients(smollm2):
    (whole,) = vectors_of(smollm2, TEXTS[:1])
    (short,) = vectors_of(smollm2, TEXTS[:1], dimensions=64)
    assert len(short) == 64 and math.isclose(math.hypot(*short), 1, abs_tol=1e-5)
    assert cosine(short, whole[:64]) > 0.999999
    ids = httpx.post(smollm2.url + "/tokenize", json={"prompt": TEXTS[0]}).json()["tokens"]
    assert vectors_of(smollm2, [ids]) == [whole]
    assert as_f32(ollama.Client(smollm2.url).embed(NAME, TEXTS[0]).embeddings[0]) == whole
    scores = httpx.post(smollm2.url + "/v1/score", json={"text_1": TEXTS[0], "text_2": TEXTS[:3]}).json()["data"]
    assert math.isclose(scores[0]["score"], 1, abs_tol=1e-6)
    assert math.isclose(scores[1]["score"], cosine(*vectors_of(smollm2, TEXTS[:2])), abs_tol=1e-6)


def test_it_generates_nothing_then(smollm2):
    with pytest.raises(openai.BadRequestError, match="generates no text"):
        smollm2.client().completions.create(model=NAME, prompt="Once")
    answer = httpx.post(smollm2.url + "/classify", json={"input": "x"})
    assert answer.status_code == 400 and "no head for classes" in answer.text


def golden(name, kind):
    return json.loads((POOLED / name / kind).read_text(encoding="utf-8"))


def test_an_embedders_folder_needs_no_flag():
    rows = golden("qwen3_embedding", "vectors.json")
    for server in serve(POOLED / "qwen3_embedding"):
        answer = server.client().embeddings.create(model=NAME, input=[row["text"] for row in rows])
        assert answer.usage.prompt_tokens == sum(len(row["ids"]) for row in rows)  # an end behind each text
        for row, item in zip(rows, answer.data, strict=True):
            assert 1 - cosine(item.embedding, row["vector"]) < 1e-5, row["text"]
        cut = httpx.post(server.url + "/v1/embeddings", json={"input": rows[-1]["text"], "truncate_prompt_tokens": 5})
        ids = rows[-1]["ids"][:4] + rows[-1]["ids"][-1:]
        assert as_f32(cut.json()["data"][0]["embedding"]) == vectors_of(server, [ids])[0]


def scores_of(server, **body):
    answer = httpx.post(server.url + "/v1/score", json=body, timeout=30)
    assert answer.status_code == 200, answer.text
    return [item["score"] for item in answer.json()["data"]]


def sigmoid(logit):
    return 1 / (1 + math.exp(-logit))


OVERRIDES = json.dumps({"architectures": ["Qwen3ForSequenceClassification"], "classifier_from_token": ["no", "yes"],
                        "is_original_qwen3_reranker": True})


@pytest.mark.parametrize("name,flags,texts", [
    ("qwen3_reranker", [], ("first", "second")),
    ("qwen3_reranker", ["--chat-template", POOLED / "template.jinja"], ("query", "document")),
    ("qwen3_generating", ["--runner", "pooling", "--hf-overrides", OVERRIDES], ("first", "second")),
    ("qwen3_rank.gguf", ["--reranking"], ("query", "document")),
])
def test_scores_are_those_of_transformers(name, flags, texts):
    rows = [row for row in golden(name.replace("rank.gguf", "generating"), "logits.json") if texts[0] in row]
    for server in serve(POOLED / name, "--dtype", "float32", *flags):
        for row in rows:
            pair = dict(text_1=row[texts[0]], text_2=row[texts[1]])
            logit = row["logits"][-1] - (row["logits"][0] if len(row["logits"]) == 2 else 0)
            assert math.isclose(scores_of(server, use_activation=False, **pair)[0], logit, abs_tol=1e-5), row
            assert math.isclose(scores_of(server, **pair)[0], sigmoid(logit), abs_tol=1e-5)
        ranks = httpx.post(server.url + "/v1/rerank", json={"query": "yes", "documents": ["no", "the cat", ""]}).json()
        order = [result["relevance_score"] for result in ranks["results"]]
        assert order == sorted(order, reverse=True)
        assert order[0] == max(scores_of(server, text_1="yes", text_2=["no", "the cat", ""]))


def test_a_long_document_loses_its_end():
    for server in serve(POOLED / "qwen3_reranker"):
        whole = dict(text_1="yes ", text_2="the mat " * 80)
        answer = httpx.post(server.url + "/v1/score", json=whole)
        assert answer.status_code == 400 and "tokens that this model takes" in answer.text
        (cut,) = scores_of(server, **whole, truncate_prompt_tokens=24)
        ids = httpx.post(server.url + "/tokenize", json={"prompt": whole["text_1"] + whole["text_2"]}).json()["tokens"]
        pooled = httpx.post(server.url + "/pooling", json={"input": [ids[:24]]}).json()
        assert math.isclose(pooled["data"][0]["data"][0], cut, abs_tol=1e-6)


def refusal(*flags, model=MODEL):
    run = subprocess.run([BINARY, "serve", "-m", str(model), "--port", "0", *flags], capture_output=True, text=True,
                         timeout=60, check=False)
    assert run.returncode != 0
    return run.stderr


def test_flags_that_ask_for_what_there_is_not():
    assert "--pooling none is not supported" in refusal("--embedding", "--pooling", "none")
    assert "classifier_from_token" in refusal("--reranking", model=POOLED / "qwen2_base")
    assert "hidden_size is not supported" in refusal("--hf-overrides", '{"hidden_size": 8}')
    assert "--device cpu" in refusal("--embedding", "--device", "cuda")
