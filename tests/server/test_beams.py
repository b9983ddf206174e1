"""Beam search over HTTP. What it finds is compared with transformers in tests/models/beam_engine_test.cc."""
import httpx
import pytest

from conftest import RunningServer

PROMPT = "The capital of France is"


@pytest.fixture
def http(server):
    with httpx.Client(base_url=server.url, timeout=120) as client:
        yield client


def search(http, path="/v1/completions", **fields):
    prompt = {"messages": [{"role": "user", "content": PROMPT}]} if "chat" in path else {"prompt": PROMPT}
    response = http.post(path, json={**prompt, "use_beam_search": True, "max_tokens": 12, **fields})
    assert response.status_code == 200, response.text
    return response.json()


@pytest.mark.parametrize("path", ["/v1/completions", "/v1/chat/completions"])
def test_the_best_answers_come_in_order(http, path):
    answer = search(http, path, n=3, beam_width=4, return_token_ids=True)
    choices = answer["choices"]
    assert [choice["index"] for choice in choices] == [0, 1, 2]
    scores = [choice["sequence_score"] for choice in choices]
    assert scores == sorted(scores, reverse=True)
    for choice in choices:
        assert choice["cumulative_logprob"] == pytest.approx(choice["sequence_score"] * len(choice["token_ids"]))
    assert len({tuple(choice["token_ids"]) for choice in choices}) == 3
    assert answer["usage"]["completion_tokens"] == sum(len(choice["token_ids"]) for choice in choices)
    again = search(http, path, n=3, best_of=4, return_token_ids=True, temperature=2, seed=5)
    assert [choice["token_ids"] for choice in again["choices"]] == [choice["token_ids"] for choice in choices]


def test_the_sum_is_that_of_its_tokens(http):
    choice = search(http, n=1, beam_width=3, logprobs=2, max_tokens=6, ignore_eos=True)["choices"][0]
    logprobs = choice["logprobs"]
    assert choice["cumulative_logprob"] == pytest.approx(sum(logprobs["token_logprobs"]), abs=1e-4)
    assert all(2 <= len(top) <= 3 for top in logprobs["top_logprobs"])
    greedy = http.post("/v1/completions", json={"prompt": PROMPT, "temperature": 0, "logprobs": 0, "max_tokens": 6,
                                                "ignore_eos": True}).json()["choices"][0]
    assert choice["cumulative_logprob"] >= sum(greedy["logprobs"]["token_logprobs"]) - 1e-4


def test_a_stop_string_finishes_an_answer(http):
    choices = search(http, n=3, max_tokens=40, stop=["."])["choices"]
    stopped = [choice for choice in choices if choice["finish_reason"] == "stop"]
    assert stopped
    for choice in stopped:
        assert "." not in choice["text"]
        assert choice["stop_reason"] in (".", None)  # None: an end id


@pytest.mark.parametrize("field, value, words", [
    ("stream", True, "stream does not go with use_beam_search"),
    ("response_format", {"type": "json_object"}, "response_format does not go with use_beam_search"),
    ("repetition_penalty", 1.2, "use_beam_search does not go with repetition_penalty"),
    ("beam_width", 1000, "beam_width must be an integer in [1, 64], got 1000"),
    ("early_stopping", "maybe", "early_stopping must be true, false or"),
])
def test_what_does_not_go_with_it_is_named(http, field, value, words):
    response = http.post("/v1/completions", json={"prompt": PROMPT, "use_beam_search": True, field: value})
    assert response.status_code == 400
    assert words in response.json()["error"]["message"]


def test_texts_that_end_answers_leave_as_many_beams(http):
    """What three words forbid by their tokens and by their text is the same here: none has another beginning."""
    fields = {"prompt": "Once upon a time there was a", "n": 2, "beam_width": 2, "max_tokens": 8, "length_penalty": 3,
              "early_stopping": "never", "ignore_eos": True}  # fmt: skip
    words = [" small", " town", " woman"]
    tokens = [token for word in words for token in http.post("/tokenize", json={"content": word}).json()["tokens"]]
    assert len(tokens) == 3
    by_text, by_token = search(http, stop=words, **fields), search(http, stop_token_ids=tokens, **fields)
    assert [each["text"] for each in by_text["choices"]] == [each["text"] for each in by_token["choices"]]


def test_a_field_that_is_null_is_not_there(http):
    search(http, n=1, beam_width=2, repetition_penalty=None, repeat_penalty=None)


def test_a_search_that_names_no_length_fits_the_pool():
    running = RunningServer("--max-model-len", 1024, "--kv-cache-memory-bytes", "30M").wait_ready()
    try:
        for beams in ({"n": 2}, {"n": 1, "beam_width": 4}, {"n": 3, "use_beam_search": False}):
            body = {"prompt": PROMPT, "use_beam_search": True, "stop": [" "], "ignore_eos": False} | beams
            response = httpx.post(running.url + "/v1/completions", json=body, timeout=120)
            assert response.status_code == 200, response.text
    finally:
        running.kill()
