"""The Python package with a real model: what vLLM's names promise, and the same tokens as the program's.

Run with the package installed (`pip install .`), HEADRACE_BINARY and HEADRACE_MODEL_SMOLLM2 as for tests/cli."""

import os
import pathlib
import subprocess
import threading
import time

import pytest

headrace = pytest.importorskip("headrace")
LLM, SamplingParams = headrace.LLM, headrace.SamplingParams

MODEL = os.environ.get("HEADRACE_MODEL_SMOLLM2", os.path.expanduser("~/.cache/headrace/models/SmolLM2-135M-Instruct.Q4_1.gguf"))
BINARY = os.environ.get("HEADRACE_BINARY", str(pathlib.Path(__file__).resolve().parents[2] / "build" / "headrace"))
GREEDY = SamplingParams(temperature=0, max_tokens=12)
PROMPTS = ["The capital of France is", "One, two, three,", "Water boils at"]


@pytest.fixture(scope="module")
def llm():
    if not os.path.exists(MODEL):
        pytest.skip(f"no model at {MODEL} (./test fetches it)")
    return LLM(MODEL, max_model_len=1024)


def test_answers_come_in_the_prompts_order(llm):
    outputs = llm.generate(PROMPTS, GREEDY)
    assert [output.prompt for output in outputs] == PROMPTS
    assert "Paris" in outputs[0].outputs[0].text
    for prompt, output in zip(PROMPTS, outputs):
        alone = llm.generate(prompt, GREEDY)[0]
        assert alone.outputs[0].token_ids == output.outputs[0].token_ids
        assert output.prompt_token_ids == llm.encode(prompt)
        assert output.outputs[0].finish_reason == "length" and len(output.outputs[0].token_ids) == 12
    assert len({output.request_id for output in outputs}) == len(PROMPTS)


def test_they_are_the_programs(llm):
    done = subprocess.run([BINARY, "run", "-m", MODEL, "--raw", "-p", PROMPTS[0], "-n", "12", "--temperature", "0"],
                          capture_output=True, check=True, text=True)
    assert llm.generate(PROMPTS[0], GREEDY)[0].outputs[0].text.strip() == done.stdout.strip()


def test_prompts_may_be_ids(llm):
    ids = llm.encode(PROMPTS[0])
    wanted = llm.generate(PROMPTS[0], GREEDY)[0].outputs[0].text
    for prompt in (ids, {"prompt_token_ids": ids}, {"prompt": PROMPTS[0]}):
        assert llm.generate(prompt, GREEDY)[0].outputs[0].text == wanted
    assert llm.generate([ids, ids], GREEDY)[1].outputs[0].text == wanted


def test_chat_and_stream(llm):
    messages = [{"role": "user", "content": "What is the capital of France?"}]
    answer = llm.chat(messages, GREEDY)[0].outputs[0]
    assert "Paris" in answer.text
    pieces = list(llm.stream(messages, GREEDY))
    assert len(pieces) > 1 and "".join(pieces) == answer.text
    assert [each.outputs[0].text for each in llm.chat([messages, messages], GREEDY)] == [answer.text] * 2


def test_a_stream_that_is_left_ends_its_answer(llm):
    long = SamplingParams(temperature=0, max_tokens=900, ignore_eos=True)
    begun = time.monotonic()
    for _ in llm.stream(PROMPTS[1], long):
        break
    llm.generate(PROMPTS[0], SamplingParams(temperature=0, max_tokens=2))
    left = time.monotonic() - begun
    begun = time.monotonic()
    llm.generate(PROMPTS[1], long)
    assert left < (time.monotonic() - begun) / 2


def test_sampling(llm):
    warm = dict(temperature=1.0, max_tokens=8)
    first, second = (llm.generate(PROMPTS[0], SamplingParams(seed=7, **warm))[0].outputs[0].text for _ in range(2))
    assert first == second
    choices = llm.generate(PROMPTS[0], SamplingParams(n=3, seed=7, **warm))[0].outputs
    assert [choice.index for choice in choices] == [0, 1, 2] and len({choice.text for choice in choices}) > 1
    stopped = llm.generate(PROMPTS[1], SamplingParams(temperature=0, max_tokens=40, stop=["seven"]))[0].outputs[0]
    assert "six" in stopped.text and "seven" not in stopped.text and stopped.finish_reason == "stop"
    two = llm.generate(PROMPTS[:2], [SamplingParams(temperature=0, max_tokens=1), SamplingParams(temperature=0, max_tokens=3)])
    assert [len(output.outputs[0].token_ids) for output in two] == [1, 3]


def test_more_prompts_than_the_queue_holds(llm):
    outputs = llm.generate([f"{number} plus" for number in range(300)], SamplingParams(temperature=0, max_tokens=1))
    assert len(outputs) == 300 and all(len(output.outputs[0].token_ids) == 1 for output in outputs)


def test_other_threads_run_meanwhile(llm):
    counted = 0
    over = threading.Event()

    def count():
        nonlocal counted
        while not over.is_set():
            counted += 1
            time.sleep(0.001)

    thread = threading.Thread(target=count)
    thread.start()
    llm.generate(PROMPTS, SamplingParams(temperature=0, max_tokens=60, ignore_eos=True))
    over.set()
    thread.join()
    assert counted > 20


def test_mistakes_are_named(llm):
    with pytest.raises(RuntimeError, match="/no/such.gguf"):
        LLM("/no/such.gguf")
    with pytest.raises(ValueError, match="no-such-flag"):
        LLM(MODEL, no_such_flag=1)
    with pytest.raises(ValueError, match="--max-model-len"):
        LLM(MODEL, max_model_len="many")
    with pytest.raises(ValueError, match="temperature is -1"):
        SamplingParams(temperature=-1)
    with pytest.raises(ValueError, match="prompt"):
        llm.generate("x " * 3000, GREEDY)
    with pytest.raises(ValueError, match="one for all"):
        llm.generate(PROMPTS, [GREEDY])
