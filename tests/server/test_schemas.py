"""Answers of schemas of rising difficulty, judged by another program's reading of JSON schemas, on every model of the cache.

./test --full runs it: it needs jsonschema_rs (tests/requirements_full.txt)."""

import concurrent.futures
import json
import pathlib

import jsonschema_rs
import pytest

from conftest import MODEL, NAME, RunningServer
from schemas_of_answers import SCHEMAS

MODELS = sorted({pathlib.Path(MODEL), *pathlib.Path(MODEL).parent.glob("*.gguf")})
TEMPERATURES = (0, 0.8, 1.5)


@pytest.fixture(scope="module", params=MODELS, ids=[model.stem for model in MODELS])
def server(request):
    running = RunningServer("--device", "cpu", "--max-model-len", "1024", model=request.param)
    yield running.wait_ready()
    running.kill()


def answer(client, schema, temperature, seed):
    """As a completion: not every model of the cache has a template of chats."""
    ask = "A JSON schema, and an example of a value of it.\n" + json.dumps(schema)[:600] + "\nExample:\n"
    choice = client.completions.create(
        model=NAME, prompt=ask, temperature=temperature, seed=seed, max_tokens=300,
        extra_body={"structured_outputs": {"json": schema}}).choices[0]
    return choice.text, choice.finish_reason


@pytest.mark.timeout(1800)
def test_what_ends_is_valid(server):
    client = server.client()
    asked = [(schema, temperature) for schema in SCHEMAS for temperature in TEMPERATURES]
    with concurrent.futures.ThreadPoolExecutor(8) as pool:
        answers = list(pool.map(lambda each: answer(client, *each[1], each[0]), enumerate(asked)))
    ended = 0
    for (schema, temperature), (text, finish) in zip(asked, answers):
        assert finish in ("stop", "length"), (schema, temperature, finish, text)
        if finish == "stop":
            ended += 1
            jsonschema_rs.validator_for(schema, validate_formats=True).validate(json.loads(text))
    assert ended >= 0.95 * len(asked), f"{ended} of {len(asked)} answers ended"
