"""lm-eval's models of an API: log-likelihoods from completions with echo, generation from both. lm-eval weighs
half a gigabyte, so no stage of ./test installs it: `pip install lm-eval[api] openai httpx pytest` in an environment of
its own, then pytest on this file. What it relies on is in test_openai_client.py, too."""

import math

import httpx
import pytest
from lm_eval.api.instance import Instance
from lm_eval.api.registry import get_model
from lm_eval.evaluator import simple_evaluate
from lm_eval.tasks import TaskManager

from conftest import NAME

CAPITALS = {
    "France": "Paris", "Germany": "Berlin", "Italy": "Rome", "Spain": "Madrid", "Japan": "Tokyo", "Egypt": "Cairo",
    "Russia": "Moscow", "Greece": "Athens", "Austria": "Vienna", "Poland": "Warsaw",
}


def completions_of(server, **options):
    # It asks /tokenizer_info and /tokenize, and sends ids.
    return get_model("local-completions")(model=NAME, base_url=server.url + "/v1/completions", **options)


def requests(kind, arguments):
    return [Instance(request_type=kind, doc={}, arguments=each, idx=i) for i, each in enumerate(arguments)]


@pytest.mark.parametrize("batch", [1, 4])
def test_the_right_capital_is_likelier(server, batch):
    model = completions_of(server, batch_size=batch)
    assert model.tokenizer_backend == "remote"
    names = list(CAPITALS.values())
    right, wrong = (
        [(f"The capital of {country} is", f" {names[(i + shift) % len(names)]}") for i, country in enumerate(CAPITALS)]
        for shift in (0, 3)
    )
    found = model.loglikelihood(requests("loglikelihood", right + wrong), disable_tqdm=True)
    better = [a[0] > b[0] for a, b in zip(found[: len(names)], found[len(names) :], strict=True)]
    assert sum(better) >= 9, found
    assert all(value < 0 and greedy in (True, False) for value, greedy in found)
    assert any(greedy for _, greedy in found)


def test_a_rolling_likelihood_is_the_sum_over_the_text(server):
    text = "The quick brown fox jumps over the lazy dog."
    model = completions_of(server)
    (found,) = model.loglikelihood_rolling(requests("loglikelihood_rolling", [(text,)]), disable_tqdm=True)
    prefix = httpx.get(server.url + "/tokenizer_info").json()["bos_token"]
    assert httpx.post(server.url + "/detokenize", json={"tokens": [model.prefix_token_id]}).json()["prompt"] == prefix
    ids = httpx.post(server.url + "/tokenize", json={"prompt": text, "add_special_tokens": False})
    answer = httpx.post(
        server.url + "/v1/completions",
        json={"model": NAME, "prompt": [model.prefix_token_id, *ids.json()["tokens"]], "echo": True, "logprobs": 0, "max_tokens": 0},
    )
    logprobs = answer.json()["choices"][0]["logprobs"]["token_logprobs"]
    assert logprobs[0] is None
    assert math.isclose(found, sum(logprobs[1:]), rel_tol=1e-3)


@pytest.mark.parametrize("kind", ["local-completions", "local-chat-completions"])
def test_a_task_is_evaluated(server, tmp_path, kind):
    rows = tmp_path / "rows.jsonl"
    rows.write_text("".join(f'{{"question": "{a}", "answer": "{b}"}}\n' for a, b in CAPITALS.items()))
    (tmp_path / "capitals.yaml").write_text(f"""
task: capitals
dataset_path: json
dataset_kwargs: {{data_files: {{test: {rows}}}}}
test_split: test
output_type: generate_until
doc_to_text: "The capital of {{{{question}}}} is"
doc_to_target: "{{{{answer}}}}"
generation_kwargs: {{until: ["\\n"], max_gen_toks: 24, temperature: 0}}
filter_list:
  - name: first
    filter: [{{function: regex, regex_pattern: "([A-Z][a-z]+)[^A-Z]*$"}}, {{function: take_first}}]
metric_list: [{{metric: exact_match, aggregation: mean, higher_is_better: true}}]
""")
    chat = kind == "local-chat-completions"
    route = "/v1/chat/completions" if chat else "/v1/completions"
    result = simple_evaluate(
        model=kind,
        model_args={"model": NAME, "base_url": server.url + route, "num_concurrent": 4},
        tasks=["capitals"],
        task_manager=TaskManager(include_path=str(tmp_path), include_defaults=False),
        apply_chat_template=chat,
        bootstrap_iters=0,
        log_samples=True,
    )
    samples = result["samples"]["capitals"]
    assert len(samples) == 10
    assert all(sample["resps"][0][0] for sample in samples)
    said = [name in sample["resps"][0][0] for sample, name in zip(samples, CAPITALS.values(), strict=True)]
    # A chat model of 135M wants to talk.
    assert sum(said) >= (2 if chat else 7), [sample["resps"] for sample in samples]
