"""/generate of SGLang and of text-generation-inference, and what vLLM and SGLang tell of their engines; over httpx."""

import json

import httpx
import pytest

from conftest import NAME

COUNTING = "1, 2, 3, 4, 5, 6, 7, 8,"


@pytest.fixture
def http(server):
    with httpx.Client(base_url=server.url, timeout=120) as client:
        yield client


def post(http, path, body):
    answer = http.post(path, json=body)
    assert answer.status_code == 200, answer.text
    return answer.json()


def events(http, path, body):
    with http.stream("POST", path, json=body) as stream:
        assert stream.headers["content-type"].startswith("text/event-stream")
        return [line.removeprefix("data:").strip() for line in stream.iter_lines() if line]


# --- SGLang --------------------------------------------------------------------------------------


def ask_sglang(http, **fields):
    params = {"temperature": 0, "max_new_tokens": 8, **fields.pop("sampling_params", {})}
    return post(http, "/generate", {"text": COUNTING, "sampling_params": params, **fields})


def test_sglang_answers(http, server):
    answer = ask_sglang(http, rid="mine", priority=3)
    theirs = server.client().completions.create(model=NAME, prompt=COUNTING, temperature=0, max_tokens=8)
    meta = answer["meta_info"]
    assert answer["text"] == theirs.choices[0].text and len(answer["output_ids"]) == 8
    assert meta["id"] == "mine" and meta["finish_reason"] == {"type": "length", "length": 8}
    assert meta["prompt_tokens"] == theirs.usage.prompt_tokens and meta["completion_tokens"] == 8
    assert meta["cached_tokens"] >= 0 and meta["e2e_latency"] > 0
    ids = http.post("/tokenize", json={"prompt": COUNTING}).json()["tokens"]
    assert post(http, "/generate", {"input_ids": ids, "sampling_params": {"temperature": 0, "max_new_tokens": 8}})["text"] == answer["text"]


def test_sglang_streams_repeat_what_was_said(http):
    whole = ask_sglang(http)
    body = {"text": COUNTING, "sampling_params": {"temperature": 0, "max_new_tokens": 8}, "stream": True}
    *lines, end = events(http, "/generate", body)
    parts = [json.loads(line) for line in lines]
    assert end == "[DONE]" and parts[-1]["text"] == whole["text"] and parts[-1]["output_ids"] == whole["output_ids"]
    for before, after in zip(parts, parts[1:]):
        assert after["text"].startswith(before["text"]) and before["meta_info"]["finish_reason"] is None
    assert parts[-1]["meta_info"]["finish_reason"]["type"] == "length"
    assert [part["meta_info"]["completion_tokens"] for part in parts] == list(range(1, len(parts))) + [8]


def test_sglang_lists(http):
    several = ask_sglang(http, text=[COUNTING, "a b c d"])
    assert [len(answer["output_ids"]) for answer in several] == [8, 8]
    assert several[0]["text"] == ask_sglang(http)["text"]
    assert several[0]["meta_info"]["prompt_tokens"] != several[1]["meta_info"]["prompt_tokens"]
    assert len(ask_sglang(http, sampling_params={"n": 3})) == 3
    body = {"text": [COUNTING, "a b c d"], "sampling_params": {"temperature": 0, "max_new_tokens": 8}, "stream": True}
    last = {}
    for line in events(http, "/generate", body)[:-1]:
        last[json.loads(line)["index"]] = json.loads(line)["text"]
    assert [last[0], last[1]] == [answer["text"] for answer in several]


def test_sglang_log_probabilities_and_stops(http):
    answer = ask_sglang(http, return_logprob=True, top_logprobs_num=2)
    chosen, best = answer["meta_info"]["output_token_logprobs"], answer["meta_info"]["output_top_logprobs"]
    assert [entry[1] for entry in chosen] == answer["output_ids"]
    assert [top[0][:2] for top in best] == [entry[:2] for entry in chosen] and len(best[0]) == 2
    body = {"text": COUNTING, "sampling_params": {"temperature": 0, "max_new_tokens": 8}, "stream": True, "return_logprob": True}
    *parts, last = map(json.loads, events(http, "/generate", body)[:-1])
    assert last["meta_info"]["output_token_logprobs"] == chosen
    assert not any("output_token_logprobs" in part["meta_info"] for part in parts)
    stopped = ask_sglang(http, sampling_params={"max_new_tokens": 40, "stop": [" 11"]})
    assert stopped["meta_info"]["finish_reason"] == {"type": "stop", "matched": " 11"}
    assert len(post(http, "/generate", {"text": COUNTING, "sampling_params": {"ignore_eos": True}})["output_ids"]) == 128


@pytest.mark.parametrize(
    "field, values",
    [
        ("text", [1, [], [1], {}, None]),
        ("input_ids", [1, "x", [-1], [10**9], [[1], ["a"]], {}]),
        ("stream", [1, "true"]),
        ("rid", [1, ["a"]]),
        ("priority", ["1", 1.5]),
        ("return_logprob", [1, [True]]),
        ("logprob_start_len", [0, 5]),
        ("sampling_params", [1, [], "x"]),
        ("lora_path", ["x"]),
        ("image_data", ["x"]),
        ("input_embeds", [[[0.5]]]),
        ("bootstrap_room", [1]),
        ("sampling_params.max_new_tokens", [-1, 1.5, "1"]),
        ("sampling_params.temperature", [-1, 101, "1"]),
        ("sampling_params.top_p", [0, 2]),
        ("sampling_params.top_k", [-2, 1.5]),
        ("sampling_params.n", [0, 129, "1"]),
        ("sampling_params.stop", [1, [""]]),
        ("sampling_params.stop_token_ids", [1, [-1]]),
        ("sampling_params.repetition_penalty", [0, 101]),
        ("sampling_params.stop_regex", ["a"]),
        ("sampling_params.no_stop_trim", [True]),
    ],
)
def test_hostile_values_of_sglang(http, field, values):
    check_refused(http, "/generate", {"text": "a", "sampling_params": {"max_new_tokens": 1}}, field, values)


def check_refused(http, path, body, field, values):
    for value in values:
        outer, _, inner = field.partition(".")
        sent = {**body, outer: {**body[outer], inner: value} if inner else value}
        if field == "input_ids":
            sent.pop("text")
        answer = http.post(path, content=json.dumps(sent), headers={"Content-Type": "application/json"})
        assert answer.status_code == 400, (field, value, answer.text)
        error = answer.json()["error"]
        message = error if isinstance(error, str) else error["message"]
        assert field in message, (field, value, answer.text)


# --- text-generation-inference -------------------------------------------------------------------


def ask_tgi(http, **parameters):
    return post(http, "/generate", {"inputs": COUNTING, "parameters": {"max_new_tokens": 8, **parameters}})


def test_tgi_answers(http, server):
    theirs = server.client().completions.create(model=NAME, prompt=COUNTING, temperature=0, max_tokens=8)
    assert ask_tgi(http) == {"generated_text": theirs.choices[0].text}  # greedy unless asked for more
    assert ask_tgi(http, return_full_text=True)["generated_text"] == COUNTING + theirs.choices[0].text
    answer = ask_tgi(http, details=True, top_n_tokens=2, seed=5)
    details = answer["details"]
    assert details["finish_reason"] == "length" and details["generated_tokens"] == 8 and details["seed"] == 5
    assert "".join(token["text"] for token in details["tokens"]) == answer["generated_text"]
    assert details["tokens"][0]["logprob"] <= 0 and not details["tokens"][0]["special"]
    assert details["top_tokens"][0][0]["id"] == details["tokens"][0]["id"] and len(details["top_tokens"][0]) == 2
    texts = {ask_tgi(http, do_sample=True, temperature=1.5, seed=seed, max_new_tokens=24)["generated_text"] for seed in range(4)}
    assert len(texts) > 1
    assert ask_tgi(http, stop=[" 10"], details=True, max_new_tokens=40)["details"]["finish_reason"] == "stop_sequence"
    assert post(http, "/", {"inputs": COUNTING, "parameters": {"max_new_tokens": 8}}) == [ask_tgi(http)]


@pytest.mark.parametrize("path, flag", [("/generate_stream", {}), ("/", {"stream": True})])
def test_tgi_streams(http, path, flag):
    parts = [json.loads(line) for line in events(http, path, {"inputs": COUNTING, "parameters": {"max_new_tokens": 8}, **flag})]
    assert [part["index"] for part in parts] == list(range(1, 9))
    text = "".join(part["token"]["text"] for part in parts)
    assert parts[-1]["generated_text"] == text == ask_tgi(http)["generated_text"]
    assert parts[-1]["details"]["generated_tokens"] == 8
    assert all(part["generated_text"] is None and part["details"] is None for part in parts[:-1])


@pytest.mark.parametrize(
    "field, values",
    [
        ("inputs", [1, [], {}, ""]),
        ("parameters", [1, [], "x"]),
        ("parameters.max_new_tokens", [0, -1, 1.5, "1"]),
        ("parameters.do_sample", [1, "true"]),
        ("parameters.details", [1]),
        ("parameters.return_full_text", [1]),
        ("parameters.top_n_tokens", [-1, 21, "1"]),
        ("parameters.temperature", [-1, 101]),
        ("parameters.top_p", [0, 2]),
        ("parameters.top_k", ["1"]),
        ("parameters.repetition_penalty", [0, "1"]),
        ("parameters.frequency_penalty", [-3, "1"]),
        ("parameters.seed", [1.5, "1"]),
        ("parameters.stop", [1, [""]]),
        ("parameters.best_of", [2]),
        ("parameters.typical_p", [0, 2]),
        ("parameters.truncate", [10]),
        ("parameters.watermark", [True]),
        ("parameters.decoder_input_details", [True]),
        ("parameters.adapter_id", ["x"]),
    ],
)
def test_hostile_values_of_tgi(http, field, values):
    for path in ("/generate", "/generate_stream", "/"):
        check_refused(http, path, {"inputs": "a", "parameters": {"max_new_tokens": 1}}, field, values)


def test_errors_of_tgi_have_its_form(http):
    for path in ("/generate_stream", "/generate", "/"):
        error = http.post(path, json={"inputs": 1}).json()
        assert error.keys() == {"error", "error_type"} and error["error_type"] == "validation"
    assert set(http.post("/generate", json={"text": 1}).json()) == {"error"}


# --- What the engine is --------------------------------------------------------------------------


def test_what_is_told_of_the_engine(http):
    assert http.get("/health_generate").status_code == 200
    for path in ("/model_info", "/get_model_info"):
        assert http.get(path).json()["model_path"] == NAME and http.get(path).json()["is_generation"]
    for path in ("/server_info", "/get_server_info"):
        info = http.get(path).json()
        assert info["context_length"] == 2048 and info["max_running_requests"] == 64
        assert info["internal_states"][0]["num_running_reqs"] >= 0
    tokenizer = http.get("/tokenizer_info").json()
    assert tokenizer["eos_token"] == "<|im_end|>" and "im_start" in tokenizer["chat_template"]
    assert http.get("/is_sleeping").json() == {"is_sleeping": False}
    for method, path in [("POST", "/sleep"), ("POST", "/wake_up"), ("POST", "/v1/score"), ("POST", "/rerank"), ("POST", "/pooling"), ("POST", "/classify")]:
        answer = http.request(method, path, json={})
        assert answer.status_code == 400 and path in answer.json()["error"]["message"]


def test_a_flushed_cache_is_empty(http):
    body = {"text": "The quick brown fox jumps over the lazy dog. " * 8, "sampling_params": {"max_new_tokens": 2}}
    cached = lambda: http.post("/generate", json=body).json()["meta_info"]["cached_tokens"]
    cached()
    assert cached() > 0
    assert http.get("/flush_cache").status_code == 405, "a page's <img> must not flush anything"
    for path in ("/flush_cache", "/reset_prefix_cache"):
        assert http.post(path).status_code == 200
        assert cached() == 0 and cached() > 0
