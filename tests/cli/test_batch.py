"""headrace batch: a file of requests, killed and started again."""

import json
import math
import pathlib
import random
import signal
import time

import pytest

TINY_ENCODER = pathlib.Path(__file__).resolve().parents[1] / "data/encoders/bert"


def request(number):
    body = {"messages": [{"role": "user", "content": f"Count to {number}."}],
            "max_tokens": 3 + number % 7, "temperature": 0, "ignore_eos": True}
    return json.dumps({"custom_id": f"request-{number}", "method": "POST",
                       "url": "/v1/chat/completions", "body": body})


def answers(path):
    found = {}
    for line in path.read_text().splitlines():
        answer = json.loads(line)
        assert answer["custom_id"] not in found, "answered twice"
        found[answer["custom_id"]] = answer
    return found


def texts(found):
    return {name: answer["response"]["body"]["choices"][0]["message"]["content"]
            for name, answer in found.items()}


def test_a_killed_job_loses_and_repeats_nothing(program, model, tmp_path):
    requests, killed, whole = (tmp_path / name for name in ("in.jsonl", "killed", "whole"))
    requests.write_text("".join(request(i) + "\n" for i in range(60)))
    # Where it stops decides which requests share a step: only so are the texts of both the same on AMX.
    flags = ("-m", model, "--batch-invariant")
    program.run("batch", requests, "-o", whole, *flags, check=0)
    expected = texts(answers(whole))
    assert len(expected) == 60

    moments = random.Random(7)
    for _ in range(6):
        process = program.start("batch", requests, "-o", killed, *flags)
        time.sleep(moments.uniform(0.1, 0.5))
        process.send_signal(signal.SIGKILL)
        process.wait()
    program.run("batch", requests, "-o", killed, *flags, check=0)
    assert texts(answers(killed)) == expected


@pytest.mark.timing
def test_an_interrupted_job_says_so_and_goes_on(program, model, tmp_path):
    requests, output = tmp_path / "in.jsonl", tmp_path / "out.jsonl"
    requests.write_text("".join(request(i) + "\n" for i in range(300)))
    process = program.start("batch", requests, "-o", output, "-m", model)
    while not output.exists() or output.stat().st_size == 0:
        assert process.poll() is None
        time.sleep(0.01)
    process.send_signal(signal.SIGINT)
    assert process.wait(timeout=30) == 130
    before = len(answers(output))
    assert 0 < before < 300
    done = program.run("batch", requests, "-o", output, "-m", model, check=0)
    assert f"300 requests: {before} answered before" in done.stderr.decode()
    assert len(answers(output)) == 300


def test_what_a_batch_refuses(program, model, tmp_path):
    requests = tmp_path / "in.jsonl"
    requests.write_text(request(1) + "\nnonsense\n")
    message = program.error("batch", requests, "-o", tmp_path / "out", "-m", model)
    assert "in.jsonl: line 2" in message
    assert "in2.jsonl" in program.error("batch", tmp_path / "in2.jsonl", "-o", tmp_path / "out",
                                        "-m", model)


def embedding_request(name, ids):
    return json.dumps({"custom_id": name, "method": "POST", "url": "/v1/embeddings", "body": {"input": ids, "encoding_format": "float"}}) + "\n"


def test_vectors_of_a_file_are_those_of_the_model(program, tmp_path):
    cases = json.loads((TINY_ENCODER / "vectors.json").read_text())
    requests, output = tmp_path / "in.jsonl", tmp_path / "out.jsonl"
    requests.write_text("".join(embedding_request(f"e{i}", case["ids"]) for i, case in enumerate(cases[:-1])))
    program.run("batch", requests, "-o", output, "-m", TINY_ENCODER, "--dtype", "float32", check=0)
    # The last line came later: what is there is kept, byte for byte.
    before = output.read_bytes()
    requests.write_text(requests.read_text() + embedding_request(f"e{len(cases) - 1}", cases[-1]["ids"]))
    done = program.run("batch", requests, "-o", output, "-m", TINY_ENCODER, "--dtype", "float32", check=0)
    assert f"{len(cases)} requests: {len(cases) - 1} answered before, 1 now, 0 of them refused" in done.stderr.decode()
    assert output.read_bytes().startswith(before)
    found = answers(output)
    assert len(found) == len(cases) > 2
    for i, case in enumerate(cases):
        body = found[f"e{i}"]["response"]["body"]
        norm = math.hypot(*case["first"])
        assert body["data"][0]["embedding"] == pytest.approx([value / norm for value in case["first"]], abs=2e-6)
        assert body["usage"]["prompt_tokens"] == len(case["ids"])


def test_a_route_that_the_model_does_not_serve_ends_the_job_before_it_begins(program, model, tmp_path):
    requests, output = tmp_path / "in.jsonl", tmp_path / "out.jsonl"
    requests.write_text(embedding_request("e0", [5]) + request(1) + "\n")
    message = program.error("batch", requests, "-o", output, "-m", TINY_ENCODER)
    assert "in.jsonl: custom_id request-1: /v1/chat/completions: the model makes vectors or scores, no texts" in message
    message = program.error("batch", requests, "-o", output, "-m", model)
    assert "custom_id e0: /v1/embeddings: the model makes texts, no vectors (with --embedding it does)" in message
    assert output.read_bytes() == b""
    requests.write_text(embedding_request("e0", [5]))
    program.run("batch", requests, "-o", output, "-m", model, "--embedding", check=0)
    assert len(answers(output)["e0"]["response"]["body"]["data"][0]["embedding"]) == 576
