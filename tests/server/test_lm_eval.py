"""lm-eval's models of an API: log-likelihoods from completions with echo, generation from both. lm-eval weighs
half a gigabyte: ./test --full alone installs it (tests/requirements_lm_eval.txt). What it relies on is in
test_openai_client.py, too."""

import json
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


def evaluate(tmp_path, task, model, rows, **options):
    """A task of a local file: its result and samples."""
    file = tmp_path / "rows.jsonl"
    file.write_text("".join(json.dumps(row) + "\n" for row in rows))
    (tmp_path / "task.yaml").write_text(f"""
task: capitals
dataset_path: json
dataset_kwargs: {{data_files: {{test: {file}}}}}
test_split: test
doc_to_text: "The capital of {{{{question}}}} is"
{task}""")
    manager = TaskManager(include_path=str(tmp_path), include_defaults=False)
    result = simple_evaluate(**model, tasks=["capitals"], task_manager=manager, bootstrap_iters=0, log_samples=True, **options)
    return result["results"]["capitals"], result["samples"]["capitals"]


def model_of(server, kind):
    route = "/v1/chat/completions" if kind == "local-chat-completions" else "/v1/completions"
    return {"model": kind, "model_args": {"model": NAME, "base_url": server.url + route, "num_concurrent": 4}}


@pytest.mark.parametrize("kind", ["local-completions", "local-chat-completions"])
def test_a_task_of_generation(server, tmp_path, kind):
    chat = kind == "local-chat-completions"
    task = """
output_type: generate_until
doc_to_target: "{{answer}}"
generation_kwargs: {until: ["\\n"], max_gen_toks: 24, temperature: 0}
filter_list:
  - name: first
    filter: [{function: regex, regex_pattern: "([A-Z][a-z]+)[^A-Z]*$"}, {function: take_first}]
metric_list: [{metric: exact_match, aggregation: mean, higher_is_better: true}]
"""
    rows = [{"question": country, "answer": city} for country, city in CAPITALS.items()]
    _, samples = evaluate(tmp_path, task, model_of(server, kind), rows, apply_chat_template=chat)
    assert len(samples) == 10
    assert all(sample["resps"][0][0] for sample in samples)
    said = [name in sample["resps"][0][0] for sample, name in zip(samples, CAPITALS.values(), strict=True)]
    # A chat model of 135M wants to talk.
    assert sum(said) >= (2 if chat else 7), [sample["resps"] for sample in samples]


def test_a_task_of_choices(server, tmp_path):
    names = list(CAPITALS.values())
    rows = [{"question": country, "choices": [names[i], names[(i + 3) % 10], names[(i + 5) % 10]], "gold": 0}
            for i, country in enumerate(CAPITALS)]
    task = """
output_type: multiple_choice
doc_to_choice: choices
doc_to_target: gold
metric_list: [{metric: acc, aggregation: mean, higher_is_better: true}]
"""
    results, samples = evaluate(tmp_path, task, model_of(server, "local-completions"), rows)
    assert len(samples) == 10 and all(len(sample["resps"]) == 3 for sample in samples)
    assert results["acc,none"] >= 0.8, samples
