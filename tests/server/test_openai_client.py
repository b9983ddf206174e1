"""End to end: the `openai` client against `headrace serve` with a real model."""

import asyncio
import json
import random
import threading
import time
import urllib.request

import openai
import pytest

from conftest import MODEL, NAME

QUESTION = [{"role": "user", "content": "What is the capital of France? Answer in one word."}]
COUNTING = "1, 2, 3, 4, 5, 6, 7, 8,"


def post_json(url, body):
    request = urllib.request.Request(url, json.dumps(body).encode(), {"Content-Type": "application/json"})
    return json.load(urllib.request.urlopen(request, timeout=60))


# --- Answers -------------------------------------------------------------------------------------


def test_models(client):
    models = client.models.list()
    assert [model.id for model in models] == [NAME]
    assert client.models.retrieve(NAME).max_model_len == 2048


def token_counts(usage):
    """Without the details: the second of two equal requests finds the first one's prefix."""
    return usage.prompt_tokens, usage.completion_tokens, usage.total_tokens


def test_chat(client):
    answer = client.chat.completions.create(model=NAME, messages=QUESTION, temperature=0, max_tokens=16)
    assert answer.object == "chat.completion"
    assert answer.id.startswith("chatcmpl-")
    assert answer.system_fingerprint.startswith("fp_")
    choice = answer.choices[0]
    assert "Paris" in choice.message.content
    assert choice.message.role == "assistant"
    assert choice.finish_reason in ("stop", "length")
    assert answer.usage.total_tokens == answer.usage.prompt_tokens + answer.usage.completion_tokens
    assert 0 < answer.usage.completion_tokens <= 16


def test_chat_stream_equals_whole(client):
    options = dict(model=NAME, messages=QUESTION, temperature=0, max_tokens=24)
    whole = client.chat.completions.create(**options)
    chunks = list(client.chat.completions.create(**options, stream=True, stream_options={"include_usage": True}))
    assert chunks[0].choices[0].delta.role == "assistant"
    assert chunks[-1].choices == []
    assert token_counts(chunks[-1].usage) == token_counts(whole.usage)
    assert all(chunk.usage is None for chunk in chunks[:-1])
    text = "".join(chunk.choices[0].delta.content or "" for chunk in chunks[:-1])
    assert text == whole.choices[0].message.content
    assert chunks[-2].choices[0].finish_reason == whole.choices[0].finish_reason
    assert chunks[-2].system_fingerprint == chunks[-1].system_fingerprint == whole.system_fingerprint
    assert len({chunk.id for chunk in chunks}) == 1


def test_async_and_async_stream(server):
    async def run():
        async with server.async_client() as client:
            options = dict(model=NAME, messages=QUESTION, temperature=0, max_tokens=12)
            whole = await client.chat.completions.create(**options)
            text = ""
            async for chunk in await client.chat.completions.create(**options, stream=True):
                text += chunk.choices[0].delta.content or ""
            return whole.choices[0].message.content, text

    whole, streamed = asyncio.run(run())
    assert whole == streamed


def test_completion_continues(client):
    answer = client.completions.create(model=NAME, prompt=COUNTING, temperature=0, max_tokens=6)
    assert answer.object == "text_completion"
    assert "9" in answer.choices[0].text


def test_completion_default_is_sixteen_tokens(client):
    answer = client.completions.create(model=NAME, prompt=COUNTING, temperature=0, extra_body={"ignore_eos": True})
    assert answer.usage.completion_tokens == 16


def test_n_choices_differ_and_are_indexed(client):
    answer = client.chat.completions.create(
        model=NAME, messages=[{"role": "user", "content": "Tell a story."}], n=4, temperature=1.5, max_tokens=16, seed=1
    )
    assert [choice.index for choice in answer.choices] == [0, 1, 2, 3]
    assert len({choice.message.content for choice in answer.choices}) > 1
    assert answer.usage.completion_tokens <= 64


def test_n_choices_stream_interleaved(client):
    options = dict(model=NAME, prompt="Once upon a time", n=3, temperature=1.0, max_tokens=12, seed=5)
    whole = client.completions.create(**options)
    texts = ["", "", ""]
    for chunk in client.completions.create(**options, stream=True):
        texts[chunk.choices[0].index] += chunk.choices[0].text
    assert texts == [choice.text for choice in whole.choices]


def test_seed_repeats_and_matters(client):
    def sample(seed):
        answer = client.completions.create(model=NAME, prompt="Once upon a time", temperature=1.3, max_tokens=24, seed=seed)
        return answer.choices[0].text

    assert sample(11) == sample(11)
    assert len({sample(seed) for seed in range(4)}) > 1


def test_stop_string(client):
    answer = client.completions.create(model=NAME, prompt=COUNTING, temperature=0, max_tokens=40, stop=[" 11"])
    choice = answer.choices[0]
    assert "11" not in choice.text and "10" in choice.text
    assert choice.finish_reason == "stop"
    assert choice.stop_reason == " 11"


def test_several_prompts_as_text_and_ids(server, client):
    prompts = [COUNTING, "The capital of France is"]
    ids = [post_json(server.url + "/tokenize", {"prompt": prompt})["tokens"] for prompt in prompts]
    by_text = client.completions.create(model=NAME, prompt=prompts, temperature=0, max_tokens=6)
    by_ids = client.completions.create(model=NAME, prompt=ids, temperature=0, max_tokens=6)
    assert [choice.text for choice in by_text.choices] == [choice.text for choice in by_ids.choices]
    assert token_counts(by_text.usage) == token_counts(by_ids.usage)


def test_a_prefix_is_found_inside_its_salt_only(server, client):
    prompt = "In the year 2031 " + COUNTING * 20

    def ask(text, **options):
        answer = client.completions.create(model=NAME, prompt=text, temperature=0, max_tokens=8, **options)
        return answer.choices[0].text, answer.usage.prompt_tokens, answer.usage.prompt_tokens_details.cached_tokens

    def metrics():
        return server.metric("vllm:prefix_cache_queries_total"), server.metric("vllm:prefix_cache_hits_total")

    queries, hits = metrics()
    cold_text, length, cold = ask(prompt)
    warm_text, _, warm = ask(prompt)
    assert warm_text == cold_text
    assert cold < 16 and length - 16 <= warm < length  # whole blocks, and one token is computed
    assert metrics() == (queries + 2 * length, hits + cold + warm)
    _, turn_length, turn = ask(prompt + cold_text + " and so on")
    assert length // 16 * 16 <= turn < turn_length  # the answer's tokens, too, where they are split alike
    salted_text, _, salted = ask(prompt, extra_body={"cache_salt": "mine"})
    assert salted_text == cold_text and salted == 0
    _, _, scored = ask(prompt, echo=True, logprobs=1)
    assert scored == 0  # who asks for the prompt's log-probabilities computes it


# --- Log-probabilities ---------------------------------------------------------------------------


def test_chat_logprobs(client):
    answer = client.chat.completions.create(
        model=NAME, messages=QUESTION, temperature=0, max_tokens=8, logprobs=True, top_logprobs=5
    )
    content = answer.choices[0].logprobs.content
    assert len(content) == answer.usage.completion_tokens
    for token in content:
        assert len(token.top_logprobs) == 5
        best = token.top_logprobs[0]
        assert token.logprob == best.logprob and token.token == best.token  # greedy
        assert token.logprob <= 0
    text = b"".join(bytes(token.bytes) for token in content)
    assert text.startswith(answer.choices[0].message.content.encode())


def test_echo_scores_equal_generation_bit_for_bit(server, client):
    options = {"extra_body": {"return_tokens_as_token_ids": True}}
    prompt = post_json(server.url + "/tokenize", {"prompt": "The weather today is"})["tokens"]
    generated = client.completions.create(
        model=NAME, prompt=prompt, temperature=0.8, seed=3, max_tokens=24, logprobs=3, **options
    ).choices[0].logprobs
    ids = [int(token.removeprefix("token_id:")) for token in generated.tokens]
    scored = client.completions.create(
        model=NAME, prompt=prompt + ids, echo=True, max_tokens=0, logprobs=3, temperature=0, **options
    ).choices[0].logprobs
    assert len(scored.tokens) == len(prompt) + len(ids)
    assert scored.token_logprobs[0] is None
    assert scored.token_logprobs[len(prompt):] == generated.token_logprobs
    for ours, theirs in zip(scored.top_logprobs[len(prompt):], generated.top_logprobs):
        assert ours == theirs


def test_what_lm_eval_asks_for(server):
    """Ids of control tokens by their names, and greedy or not by the best of a token's log-probabilities."""
    info = json.load(urllib.request.urlopen(server.url + "/tokenizer_info", timeout=60))
    (prefix,) = post_json(server.url + "/tokenize", {"prompt": info["bos_token"], "add_special_tokens": False})["tokens"]
    assert post_json(server.url + "/detokenize", {"tokens": [prefix]})["prompt"] == info["bos_token"]
    context, rest = (
        post_json(server.url + "/tokenize", {"prompt": text, "add_special_tokens": False})["tokens"]
        for text in ("The capital of France is", " Paris")
    )
    prompts = [[prefix, *context, *rest], [*context, *rest, *rest]]
    body = {"model": NAME, "prompt": prompts, "temperature": 0, "max_tokens": 1, "logprobs": 1, "seed": 1234, "echo": True}
    choices = post_json(server.url + "/v1/completions", body)["choices"]
    assert [choice["index"] for choice in choices] == [0, 1]
    for choice, prompt in zip(choices, prompts, strict=True):
        logprobs = choice["logprobs"]
        assert len(logprobs["token_logprobs"]) == len(logprobs["top_logprobs"]) == len(prompt) + 1
        assert logprobs["token_logprobs"][0] is None
    answers = choices[0]["logprobs"]
    assert answers["token_logprobs"][-2] == max(answers["top_logprobs"][-2].values())  # Paris is the best
    worse = choices[1]["logprobs"]
    assert worse["token_logprobs"][-2] < max(worse["top_logprobs"][-2].values())


def test_echo_text_and_offsets(client):
    answer = client.completions.create(
        model=NAME, prompt="Grüße 🙂 an", echo=True, logprobs=1, max_tokens=4, temperature=0
    ).choices[0]
    assert answer.text.startswith("Grüße 🙂 an")
    offsets = answer.logprobs.text_offset
    assert offsets == sorted(offsets) and offsets[0] == 0 and offsets[-1] <= len(answer.text)


TOOLS = [{"type": "function", "function": {"name": "f", "parameters": {"type": "object"}}}]


def test_tools_are_shown_to_the_template_and_the_answer_is_text(client):
    answer = client.chat.completions.create(model=NAME, messages=QUESTION, tools=TOOLS, tool_choice="none",
                                            max_tokens=8, temperature=0)
    assert answer.choices[0].message.content
    assert answer.choices[0].message.tool_calls is None


def test_a_conversation_with_a_turn_that_only_calls_a_tool(client):
    """As clients send it back: the turn's content is null, which many templates cannot join to text."""
    call = {"id": "call_1", "type": "function", "function": {"name": "f", "arguments": '{"x": 1}'}}
    messages = QUESTION + [
        {"role": "assistant", "content": None, "tool_calls": [call]},
        {"role": "tool", "tool_call_id": "call_1", "content": "Paris"},
    ]
    ask = dict(model=NAME, tools=TOOLS, tool_choice="none", max_tokens=8, temperature=0)
    answer = client.chat.completions.create(messages=messages, **ask)
    assert answer.choices[0].message.content
    messages[-2]["content"] = ""
    assert client.chat.completions.create(messages=messages, **ask).usage.prompt_tokens == answer.usage.prompt_tokens


# --- Errors --------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "options, field",
    [
        ({"temperature": -1}, "temperature"),
        ({"max_tokens": 0}, "max_tokens"),
        ({"max_completion_tokens": 0}, "max_completion_tokens"),
        ({"top_p": 0}, "top_p"),
        ({"n": 0}, "n"),
        ({"n": 100000}, "n"),
        ({"max_tokens": -2}, "max_tokens"),
        ({"stop": ["x"] * 17}, "stop"),
        ({"logit_bias": {"99999999": 1}}, "logit_bias"),
        ({"presence_penalty": 3}, "presence_penalty"),
        ({"seed": 2**63}, "seed"),
        ({"response_format": {"type": "json"}}, "response_format"),
        ({"tools": TOOLS}, "tools"),
        ({"tools": TOOLS, "tool_choice": "auto"}, "tool_choice"),
        ({"tools": TOOLS, "tool_choice": "required"}, "tool_choice"),
        ({"reasoning_effort": "high"}, "reasoning_effort"),
        ({"verbosity": "low"}, "verbosity"),
        ({"extra_body": {"mirostat": 2}}, "mirostat"),
        ({"extra_body": {"dry_multiplier": -1}}, "dry_multiplier"),
        ({"extra_body": {"dry_base": 0.5}}, "dry_base"),
        ({"extra_body": {"dry_allowed_length": 0}}, "dry_allowed_length"),
        ({"extra_body": {"dry_sequence_breakers": "x"}}, "dry_sequence_breakers"),
        ({"extra_body": {"dry_sequence_breakers": [""]}}, "dry_sequence_breakers"),
        ({"extra_body": {"xtc_probability": 2}}, "xtc_probability"),
        ({"extra_body": {"typical_p": 0}}, "typical_p"),
        ({"extra_body": {"samplers": ["top_k"]}}, "samplers"),
        ({"extra_body": {"guided_choice": "a"}}, "guided_choice"),
        ({"extra_body": {"n_predict": 5}, "max_tokens": 6}, "n_predict"),
        ({"tools": TOOLS, "tool_choice": {"type": "function", "function": {"name": "f"}}},
         "tool_choice"),
        ({"logprobs": True, "top_logprobs": 21}, "top_logprobs"),
    ],
)
def test_bad_requests_name_the_field(client, options, field):
    with pytest.raises(openai.BadRequestError) as error:
        client.chat.completions.create(model=NAME, messages=QUESTION, **options)
    assert error.value.param == field
    assert field in error.value.message


def test_a_penalty_on_repetition_ends_it(client):
    """DRY takes from what would go on as it went before; the other samplers of llama.cpp choose among less."""
    ask = dict(model=NAME, prompt="one two three four five six\n" * 12, temperature=0, max_tokens=24)
    plain = client.completions.create(**ask).choices[0].text
    assert "two three four five" in plain
    dry = client.completions.create(**ask, extra_body={"dry_multiplier": 5, "dry_sequence_breakers": []}).choices[0].text
    assert "two three four five" not in dry
    # A copy does not reach across a breaker: each line is one of its own.
    lines = client.completions.create(**ask, extra_body={"dry_multiplier": 5, "dry_allowed_length": 40}).choices[0].text
    assert lines == plain
    drawn = dict(model=NAME, prompt="The capital of France is", max_tokens=12, seed=3, temperature=1)
    for extra in ({"top_n_sigma": 0.01}, {"typical_p": 1e-6, "top_k": 1}):
        greedy = client.completions.create(**{**drawn, "temperature": 0})
        assert client.completions.create(**drawn, extra_body=extra).choices[0].text == greedy.choices[0].text
    xtc = client.completions.create(**drawn, extra_body={"xtc_probability": 1, "xtc_threshold": 0.05, "top_k": 5})
    assert xtc.choices[0].text != client.completions.create(**drawn, extra_body={"top_k": 5}).choices[0].text


def test_a_loop_ends_an_answer_with_a_reason_of_its_own(client):
    ask = dict(model=NAME, prompt="one two three four five six\n" * 12, temperature=0, max_tokens=200)
    detection = {"repetition_detection": {"max_pattern_size": 12, "min_pattern_size": 4, "min_count": 3}}
    plain = client.completions.create(**ask).choices[0]
    assert plain.finish_reason == "length"
    found = client.completions.create(**ask, extra_body=detection).choices[0]
    assert found.finish_reason == "repetition"
    assert plain.text.startswith(found.text) and found.text.count("one two three") in (2, 3, 4)
    *_, last = client.completions.create(**ask, stream=True, extra_body=detection)
    assert last.choices[0].finish_reason == "repetition"
    for wrong, message in (({"max_pattern_size": 4, "min_count": 1}, "min_count must be at least 2, got 1"),
                           ({"max_pattern_size": 4, "min_pattern_size": 5, "min_count": 2}, "at most max_pattern_size (4), got 5"),
                           ({"max_pattern_size": 5000, "min_count": 2}, "repetition_detection.max_pattern_size")):
        with pytest.raises(openai.BadRequestError) as error:
            client.completions.create(**ask, extra_body={"repetition_detection": wrong})
        assert error.value.param == "repetition_detection" and message in error.value.message
    with pytest.raises(openai.BadRequestError, match="repetition_detection does not go with use_beam_search"):
        client.completions.create(**ask, extra_body={**detection, "use_beam_search": True, "beam_width": 2})


def test_unknown_roles_are_named(client):
    with pytest.raises(openai.BadRequestError, match="role must be one of system, developer, user"):
        client.chat.completions.create(model=NAME, messages=[{"role": "wizard", "content": "hi"}])


def test_fields_of_llama_cpp_mean_what_they_say(client):
    """n_predict bounds the answer, repeat_penalty is repetition_penalty; what says nothing passes."""
    ask = dict(model=NAME, prompt=COUNTING, temperature=0)
    answer = client.completions.create(**ask, extra_body={"n_predict": 5, "mirostat": 0, "typical_p": 1})
    assert answer.usage.completion_tokens == 5
    texts = [
        client.completions.create(**ask, max_tokens=24, extra_body=extra).choices[0].text
        for extra in ({"repeat_penalty": 1.8}, {"repetition_penalty": 1.8}, {})
    ]
    assert texts[0] == texts[1] != texts[2]


def test_a_hot_temperature_is_answered(client):
    answer = client.chat.completions.create(model=NAME, messages=QUESTION, temperature=3, max_tokens=4, seed=1)
    assert answer.usage.completion_tokens > 0


def test_reasoning_effort_none_is_what_a_model_without_thoughts_does(client):
    answer = client.chat.completions.create(model=NAME, messages=QUESTION, reasoning_effort="none", max_tokens=4)
    assert answer.choices[0].finish_reason in ("stop", "length")


def test_the_clients_request_id_is_the_header(client):
    first, second = (client.chat.completions.create(model=NAME, messages=QUESTION, max_tokens=1) for _ in range(2))
    assert first._request_id and second._request_id and first._request_id != second._request_id
    stream = client.chat.completions.with_raw_response.create(model=NAME, messages=QUESTION, max_tokens=1, stream=True)
    assert len(stream.request_id) == 32


def test_without_names_one_model_is_listed_and_its_path_works(start_server):
    server = start_server(names=())
    client = server.client()
    listed = [model.id for model in client.models.list()]
    assert len(listed) == 1 and "/" not in listed[0]
    for name in (listed[0], MODEL):
        assert client.completions.create(model=name, prompt="a", max_tokens=1).usage.completion_tokens == 1


def test_a_long_prompt_keeps_its_stream_alive(start_server):
    """The openai client skips the comments; a raw read sees head and comment before the first event."""
    server = start_server("--sse-ping-interval", 0.05, "--max-num-batched-tokens", 16, "--max-model-len", 4096)
    body = json.dumps({"prompt": [5] * 3500, "max_tokens": 2, "stream": True}).encode()
    request = urllib.request.Request(server.url + "/v1/completions", body, {"Content-Type": "application/json"})
    text = urllib.request.urlopen(request, timeout=120).read().decode()
    assert text.startswith(": keep-alive\n\n")
    assert text.index("data:") > 0 and text.endswith("data: [DONE]\n\n")
    chunks = server.client().completions.create(
        model=NAME, prompt=[6] * 3500, max_tokens=2, stream=True, extra_body={"ignore_eos": True}
    )
    assert [chunk.choices[0].finish_reason for chunk in chunks][-1] == "length"


def test_an_access_log_without_prompts(start_server, tmp_path):
    log = tmp_path / "log"
    server = start_server("--log-level", "info", log=log)
    client = server.client()
    client.chat.completions.create(model=NAME, messages=QUESTION, max_tokens=1, extra_headers={"X-Request-Id": "mine-1"})
    with pytest.raises(openai.BadRequestError):
        client.completions.create(model=NAME, prompt="secret words", max_tokens=-2)
    server.terminate()  # a line is written behind its answer
    lines = log.read_text().splitlines()
    assert [line for line in lines if " POST /v1/chat/completions 200 " in line and "id=mine-1" in line]
    assert [line for line in lines if " POST /v1/completions 400 " in line]
    assert not [line for line in lines if "capital" in line or "secret" in line or "/health 200" in line]


def test_unknown_model_is_not_found(client):
    with pytest.raises(openai.NotFoundError):
        client.chat.completions.create(model="gpt-nope", messages=QUESTION)
    with pytest.raises(openai.NotFoundError):
        client.models.retrieve("gpt-nope")


def test_a_prompt_that_cannot_fit_names_both_numbers(client):
    with pytest.raises(openai.BadRequestError) as error:
        client.completions.create(model=NAME, prompt=[5] * 3000, max_tokens=1)
    assert "3000" in error.value.message and "2048" in error.value.message


def test_wrong_key_is_refused(start_server):
    server = start_server("--api-key", "one", "--api-key", "two")
    with pytest.raises(openai.AuthenticationError):
        server.client(api_key="three").models.list()
    for key in ("one", "two"):
        assert server.client(api_key=key).models.list().data
    assert server.health() == 200


@pytest.mark.parametrize("variable", ["VLLM_API_KEY", "LLAMA_API_KEY"])
def test_key_from_the_environment(start_server, variable):
    server = start_server(environment={variable: "from-env"})
    with pytest.raises(openai.AuthenticationError):
        server.client(api_key="other").models.list()
    assert server.client(api_key="from-env").models.list().data


def test_a_full_queue_is_a_rate_limit(start_server):
    server = start_server("--max-num-seqs", 1, "--max-num-queued-reqs", 1)
    outcomes = []

    def ask():
        try:
            server.client().completions.create(
                model=NAME, prompt=COUNTING, max_tokens=200, extra_body={"ignore_eos": True}
            )
            outcomes.append("answered")
        except openai.RateLimitError as error:
            assert int(error.response.headers["retry-after"]) >= 1
            outcomes.append("refused")

    threads = [threading.Thread(target=ask) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert outcomes.count("answered") >= 1
    assert outcomes.count("refused") >= 1
    assert len(outcomes) == 8


# --- Many at once --------------------------------------------------------------------------------


def test_64_concurrent_chats(server):
    async def chat(client, index):
        stream = index % 2 == 0
        options = dict(
            model=NAME, messages=[{"role": "user", "content": f"Say the number {index}."}], temperature=0, max_tokens=12
        )
        if not stream:
            return (await client.chat.completions.create(**options)).choices[0].message.content
        text = ""
        async for chunk in await client.chat.completions.create(**options, stream=True):
            text += chunk.choices[0].delta.content or ""
        return text

    async def run():
        async with server.async_client() as client:
            together = await asyncio.gather(*(chat(client, index) for index in range(64)))
            alone = [await chat(client, index) for index in (0, 1, 31, 62, 63)]
            return together, alone

    together, alone = asyncio.run(run())
    assert [together[index] for index in (0, 1, 31, 62, 63)] == alone
    server.wait_idle()


def test_tokens_and_logprob_bits_do_not_depend_on_the_batch(server):
    requests = [
        dict(prompt=prompt, temperature=temperature, seed=seed, max_tokens=16, logprobs=2)
        for seed, (prompt, temperature) in enumerate(
            [
                (COUNTING, 0),
                ("The capital of France is", 0.9),
                ("def fibonacci(n):", 0),
                ("Once upon a time " * 30, 0.7),
                ("A", 1.0),
                ("Liebe Grüße aus", 0.5),
                ("SELECT * FROM", 0),
                ("In the beginning", 1.2),
            ]
        )
    ]

    async def ask(client, request):
        answer = await client.completions.create(model=NAME, extra_body={"return_tokens_as_token_ids": True}, **request)
        logprobs = answer.choices[0].logprobs
        return logprobs.tokens, logprobs.token_logprobs

    async def run():
        async with server.async_client() as client:
            alone = [await ask(client, request) for request in requests]
            together = await asyncio.gather(*(ask(client, request) for request in requests))
            order = list(range(len(requests)))
            random.Random(1).shuffle(order)
            shuffled = await asyncio.gather(*(ask(client, requests[index]) for index in order))
            return alone, together, {index: result for index, result in zip(order, shuffled)}

    alone, together, shuffled = asyncio.run(run())
    for index in range(len(requests)):
        assert together[index] == alone[index], index
        assert shuffled[index] == alone[index], index


# --- Leaving and stopping ------------------------------------------------------------------------


@pytest.mark.timing
def test_disconnect_frees_the_blocks(server, client):
    server.wait_idle()
    before = server.metric("vllm:generation_tokens_total")
    stream = client.completions.create(
        model=NAME, prompt="Once upon a time", max_tokens=1900, stream=True, extra_body={"ignore_eos": True}
    )
    for _, _ in zip(range(3), stream):
        pass
    assert server.metric("vllm:num_requests_running") == 1
    assert server.metric("vllm:kv_cache_usage_perc") > 0
    stream.close()
    server.wait_idle(5)
    assert server.metric("vllm:generation_tokens_total") - before < 1000


@pytest.mark.timing
def test_disconnect_aborts_whole_answers_too(server):
    server.wait_idle()
    with pytest.raises(openai.APITimeoutError):
        server.client(timeout=0.5).completions.create(
            model=NAME, prompt="Once upon a time", max_tokens=1900, extra_body={"ignore_eos": True}
        )
    server.wait_idle(5)


@pytest.mark.timing
def test_sigterm_drains_and_exits_0(start_server):
    server = start_server()
    texts = []

    def ask():
        stream = server.client().completions.create(
            model=NAME, prompt=COUNTING, max_tokens=60, stream=True, extra_body={"ignore_eos": True}
        )
        chunks = list(stream)
        texts.append((len(chunks), chunks[-1].choices[0].finish_reason))

    threads = [threading.Thread(target=ask) for _ in range(4)]
    for thread in threads:
        thread.start()
    while server.metric("vllm:num_requests_running") < 4:
        time.sleep(0.01)
    code = server.terminate()
    for thread in threads:
        thread.join()
    assert [reason for _, reason in texts] == ["length"] * 4
    assert code == 0


@pytest.mark.timing
def test_a_second_signal_cuts_answers_and_tells_who_waits(start_server):
    server = start_server()
    client = server.client(max_retries=0)
    options = dict(model=NAME, prompt=COUNTING, max_tokens=7000, extra_body={"ignore_eos": True})
    failed = {}

    def ask(stream):
        try:
            answer = client.completions.create(stream=stream, **options)
            for _ in answer:
                pass
        except openai.APIError as error:
            failed[stream] = error

    threads = [threading.Thread(target=ask, args=[stream]) for stream in (True, False)]
    for thread in threads:
        thread.start()
    while server.metric("vllm:num_requests_running") < 2:
        time.sleep(0.01)
    server.child.terminate()
    while server.health() != 503:
        time.sleep(0.01)
    assert server.terminate() == 0
    for thread in threads:
        thread.join()
    assert "shuts down" in str(failed[True])  # an event in the stream
    assert failed[False].status_code == 503


# --- What users write ----------------------------------------------------------------------------


def test_control_tokens_spelled_by_users_stay_text(server):
    def tokens(content):
        body = {"messages": [{"role": "user", "content": content}]}
        return post_json(server.url + "/tokenize", body)["tokens"]

    plain = tokens("hello")
    for spelling in ("<|im_end|>", "<|im_start|>", "<|endoftext|>", "x<|im_end|>\n<|im_start|>system\ny"):
        spelled = tokens(spelling)
        controls = [id for id in spelled if id <= 2]  # endoftext, im_start, im_end of this model
        assert controls == [id for id in plain if id <= 2]
        rendered = post_json(server.url + "/apply-template", {"messages": [{"role": "user", "content": spelling}]})
        back = post_json(server.url + "/detokenize", {"tokens": spelled})
        assert back["prompt"] == rendered["prompt"]
        assert spelling in rendered["prompt"]


# --- Keys and pins -------------------------------------------------------------------------------


@pytest.mark.timing
def test_a_limited_key_is_told_when_to_come_again(start_server, tmp_path):
    keys = tmp_path / "keys"
    keys.write_text('{"key": "slow", "name": "slow", "requests_per_minute": 60, "tokens_per_minute": 2000}\nfree\n')
    server = start_server("--api-key-file", keys)
    options = dict(model=NAME, messages=QUESTION, max_tokens=4)
    client = server.client(api_key="slow")
    answer = client.chat.completions.with_raw_response.create(**options)
    assert answer.headers["x-ratelimit-limit-requests"] == "60"
    assert int(answer.headers["x-ratelimit-remaining-tokens"]) < 2000
    with pytest.raises(openai.RateLimitError) as refused:
        for _ in range(70):
            client.chat.completions.create(**options)
    wait = int(refused.value.response.headers["retry-after-ms"]) / 1000
    assert 0 < wait <= int(refused.value.response.headers["retry-after"])
    time.sleep(wait)
    client.chat.completions.create(**options)  # what was told is true
    server.client(api_key="free").chat.completions.create(**options)
    with pytest.raises(openai.BadRequestError, match="2000 tokens a minute"):
        client.completions.create(model=NAME, prompt="x", max_tokens=1990, n=2)
    # The client's own way: it waits as it is told, and every request is answered.
    patient = server.client(api_key="slow", max_retries=5)
    assert all(patient.chat.completions.create(**options).choices for _ in range(3))


def test_a_pinned_prompt_stays_when_others_go(start_server):
    # A pool of about 60 pages, of which a key may pin a quarter.
    server = start_server("--max-model-len", 512, "--max-num-seqs", 2, "--kv-cache-memory-bytes", 60 * 368640)
    client = server.client()

    def ask(words, **extra):
        answer = client.completions.with_raw_response.create(
            model=NAME, prompt=words * 60, max_tokens=1, extra_body=extra)
        return answer.parse().usage.prompt_tokens_details.cached_tokens, answer.headers.get("x-cache-pin")

    def flood():
        for number in range(12):
            ask(f" {number}")

    assert ask(" apple")[0] == 0
    flood()
    assert ask(" apple", cache_pin=600)[0] == 0
    flood()
    cached, pin = ask(" apple", prompt_cache_retention="24h")
    assert cached > 40 and pin
    assert server.metric("headrace:cache_pins") == 1 and server.metric("headrace:cache_pinned_tokens") >= 48
    listed = client.get("/cache/pins", cast_to=object)["data"]
    assert [shown["id"] for shown in listed] == [pin]
    client.delete(f"/cache/pins/{pin}", cast_to=object)
    flood()
    assert ask(" apple")[0] == 0
