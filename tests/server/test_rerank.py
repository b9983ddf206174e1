"""Cross-encoders and classifiers as clients of vLLM, Jina and Cohere see them: tiny ones against transformers' logits."""

import json
import math
import os

import httpx
import pytest

from conftest import BINARY, NAME, ROOT, RunningServer

ENCODERS = ROOT / "tests/data/encoders"


def serve(name):
    if not os.path.exists(BINARY):
        pytest.skip(f"{BINARY} is missing: build first")
    running = RunningServer(model=ENCODERS / name)
    yield running.wait_ready()
    running.kill()


@pytest.fixture(scope="module", params=["bert_reranker", "xlmr_reranker", "mpnet_reranker", "modernbert_reranker"])
def reranker(request):
    for server in serve(request.param):
        yield server, request.param


@pytest.fixture(scope="module", params=["bert_classifier", "roberta_classifier", "modernbert_classifier"])
def classifier(request):
    for server in serve(request.param):
        yield server, request.param


def golden(name):
    rows = json.loads((ENCODERS / name / "logits.json").read_text(encoding="utf-8"))
    return [row for row in rows if "first" in row], [row for row in rows if "text" in row]


def sigmoid(logit):
    return 1 / (1 + math.exp(-logit))


def post(server, path, **body):
    answer = httpx.post(server.url + path, json=body, timeout=30)
    assert answer.status_code == 200, answer.text
    return answer.json()


def test_scores_are_the_logits_of_transformers(reranker):
    server, name = reranker
    pairs, _ = golden(name)
    for row in pairs:
        body = dict(text_1=row["first"], text_2=row["second"], truncate_prompt_tokens=row["most"])
        answer = post(server, "/v1/score", use_activation=False, **body)
        assert math.isclose(answer["data"][0]["score"], row["logits"][0], abs_tol=1e-5), row
        assert answer["usage"]["prompt_tokens"] == len(row["ids"])
        score = post(server, "/v1/score", **body)["data"][0]["score"]
        told = row["logits"][0] if name == "bert_reranker" else sigmoid(row["logits"][0])  # as its config.json says
        assert math.isclose(score, told, abs_tol=1e-5)


def test_every_route_ranks_the_same(reranker):
    server, name = reranker
    query, documents = "what is a cat ?", ["the dogs sat on the mat .", "cat", "a cat is a cat .", ""]
    scores = post(server, "/score", queries=query, documents=documents)["data"]
    best = sorted(range(len(documents)), key=lambda i: -scores[i]["score"])
    for path in ("/rerank", "/v1/rerank", "/v2/rerank", "/reranking", "/v1/reranking"):
        answer = post(server, path, model=NAME, query=query, documents=documents)
        assert [result["index"] for result in answer["results"]] == best
        assert [result["document"]["text"] for result in answer["results"]] == [documents[i] for i in best]
        assert all(result["relevance_score"] == scores[result["index"]]["score"] for result in answer["results"])
    tei = post(server, "/rerank", query=query, texts=documents)
    assert [result["index"] for result in tei] == best and "text" not in tei[0]
    assert tei[0]["score"] == scores[best[0]]["score"]


def test_many_pairs_share_passes_and_keep_their_bits(reranker):
    server, name = reranker
    pairs = [row for row in golden(name)[0] if row["most"] == 46]
    alone = [post(server, "/score", text_1=row["first"], text_2=row["second"], truncate_prompt_tokens=-1) for row in pairs]
    before = server.metric("headrace:steps_total")
    together = post(server, "/score", text_1=[row["first"] for row in pairs] * 100,
                    text_2=[row["second"] for row in pairs] * 100, truncate_prompt_tokens=-1)["data"]
    for i, item in enumerate(together):
        assert item["score"] == alone[i % len(pairs)]["data"][0]["score"]
    assert server.metric("headrace:steps_total") - before < len(together) / 5


def test_long_pairs_and_other_routes_are_refused_by_name(reranker):
    server, name = reranker
    long = httpx.post(server.url + "/rerank", json={"query": "cat", "documents": ["a", "dog " * 60]})
    assert long.status_code == 400 and long.json()["error"]["param"] == "documents"
    assert "pair 1" in long.json()["error"]["message"] and "documents" in long.json()["error"]["message"]
    short = post(server, "/rerank", query="cat", documents=["a", "dog " * 60], max_tokens_per_doc=3)
    assert len(short["results"]) == 2
    embeddings = httpx.post(server.url + "/v1/embeddings", json={"input": "cat"})
    assert embeddings.status_code == 400 and "classifier" in embeddings.json()["error"]["message"]


def test_classes_are_those_of_transformers(classifier):
    server, name = classifier
    _, texts = golden(name)
    answer = post(server, "/classify", input=[row["text"] for row in texts])["data"]
    raw = post(server, "/classify", input=[row["text"] for row in texts], use_activation=False)["data"]
    pooled = post(server, "/pooling", input=[row["ids"] for row in texts])["data"]
    named = name == "bert_classifier"
    labels = ["bad", "so so", "good"] if named else [f"LABEL_{i}" for i in range(len(texts[0]["logits"]))]
    for row, item, logits, vector in zip(texts, answer, raw, pooled, strict=True):
        assert all(math.isclose(a, b, abs_tol=1e-5) for a, b in zip(logits["probs"], row["logits"], strict=True))
        if name != "roberta_classifier":
            total = sum(math.exp(logit) for logit in row["logits"])
            expected = [math.exp(logit) / total for logit in row["logits"]]
        else:  # multi_label_classification
            expected = [sigmoid(logit) for logit in row["logits"]]
        assert all(math.isclose(a, b, abs_tol=1e-5) for a, b in zip(item["probs"], expected, strict=True))
        assert item["label"] == labels[expected.index(max(expected))] and item["num_classes"] == len(labels)
        assert vector["data"] == pytest.approx(item["probs"], abs=1e-6)
    refused = httpx.post(server.url + "/rerank", json={"query": "cat", "documents": ["a"]})
    assert refused.status_code == 400 and "classes" in refused.json()["error"]["message"]
