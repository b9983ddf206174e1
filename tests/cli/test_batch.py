"""headrace batch: a file of requests, killed and started again."""

import json
import random
import signal
import time

import pytest


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
