"""Answers of a form are those of a server that proposes nothing of it (--no-jump-ahead), and come in fewer steps."""

import concurrent.futures
import json

import pytest

from conftest import NAME, RunningServer

SCHEMA = {
    "type": "object", "additionalProperties": False,
    "properties": {"identification_number": {"type": "integer"}, "is_registered_customer": {"type": "boolean"},
                   "preferred_delivery_time": {"enum": ["in the morning", "in the evening"]}},
    "required": ["identification_number", "is_registered_customer", "preferred_delivery_time"],
}  # fmt: skip
FORM = {"type": "json_schema", "json_schema": {"name": "customer", "schema": SCHEMA}}
NAMED = 'Repeat: {"identification_number": 7, "is_registered_customer": true, "preferred_delivery_time": "in the evening"}'
PROMPTS = ["Tell me of a customer.", "Invent a customer.", NAMED]


@pytest.fixture(scope="module")
def servers():
    flags = ("--device", "cpu", "--max-model-len", "1024")
    plain, jumping = RunningServer(*flags, "--no-jump-ahead"), RunningServer(*flags)
    yield plain.wait_ready(), jumping.wait_ready()
    plain.kill()
    jumping.kill()


def proposed_and_accepted(server):
    return [server.metric(f"vllm:spec_decode_num_{kind}_tokens_total") for kind in ("draft", "accepted")]


def ask(server, prompt, **options):
    answer = server.client().chat.completions.create(
        model=NAME, messages=[{"role": "user", "content": prompt}], max_tokens=200, seed=5, response_format=FORM, **options)
    return [(choice.message.content, choice.finish_reason, choice.logprobs) for choice in answer.choices]


def answers(server, **options):
    with concurrent.futures.ThreadPoolExecutor(len(PROMPTS)) as pool:
        return list(pool.map(lambda prompt: ask(server, prompt, **options), PROMPTS))


@pytest.mark.parametrize("options", [
    {"temperature": 0}, {"temperature": 1.3}, {"temperature": 0.8, "n": 2, "logprobs": True, "top_logprobs": 2},
    {"temperature": 0, "presence_penalty": 0.5}, {"temperature": 0, "stop": ["customer"]},
], ids=["greedy", "drawn", "choices", "penalty", "stop"])  # fmt: skip
def test_answers_are_those_without(servers, options):
    plain, jumping = (answers(server, **options) for server in servers)
    assert jumping == plain
    for content, finish, _ in (choice for choices in jumping for choice in choices):
        if finish == "stop" and "stop" not in options:
            assert list(json.loads(content)) == SCHEMA["required"]


# A small model spells the keys of a schema as a tokenizer does where it was told them.
def test_keys_are_proposed(servers):
    plain, jumping = servers
    before, steps = proposed_and_accepted(jumping), [server.metric("headrace:steps_total") for server in servers]
    ask(jumping, NAMED, temperature=0)
    ask(plain, NAMED, temperature=0)
    proposed, accepted = (now - then for now, then in zip(proposed_and_accepted(jumping), before))
    assert accepted >= 10 and accepted > proposed / 2
    taken = [server.metric("headrace:steps_total") - then for server, then in zip(servers, steps)]
    assert taken[1] < 0.8 * taken[0]
    assert proposed_and_accepted(plain) == [0, 0]
