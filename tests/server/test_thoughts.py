"""Bounds of thoughts, and which tokens an answer may have, with a real model whose template opens a thought."""

import json
import re
import urllib.error
import urllib.request

import anthropic
import openai
import pytest

from conftest import NAME, ROOT, RunningServer

ASK = [{"role": "user", "content": "Tell me a long story of a river and a bridge."}]
OPTIONS = {"model": NAME, "messages": ASK, "temperature": 0, "max_tokens": 48}


def thinking_template(folder):
    template = (ROOT / "tests/data/text/smollm2.jinja").read_text()
    opened = template.replace("<|im_start|>assistant\n", "<|im_start|>assistant\n<think>\n")
    assert opened != template
    path = folder / "think.jinja"
    path.write_text(opened)
    return path


@pytest.fixture(scope="module")
def thinker(tmp_path_factory):
    """The model thinks because its template says so, as DeepSeek's and Qwen's do; it never ends a thought itself."""
    path = thinking_template(tmp_path_factory.mktemp("template"))
    running = RunningServer("--max-model-len", 2048, "--chat-template", path)
    yield running.wait_ready()
    running.kill()


def post(url, body):
    request = urllib.request.Request(url, json.dumps(body).encode(), {"Content-Type": "application/json"})
    return json.load(urllib.request.urlopen(request, timeout=60))


def mark_tokens(server):
    return post(server.url + "/tokenize", {"prompt": "</think>", "add_special_tokens": False})["count"]


@pytest.mark.parametrize("budget", [0, 4, 12])
@pytest.mark.parametrize("stream", [False, True])
def test_a_budget_ends_thoughts(thinker, budget, stream):
    client = thinker.client()
    free = client.chat.completions.create(**OPTIONS).choices[0]
    assert not free.message.content and free.message.reasoning  # it never ends its thought
    extra = {"thinking_token_budget": budget}
    if stream:
        reasoning = content = ""
        for event in client.chat.completions.create(stream=True, stream_options={"include_usage": True}, extra_body=extra, **OPTIONS):
            usage = event.usage
            for choice in event.choices:
                reasoning += getattr(choice.delta, "reasoning", None) or ""
                content += choice.delta.content or ""
    else:
        answer = client.chat.completions.create(extra_body=extra, **OPTIONS)
        usage, message = answer.usage, answer.choices[0].message
        reasoning, content = getattr(message, "reasoning", None) or "", message.content
    assert content.strip()
    assert "think>" not in reasoning and not content.lstrip().startswith("</")
    # Up to the bound it thinks what it thinks without one.
    assert free.message.reasoning.startswith(reasoning) and bool(reasoning) == (budget > 0)
    assert usage.completion_tokens_details.reasoning_tokens == budget + mark_tokens(thinker)


def test_each_choice_has_its_own_budget(thinker):
    answer = thinker.client().chat.completions.create(
        **{**OPTIONS, "temperature": 1}, n=3, seed=1, extra_body={"reasoning": {"max_tokens": 5}})
    assert len({choice.message.reasoning for choice in answer.choices}) > 1
    assert all(choice.message.content for choice in answer.choices)
    assert answer.usage.completion_tokens_details.reasoning_tokens == 3 * (5 + mark_tokens(thinker))


def test_a_form_comes_behind_bounded_thoughts(thinker):
    schema = {"type": "object", "properties": {"capital": {"type": "string", "maxLength": 20}}, "required": ["capital"],
              "additionalProperties": False}
    answer = thinker.client().chat.completions.create(
        **OPTIONS, response_format={"type": "json_schema", "json_schema": {"name": "x", "schema": schema}},
        extra_body={"thinking_token_budget": 6})
    assert answer.choices[0].message.reasoning
    assert set(json.loads(answer.choices[0].message.content)) == {"capital"}


def test_anthropics_budget(thinker):
    client = anthropic.Anthropic(base_url=thinker.url, api_key="unused", max_retries=0)
    answer = client.messages.create(model=NAME, messages=ASK, max_tokens=48,
                                    extra_body={"temperature": 0, "thinking": {"type": "enabled", "budget_tokens": 6}})
    assert [block.type for block in answer.content] == ["thinking", "text"]


@pytest.mark.parametrize("flags", [(), ("--spec-method", "ngram")])
def test_preempted_thoughts_keep_their_budget(thinker, start_server, tmp_path, flags):
    """A pool too small for all: what was thought before a preemption counts once."""
    import concurrent.futures

    path = thinking_template(tmp_path)
    server = start_server("--max-model-len", 512, "--kv-cache-memory-bytes", 16 << 20, "--admission-headroom", 0,
                          "--max-num-seqs", 16, "--chat-template", path, *flags)
    client = server.client()

    def ask(seed):
        return client.chat.completions.create(**{**OPTIONS, "temperature": 1, "max_tokens": 250}, seed=seed,
                                              extra_body={"ignore_eos": True, "thinking_token_budget": 200})

    with concurrent.futures.ThreadPoolExecutor(16) as pool:
        answers = list(pool.map(ask, range(16)))
    assert server.metric("vllm:num_preemptions_total") > 0
    for answer in answers:
        assert answer.usage.completion_tokens_details.reasoning_tokens <= 200 + mark_tokens(server)
        assert answer.choices[0].message.content


def test_a_model_whose_thoughts_are_not_known_refuses(client):
    with pytest.raises(openai.BadRequestError, match="how this model writes its thoughts is not known") as error:
        client.chat.completions.create(**OPTIONS, extra_body={"thinking_token_budget": 6})
    assert error.value.param == "thinking_token_budget"


# --- Which tokens ------------------------------------------------------------------------------------


def test_allowed_token_ids(client, server):
    digits = post(server.url + "/tokenize", {"prompt": "0123456789", "add_special_tokens": False})["tokens"]
    answer = client.completions.create(model=NAME, prompt="The year", max_tokens=12, temperature=1.5, seed=3,
                                       extra_body={"allowed_token_ids": digits})
    assert re.fullmatch(r"\d{12}", answer.choices[0].text)
    assert answer.choices[0].finish_reason == "length"  # no end is among them


def test_bad_words(client):
    options = dict(model=NAME, prompt="The capital of France is", max_tokens=24, temperature=0)
    free = client.completions.create(**options).choices[0].text
    assert "Paris" in free
    for words in (["Paris"], [" Paris"], ["Paris", "the city"]):
        answer = client.completions.create(**options, extra_body={"bad_words": words}).choices[0].text
        assert answer and not any(word.strip() in answer for word in words)


@pytest.mark.parametrize("fields", [{"allowed_token_ids": []}, {"allowed_token_ids": [-1]}, {"allowed_token_ids": [1 << 20]},
                                    {"bad_words": "x"}, {"bad_words": [""]}, {"bad_words": ["x"] * 1025},
                                    {"allowed_token_ids": [5], "guided_regex": "a+"}])
def test_wrong_rules_are_named(client, fields):
    with pytest.raises(openai.BadRequestError) as error:
        client.completions.create(model=NAME, prompt="x", max_tokens=4, extra_body=fields)
    assert error.value.param == next(iter(fields))
