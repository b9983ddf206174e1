"""A server that proposes trees of n-grams (--spec-tree-width) answers as one that proposes nothing."""

import subprocess

import pytest

from conftest import BINARY, MODEL, NAME, ROOT, RunningServer

QUOTE = "Repeat this text: the red fox met the red hen, the red fox met the old dog, the red hen met the red fox. Again: the red"


@pytest.fixture(scope="module")
def servers():
    plain = RunningServer("--device", "cpu", "--max-model-len", "512", "--batch-invariant")
    trees = RunningServer("--device", "cpu", "--max-model-len", "512", "--batch-invariant", "--speculative-config",
                          '{"method": "ngram", "prompt_lookup_min": 1, "tree_width": 3, "tree_tokens": 16}')
    yield plain.wait_ready(), trees.wait_ready()
    plain.kill()
    trees.kill()


@pytest.mark.parametrize("options", [
    {"temperature": 0},
    {"temperature": 0.9, "seed": 4, "n": 3},
    {"temperature": 0, "logprobs": 2},
    {"temperature": 0, "frequency_penalty": 0.5},
    {"temperature": 0, "stop": ["dog"]},
], ids=["greedy", "drawn", "logprobs", "penalty", "stop"])
def test_answers_are_those_without(servers, options):
    def answer(server):
        reply = server.client().completions.create(model=NAME, prompt=QUOTE, max_tokens=48, **options)
        return [(choice.text, choice.finish_reason, choice.logprobs and choice.logprobs.token_logprobs) for choice in reply.choices]

    assert answer(servers[1]) == answer(servers[0])


# How large they are is a matter of what rows cost here; the first sixteen are given whatever they cost.
def test_trees_were_verified(servers):
    servers[1].wait_idle()
    assert servers[1].metric("vllm:spec_decode_num_drafts_total") >= 16
    assert servers[1].metric("vllm:spec_decode_num_accepted_tokens_total") > 5


@pytest.mark.parametrize("flags, said", [
    (["--spec-tree-width", "2"], "nothing proposes"),
    (["--spec-method", "ngram", "--spec-tree-width", "9"], "--spec-tree-width"),
    (["--speculative-config", '{"method":"ngram","tree_width":2,"synthetic_acceptance_rate":0.5}'], "synthetic_acceptance_rate"),
    (["--speculative-config", '{"method":"ngram","speculative_token_tree":"[(0,), (1,)]"}'], "is of drafts, not of method ngram"),
])
def test_what_cannot_be_is_refused_in_a_line(flags, said):
    done = subprocess.run([BINARY, "serve", "-m", MODEL, "--device", "cpu", "--port", "0", *flags], cwd=ROOT, capture_output=True, text=True,
                          timeout=60)
    assert done.returncode != 0
    assert said in done.stderr
