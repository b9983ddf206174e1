"""A server with a draft model (--model-draft) answers as one without, whatever is asked of it.

The draft is the model itself: what it proposes is always right, and costs as much as it brings, so that the server asks it
for the first steps alone, which it takes to learn that."""

import concurrent.futures
import subprocess

import pytest

from conftest import BINARY, MODEL, NAME, ROOT, RunningServer

PROMPTS = ["Write a function that adds two numbers.", "What is the capital of France?", "Count from one to twenty."]


@pytest.fixture(scope="module")
def servers():
    plain = RunningServer("--device", "cpu", "--max-model-len", "1024", "--no-jump-ahead")
    drafting = RunningServer("--device", "cpu", "--max-model-len", "1024", "--model-draft", MODEL, "--draft-max", "4")
    yield plain.wait_ready(), drafting.wait_ready()
    plain.kill()
    drafting.kill()


def answers(server, **options):
    client = server.client()

    def ask(prompt):
        answer = client.chat.completions.create(
            model=NAME, messages=[{"role": "user", "content": prompt}], max_tokens=60, seed=7, **options)
        return [(choice.message.content, choice.finish_reason,
                 [each.logprob for each in choice.logprobs.content] if choice.logprobs else None) for choice in answer.choices]

    with concurrent.futures.ThreadPoolExecutor(len(PROMPTS)) as pool:
        return list(pool.map(ask, PROMPTS))


@pytest.mark.parametrize("options", [
    {"temperature": 0},
    {"temperature": 0.9, "top_p": 0.9},
    {"temperature": 0, "logprobs": True, "top_logprobs": 3},
    {"temperature": 0.7, "n": 3},
    {"temperature": 0, "stop": ["\n\n", "two"]},
    {"temperature": 0, "frequency_penalty": 0.5},
    {"temperature": 0, "response_format": {"type": "json_object"}},
    {"temperature": 0, "logit_bias": {"28": -100, "198": 2}},
], ids=["greedy", "drawn", "logprobs", "choices", "stop", "penalty", "form", "bias"])
def test_answers_are_those_without(servers, options):
    plain, drafting = servers
    assert answers(drafting, **options) == answers(plain, **options)


def test_streams_and_long_prompts(servers):
    def text(server):
        stream = server.client().chat.completions.create(
            model=NAME, messages=[{"role": "user", "content": "Repeat: " + "one two three four. " * 100}],
            max_tokens=80, temperature=0, stream=True)
        return "".join(chunk.choices[0].delta.content or "" for chunk in stream if chunk.choices)

    assert text(servers[1]) == text(servers[0])


def test_what_was_proposed_is_counted_and_was_right(servers):
    plain, drafting = servers
    answers(drafting, temperature=0)
    proposed = drafting.metric("vllm:spec_decode_num_draft_tokens_total")
    assert proposed > 20
    assert drafting.metric("vllm:spec_decode_num_accepted_tokens_total") == proposed
    assert 0 < drafting.metric("vllm:spec_decode_num_drafts_total") < proposed
    # As `vllm bench serve` reads it: every token that was right has a position.
    assert drafting.metric("vllm:spec_decode_num_accepted_tokens_per_pos_total") == proposed
    assert drafting.metric("headrace:draft_seconds_total") > 0
    assert plain.metric("vllm:spec_decode_num_draft_tokens_total") == 0


@pytest.mark.parametrize("arguments, named", [
    (["--model-draft", str(ROOT / "tests/data/models/llama")], "tokens"),
    (["--model-draft", "no-such.gguf"], "no-such.gguf"),
    (["--model-draft", MODEL, "--tensor-parallel-size", "2"], "--tensor-parallel-size"),
    (["--model-draft", MODEL, "--spec-method", "ngram"], "choose one"),
    (["--spec-method", "draft_model"], "--model-draft FILE"),
])
def test_a_draft_that_cannot_be_is_refused_at_the_start(arguments, named):
    done = subprocess.run([BINARY, "serve", "-m", MODEL, "--device", "cpu", "--port", "0", *arguments],
                          capture_output=True, text=True, timeout=60)
    assert done.returncode != 0
    assert named in done.stderr and len(done.stderr.strip().splitlines()) == 1, done.stderr
