"""llama.cpp's own API over httpx: /completion, /infill, and what a server tells of itself."""

import json
import os
import threading
import time

import httpx
import pytest
from ollama import Client, ResponseError

from conftest import NAME, RunningServer

COUNTING = "1, 2, 3, 4, 5, 6, 7, 8,"
CODER = os.environ.get(
    "HEADRACE_MODEL_QWEN", os.path.expanduser("~/.cache/headrace/models/qwen2.5-coder-0.5b-instruct-q4_k_m.gguf")
)
GREEDY = {"temperature": 0}


@pytest.fixture
def http(server):
    with httpx.Client(base_url=server.url, timeout=120) as client:
        yield client


def complete(http, **fields):
    answer = http.post("/completion", json={"prompt": COUNTING, "n_predict": 8, **GREEDY, **fields})
    assert answer.status_code == 200, answer.text
    return answer.json()


def events(http, path="/completion", **fields):
    body = {"prompt": COUNTING, "n_predict": 8, **GREEDY, "stream": True, **fields}
    with http.stream("POST", path, json=body) as stream:
        assert stream.headers["content-type"].startswith("text/event-stream")
        return [json.loads(line.removeprefix("data: ")) for line in stream.iter_lines() if line]


def test_completion(http):
    answer = complete(http, id_slot=3, cache_prompt=True, n_keep=4, return_tokens=True)
    assert "9" in answer["content"] and answer["stop"] and answer["stop_type"] == "limit"
    assert answer["model"] == NAME and answer["prompt"] == COUNTING
    assert answer["tokens_predicted"] == len(answer["tokens"]) == 8
    assert answer["tokens_cached"] == answer["tokens_evaluated"] + 8
    assert answer["generation_settings"]["n_predict"] == 8 and answer["generation_settings"]["temperature"] == 0
    timings = answer["timings"]
    assert timings["predicted_n"] == 8 and timings["cache_n"] + timings["prompt_n"] == answer["tokens_evaluated"]
    assert timings["predicted_ms"] > 0 and timings["predicted_per_second"] == pytest.approx(8e3 / timings["predicted_ms"])
    assert http.post("/completions", json={"prompt": COUNTING, "n_predict": 8, **GREEDY}).json()["content"] == answer["content"]


def test_a_stream_says_the_same_and_ends_with_the_result(http):
    whole = complete(http, return_tokens=True)
    *parts, last = events(http)
    assert "".join(part["content"] for part in parts) == whole["content"]
    assert sum((part["tokens"] for part in parts), []) == whole["tokens"]
    assert [part["stop"] for part in parts] == [False] * len(parts) and last["stop"]
    assert last["content"] == "" and last["stop_type"] == "limit" and last["timings"]["predicted_n"] == 8
    assert parts[-1]["tokens_predicted"] == 8


def test_the_same_tokens_as_the_openai_api(http, server):
    theirs = server.client().completions.create(model=NAME, prompt=COUNTING, temperature=0, max_tokens=8)
    assert complete(http)["content"] == theirs.choices[0].text


def test_prompts_as_texts_ids_and_both(http):
    ids = http.post("/tokenize", json={"content": COUNTING}).json()["tokens"]
    by_text = complete(http)["content"]
    assert complete(http, prompt=ids)["content"] == by_text
    front, rest = ids[:4], http.post("/detokenize", json={"tokens": ids[4:]}).json()["content"]
    assert complete(http, prompt=[*front, rest])["content"] == by_text
    several = complete(http, prompt=[COUNTING, "a b c d e f"])
    assert [result["index"] for result in several] == [0, 1] and several[0]["content"] == by_text
    assert several[1]["prompt"] == "a b c d e f"
    assert [result["content"] for result in complete(http, prompt=[ids, [*front, rest]])] == [by_text] * 2
    streamed = events(http, prompt=[COUNTING, "a b c d e f"])
    for index in (0, 1):
        assert "".join(event["content"] for event in streamed if event["index"] == index) == several[index]["content"]


def test_how_answers_end(http):
    word = complete(http, n_predict=40, stop=[" 11"])
    assert word["stop_type"] == "word" and word["stopping_word"] == " 11" and "11" not in word["content"]
    chat = "<|im_start|>user\nSay yes.<|im_end|>\n<|im_start|>assistant\n"
    end = complete(http, prompt=chat, parse_special=True, n_predict=-1)
    assert end["stop_type"] == "eos" and end["stopping_word"] == ""
    nothing = complete(http, n_predict=0)
    assert nothing["content"] == "" and nothing["tokens_predicted"] == 0
    assert complete(http, n_predict=100000, stop=["9"])["stop_type"] == "word"  # a bound, not a promise


def test_probabilities_and_bias(http):
    answer = complete(http, n_probs=3)
    first = answer["completion_probabilities"][0]
    assert len(answer["completion_probabilities"]) == 8 and len(first["top_logprobs"]) == 3
    assert first["id"] == first["top_logprobs"][0]["id"] and first["logprob"] <= 0
    assert bytes(first["bytes"]).decode() == first["token"]
    streamed = [entry for event in events(http, n_probs=3)[:-1] for entry in event["completion_probabilities"]]
    assert [entry["id"] for entry in streamed] == [entry["id"] for entry in answer["completion_probabilities"]]
    other = complete(http, n_probs=1, logit_bias=[[first["id"], False]])
    assert other["completion_probabilities"][0]["id"] != first["id"]


def test_penalties_look_at_the_last_tokens(start_server):
    """A window as long as the text is the whole of it, 64 where nobody says; on a GPU as on a CPU."""
    http = httpx.Client(base_url=start_server("--max-model-len", 512).url, timeout=120)
    prompt = COUNTING * 5 + " One and two."
    text = {window: complete(http, prompt=prompt, n_predict=24, repeat_penalty=1.8, repeat_last_n=window)["content"]
            for window in (-1, 0, 1, 64, 4096)}
    assert text[-1] == text[4096] != text[1]
    assert text[0] == complete(http, prompt=prompt, n_predict=24)["content"] != text[-1]
    silent = complete(http, prompt=prompt, n_predict=24, repeat_penalty=1.8)
    assert silent["content"] == text[64] != text[1]
    assert silent["generation_settings"]["repeat_last_n"] == 64
    default = ["penalties", "dry", "top_n_sigma", "top_k", "typ_p", "top_p", "min_p", "xtc", "temperature"]
    assert complete(http, prompt=prompt, n_predict=24, repeat_penalty=1.8, samplers=default)["content"] == text[64]


@pytest.mark.parametrize(
    "field, values",
    [
        ("prompt", [1, {}, True, [{}], [-1], [10**9], [1.5], ["a", [1, -1]], [[True]], {"prompt_string": 1}, {"prompt_string": "a", "multimodal_data": ["x"]}]),
        ("n_predict", [-3, 1.5, "1", 1e99]),
        ("n_probs", [-1, 21, 1.5, "1"]),
        ("id_slot", [-2, "1", 1.5]),
        ("cache_prompt", [1, "true"]),
        ("return_tokens", [1, "true"]),
        ("parse_special", [1, "true"]),
        ("n_keep", [-2, "1"]),
        ("n_discard", [-1, "1"]),
        ("temperature", [-1, 101, "1"]),
        ("top_p", [0, 2, "1"]),
        ("min_p", [-1, 2]),
        ("repeat_penalty", [0, 101]),
        ("seed", [1.5, "1"]),
        ("stop", [1, [""], [1]]),
        ("stream", [1, "true"]),
        ("ignore_eos", [1]),
        ("logit_bias", [1, "x", [1], [[1]], [["a", 101]], [["a", "b"]], [[1, 101]], [[1, True]], [[-1, 1]], [[10**9, 1]], {"a": 1}]),
        ("mirostat", [1, 2]),
        ("dry_multiplier", [-1, "1"]),
        ("xtc_probability", [2, "1"]),
        ("samplers", [["top_k"]]),
        ("grammar", ["root ::= x"]),
        ("json_schema", [5]),
        ("post_sampling_probs", [True, 1]),
        ("return_progress", [True]),
        ("timings_per_token", [True]),
        ("response_fields", [["content"]]),
        ("lora", [[{"id": 0, "scale": 1}]]),
        ("t_max_predict_ms", [10]),
    ],
)
def test_hostile_values_are_refused_by_name(http, field, values):
    for value in values:
        answer = http.post("/completion", content=json.dumps({"prompt": "a", "n_predict": 1, field: value}), headers={"Content-Type": "application/json"})
        assert answer.status_code == 400, (field, value, answer.text)
        assert answer.json()["error"]["param"] == field, (value, answer.text)
        assert answer.json()["error"]["message"].startswith(field)


def test_props(http):
    props = http.get("/props").json()
    assert props["total_slots"] == 64 and props["default_generation_settings"]["n_ctx"] == 2048
    assert props["model_alias"] == NAME and "/" not in props["model_path"] and "im_start" in props["chat_template"]
    assert props["eos_token"] == "<|im_end|>" and not props["is_sleeping"]


def test_slots_show_counts_and_no_text(http, server):
    secret = "xylophone"
    seen = []
    with httpx.Client(base_url=server.url, timeout=120) as other:
        with other.stream("POST", "/completion", json={"prompt": f"{secret} " * 40, "n_predict": 1500, "ignore_eos": True, "stream": True}) as stream:
            lines = stream.iter_lines()  # kept: the connection goes with it
            for _ in range(4):
                next(lines)
            shown = http.get("/slots").text
            seen = [slot for slot in json.loads(shown) if slot["is_processing"]]
    assert secret not in shown and len(json.loads(shown)) == 64
    assert len(seen) == 1 and seen[0]["id"] == 0 and seen[0]["n_prompt_tokens"] > 40
    assert seen[0]["next_token"][0]["n_decoded"] > 0
    assert seen[0]["next_token"][0]["n_decoded"] + seen[0]["next_token"][0]["n_remain"] == 1500
    server.wait_idle()
    assert not any(slot["is_processing"] for slot in http.get("/slots").json())
    assert http.get("/slots?fail_on_no_slot=1").status_code == 200
    assert http.post("/slots/0?action=save").status_code == 400
    assert not any(slot["speculative"] for slot in json.loads(shown))


def test_slots_say_whether_tokens_are_proposed(start_server):
    flags = ("--speculative-config", '{"method": "ngram", "num_speculative_tokens": 4}')
    url = start_server("--max-model-len", 512, "--max-num-seqs", 2, *flags).url
    assert [slot["speculative"] for slot in httpx.get(url + "/slots").json()] == [True, True]


def test_a_full_server_has_no_slot(start_server):
    server = start_server("--max-num-seqs", 1, "--max-model-len", 512)
    body = {"prompt": "a", "n_predict": 400, "ignore_eos": True}
    busy = threading.Thread(target=lambda: httpx.post(server.url + "/completion", json=body, timeout=120))
    busy.start()
    deadline = time.monotonic() + 20
    while httpx.get(server.url + "/slots?fail_on_no_slot=1").status_code != 503:
        assert busy.is_alive() and time.monotonic() < deadline
    busy.join()


def test_adapters_names_of_openais_routes_and_metrics(http, server):
    assert http.get("/lora-adapters").json() == []
    assert "adapters" in http.post("/lora-adapters", json=[{"id": 0, "scale": 1}]).json()["error"]["message"]
    messages = [{"role": "user", "content": "Say yes."}]
    assert http.post("/chat/completions", json={"messages": messages, "max_tokens": 2}).json()["object"] == "chat.completion"
    assert http.get("/models").json() == http.get("/v1/models").json()
    before = server.metric("llamacpp:tokens_predicted_total"), server.metric("llamacpp:tokens_predicted_seconds_total")
    complete(http)
    server.wait_idle()
    assert server.metric("llamacpp:tokens_predicted_total") - before[0] == 8
    assert server.metric("llamacpp:tokens_predicted_seconds_total") > before[1]
    assert server.metric("llamacpp:predicted_tokens_seconds") > 0 and server.metric("llamacpp:n_decode_total") > 8
    assert server.metric("llamacpp:prompt_seconds_total") > 0 and server.metric("llamacpp:requests_processing") == 0


# --- Filling in ----------------------------------------------------------------------------------


def test_a_model_that_cannot_fill_in_says_so(http):
    answer = http.post("/infill", json={"input_prefix": "a", "input_suffix": "b"})
    assert answer.status_code == 400 and "fim_prefix" in answer.json()["error"]["message"]


@pytest.fixture(scope="module")
def coder():
    if not os.path.exists(CODER):
        pytest.skip(f"{CODER} is missing")
    running = RunningServer("--max-model-len", 1024, model=CODER)
    with httpx.Client(base_url=running.wait_ready().url, timeout=120) as client:
        yield client
    running.kill()


def test_infill(coder):
    body = {"input_prefix": "def add(a, b):\n    ", "input_suffix": "\n\nprint(add(1, 2))\n", "n_predict": 16, **GREEDY}
    answer = coder.post("/infill", json=body).json()
    assert answer["content"].startswith("return a + b")
    assert answer["prompt"] == "<|fim_prefix|>def add(a, b):\n    <|fim_suffix|>\n\nprint(add(1, 2))\n<|fim_middle|>"
    *parts, last = events(coder, "/infill", **body, prompt="")
    assert "".join(part["content"] for part in parts) == answer["content"] and last["stop"]
    # What stands in a text is text: marks in it are none.
    spelled = coder.post("/infill", json={**body, "input_prefix": "<|fim_suffix|>"}).json()
    assert spelled["tokens_evaluated"] > coder.post("/infill", json={**body, "input_prefix": ""}).json()["tokens_evaluated"] + 3


def test_a_suffix_of_completions_is_filled_in_before(coder, http):
    before, behind = "def add(a, b):\n    ", "\n\nprint(add(1, 2))\n"
    filled = coder.post("/infill", json={"input_prefix": before, "input_suffix": behind, "n_predict": 16, **GREEDY}).json()
    body = {"prompt": before, "suffix": behind, "max_tokens": 16, **GREEDY}
    answer = coder.post("/v1/completions", json=body).json()
    assert answer["choices"][0]["text"] == filled["content"]
    assert answer["usage"]["prompt_tokens"] == filled["tokens_evaluated"]
    for wrong in ({"prompt": [1, 2]}, {"echo": True}, {"suffix": 1}):
        refused = coder.post("/v1/completions", json={**body, **wrong})
        assert refused.status_code == 400 and refused.json()["error"]["param"] == "suffix"
    refused = http.post("/v1/completions", json=body)
    assert refused.status_code == 400 and refused.json()["error"]["param"] == "suffix"
    assert "fim_prefix" in refused.json()["error"]["message"]


def test_a_suffix_of_ollamas_generate_is_filled_in_before(coder):
    before, behind = "def add(a, b):\n    ", "\n\nprint(add(1, 2))\n"
    filled = coder.post("/infill", json={"input_prefix": before, "input_suffix": behind, "n_predict": 16, **GREEDY}).json()
    client = Client(str(coder.base_url))
    ask = {"prompt": before, "suffix": behind, "options": {"num_predict": 16, **GREEDY}}
    answer = client.generate(NAME, **ask)
    assert answer.response == filled["content"] and answer.prompt_eval_count == filled["tokens_evaluated"]
    assert "".join(part.response for part in client.generate(NAME, stream=True, **ask)) == filled["content"]
    assert "insert" in client.show(NAME).capabilities
    with pytest.raises(ResponseError, match="system is not part"):
        client.generate(NAME, system="Be brief.", **ask)


def test_infill_with_other_files(coder):
    extra = [{"filename": "colors.py", "text": "FAVOURITE = 'turquoise'\n"}]
    body = {"input_prefix": "from colors import FAVOURITE\nassert FAVOURITE == '", "input_suffix": "'\n", "n_predict": 8, **GREEDY}
    answer = coder.post("/infill", json={**body, "input_extra": extra}).json()
    assert "turquoise" in answer["content"] and "<|file_sep|>colors.py" in answer["prompt"]
    goes_on = coder.post("/infill", json={**body, "prompt": "tur", "input_extra": extra}).json()
    assert goes_on["prompt"].endswith("== 'tur<|fim_suffix|>'\n<|fim_middle|>")


@pytest.mark.parametrize(
    "field, values",
    [
        ("input_prefix", [1, None, []]),
        ("input_suffix", [1, None, {}]),
        ("input_extra", [1, {}, [1], [{}], [{"text": 1}], [{"text": "a", "filename": 1}], [{"text": "a"}] * 257]),
        ("prompt", [1, ["a", "b"]]),
    ],
)
def test_hostile_values_of_infill(coder, field, values):
    for value in values:
        answer = coder.post("/infill", json={"input_prefix": "a", "input_suffix": "b", "n_predict": 1, field: value})
        assert answer.status_code == 400 and answer.json()["error"]["param"] == field, (value, answer.text)
