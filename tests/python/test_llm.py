"""LLM with a real model: what vLLM's names promise, and the same tokens as the program's."""

import math
import signal
import subprocess
import sys
import threading
import time
import types

import numpy
import pytest

import headrace
from headrace import LLM, BeamSearchParams, SamplingParams

from conftest import BINARY, MODEL, need

GREEDY = SamplingParams(temperature=0, max_tokens=12)
PROMPTS = ["The capital of France is", "One, two, three,", "Water boils at"]

# https://docs.vllm.ai/en/latest/getting_started/quickstart.html, with the model's name and the import changed.
QUICKSTART = f"""
from headrace import LLM, SamplingParams

prompts = [
    "Hello, my name is",
    "The president of the United States is",
    "The capital of France is",
    "The future of AI is",
]
sampling_params = SamplingParams(temperature=0.8, top_p=0.95)
llm = LLM(model={MODEL!r})
outputs = llm.generate(prompts, sampling_params)

for output in outputs:
    prompt = output.prompt
    generated_text = output.outputs[0].text
    print(f"Prompt: {{prompt!r}}, Generated text: {{generated_text!r}}")
"""


def test_vllms_quickstart():
    need(MODEL)
    done = subprocess.run([sys.executable, "-c", QUICKSTART], capture_output=True, check=True, text=True, timeout=120)
    lines = done.stdout.splitlines()
    assert len(lines) == 4 and lines[2].startswith("Prompt: 'The capital of France is', Generated text: '")
    assert all(len(line.split("Generated text: ")[1]) > 10 for line in lines)


def test_answers_come_in_the_prompts_order(llm):
    outputs = llm.generate(PROMPTS, GREEDY)
    assert [output.prompt for output in outputs] == PROMPTS
    assert "Paris" in outputs[0].outputs[0].text
    for prompt, output in zip(PROMPTS, outputs):
        alone = llm.generate(prompt, GREEDY)[0]
        assert alone.outputs[0].token_ids == output.outputs[0].token_ids
        assert alone.outputs[0].text == output.outputs[0].text == llm.get_tokenizer().decode(output.outputs[0].token_ids)
        assert output.prompt_token_ids == llm.get_tokenizer().encode(prompt)
        assert output.outputs[0].finish_reason == "length" and len(output.outputs[0].token_ids) == 12
        assert output.finished and output.outputs[0].finished()
    assert len({output.request_id for output in outputs}) == len(PROMPTS)
    assert llm.generate([], GREEDY) == []


def test_they_are_the_programs(llm):
    done = subprocess.run([need(BINARY), "run", "-m", MODEL, "--raw", "-p", PROMPTS[0], "-n", "12", "--temperature", "0"],
                          capture_output=True, check=True, text=True)
    assert llm.generate(PROMPTS[0], GREEDY)[0].outputs[0].text.strip() == done.stdout.strip()


def test_prompts_may_be_ids(llm):
    ids = llm.get_tokenizer().encode(PROMPTS[0])
    wanted = llm.generate(PROMPTS[0], GREEDY)[0].outputs[0].text
    for prompt in (ids, tuple(ids), numpy.array(ids), {"prompt_token_ids": ids}, {"prompt": PROMPTS[0]}):
        assert [output.outputs[0].text for output in llm.generate(prompt, GREEDY)] == [wanted]
    for prompts in ([ids, ids], numpy.array([ids, ids]), (PROMPTS[0], ids)):
        assert [output.outputs[0].text for output in llm.generate(prompts, GREEDY)] == [wanted] * 2


def test_chat_and_stream(llm):
    messages = [{"role": "user", "content": "What is the capital of France?"}]
    output = llm.chat(messages, GREEDY)[0]
    answer = output.outputs[0]
    assert "Paris" in answer.text
    assert "What is the capital of France?<|im_end|>" in output.prompt and output.prompt.endswith("<|im_start|>assistant\n")
    pieces = list(llm.stream(messages, GREEDY))
    assert len(pieces) > 1 and "".join(pieces) == answer.text
    assert "".join(llm.stream(PROMPTS[1], GREEDY)) == llm.generate(PROMPTS[1], GREEDY)[0].outputs[0].text
    assert [each.outputs[0].text for each in llm.chat([messages, messages], GREEDY)] == [answer.text] * 2
    begun = [*messages, {"role": "assistant", "content": "It is the city of"}]
    goes_on = llm.chat(begun, GREEDY, continue_final_message=True)[0]
    assert goes_on.prompt.endswith("It is the city of") and "Paris" in goes_on.outputs[0].text


def test_an_answer_ends_by_itself(llm):
    output = llm.chat([{"role": "user", "content": "Say only: hello"}], SamplingParams(temperature=0, max_tokens=None))[0].outputs[0]
    assert output.finish_reason == "stop" and output.stop_reason is None and "<|im_end|>" not in output.text
    assert llm.get_tokenizer().decode(output.token_ids[-1:]) == "<|im_end|>"
    assert llm.get_tokenizer().decode(output.token_ids, skip_special_tokens=True) == output.text


def test_a_stream_that_is_left_ends_its_answer(llm):
    long = SamplingParams(temperature=0, max_tokens=400, ignore_eos=True)
    begun = time.monotonic()
    for _ in llm.stream(PROMPTS[1], long):
        break
    llm.generate(PROMPTS[0], SamplingParams(temperature=0, max_tokens=2))
    left = time.monotonic() - begun
    begun = time.monotonic()
    llm.generate(PROMPTS[1], long)
    assert left < (time.monotonic() - begun) / 2


def test_sampling(llm):
    warm = {"temperature": 1.0, "max_tokens": 8}
    first, second = (llm.generate(PROMPTS[0], SamplingParams(seed=7, **warm))[0].outputs[0].text for _ in range(2))
    assert first == second
    choices = llm.generate(PROMPTS[0], SamplingParams(n=3, seed=7, **warm))[0].outputs
    assert [choice.index for choice in choices] == [0, 1, 2] and len({choice.text for choice in choices}) > 1
    assert choices[0].text == first
    two = llm.generate(PROMPTS[:2], [SamplingParams(temperature=0, max_tokens=1), SamplingParams(temperature=0, max_tokens=3)])
    assert [len(output.outputs[0].token_ids) for output in two] == [1, 3]
    token = llm.get_tokenizer().encode(" Rome")[0]
    biased = llm.generate(PROMPTS[0], SamplingParams(temperature=0, max_tokens=1, logit_bias={token: 100}))[0].outputs[0]
    assert biased.token_ids == [token]


def test_stops(llm):
    stopped = llm.generate(PROMPTS[1], SamplingParams(temperature=0, max_tokens=40, stop=["seven"]))[0].outputs[0]
    assert "six" in stopped.text and "seven" not in stopped.text
    assert stopped.finish_reason == "stop" and stopped.stop_reason == "seven"
    kept = llm.generate(PROMPTS[1], SamplingParams(temperature=0, max_tokens=40, stop="seven", include_stop_str_in_output=True))[0]
    assert kept.outputs[0].text == stopped.text + "seven"
    token = stopped.token_ids[3]
    by_token = llm.generate(PROMPTS[1], SamplingParams(temperature=0, max_tokens=40, stop_token_ids=[token]))[0].outputs[0]
    assert by_token.stop_reason == token and by_token.token_ids[-1] == token


def test_log_probabilities(llm):
    output = llm.generate(PROMPTS[0], SamplingParams(temperature=0, max_tokens=5, logprobs=3, prompt_logprobs=0))[0]
    answer = output.outputs[0]
    assert len(answer.logprobs) == 5
    for token, entries in zip(answer.token_ids, answer.logprobs):
        best = max(entries.values(), key=lambda entry: entry.logprob)
        assert entries[token] is best and best.rank == 1 and len(entries) == 3
        assert sum(math.exp(entry.logprob) for entry in entries.values()) <= 1.0001
    assert "".join(entries[token].decoded_token for token, entries in zip(answer.token_ids, answer.logprobs)) == answer.text
    assert answer.cumulative_logprob == pytest.approx(sum(e[t].logprob for t, e in zip(answer.token_ids, answer.logprobs)))
    assert output.prompt_logprobs[0] is None and len(output.prompt_logprobs) == len(output.prompt_token_ids)
    for token, entries in zip(output.prompt_token_ids[1:], output.prompt_logprobs[1:]):
        assert list(entries) == [token] and entries[token].logprob < 0
    plain = llm.generate(PROMPTS[0], GREEDY)[0]
    assert plain.outputs[0].logprobs is None and plain.prompt_logprobs is None


def test_logits_are_log_probabilities_of_the_whole_vocabulary(llm):
    ids = llm.get_tokenizer().encode(PROMPTS[0])
    rows = llm.logits(PROMPTS[0])
    assert rows.dtype == numpy.float32 and rows.shape[0] == len(ids) and rows.shape[1] > max(ids)
    assert numpy.allclose(numpy.exp(rows.astype(numpy.float64)).sum(axis=1), 1, atol=1e-4)
    output = llm.generate(PROMPTS[0], SamplingParams(temperature=0, max_tokens=1, logprobs=5, prompt_logprobs=0))[0]
    for token, entry in output.outputs[0].logprobs[0].items():
        assert rows[-1, token] == entry.logprob
    assert int(rows[-1].argmax()) == output.outputs[0].token_ids[0]
    scored = [entries[token].logprob for token, entries in zip(ids[1:], output.prompt_logprobs[1:])]
    assert [float(rows[i, token]) for i, token in enumerate(ids[1:])] == pytest.approx(scored, abs=1e-6)
    assert (llm.logits(ids) == rows).all()  # from the prefix cache, or not
    with pytest.raises(ValueError, match="at most 67,108,864, so"):
        llm.logits([1] * 100_000)


def test_more_prompts_than_run_at_once(llm):
    outputs = llm.generate([f"{number} plus" for number in range(700)], SamplingParams(temperature=0, max_tokens=1))
    assert len(outputs) == 700 and all(len(output.outputs[0].token_ids) == 1 for output in outputs)


def test_tqdm_counts_answers(llm, monkeypatch):
    counts = []
    bar = types.SimpleNamespace(update=counts.append, close=lambda: counts.append("closed"))
    monkeypatch.setitem(sys.modules, "tqdm", types.SimpleNamespace(tqdm=lambda total, desc: counts.append(total) or bar))
    llm.generate(PROMPTS, GREEDY, use_tqdm=True)
    assert counts[0] == 3 and sum(counts[1:-1]) == 3 and counts[-1] == "closed"


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


def test_threads_share_a_model(llm):
    wanted = [output.outputs[0].text for output in llm.generate(PROMPTS, GREEDY)]
    found = [None] * 6

    def ask(at):
        found[at] = llm.generate(PROMPTS[at % 3], GREEDY)[0].outputs[0].text

    threads = [threading.Thread(target=ask, args=(at,)) for at in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert found == wanted * 2


@pytest.mark.timing
def test_control_c_ends_a_call():
    need(MODEL)
    script = f"""
import headrace, time
llm = headrace.LLM({MODEL!r})
print("ready", flush=True)
try:
    llm.generate(["One, two,"] * 300, headrace.SamplingParams(max_tokens=2000, ignore_eos=True))
except KeyboardInterrupt:
    print(llm.generate("The capital of France is", headrace.SamplingParams(temperature=0, max_tokens=4))[0].outputs[0].text)
"""
    child = subprocess.Popen([sys.executable, "-c", script], stdout=subprocess.PIPE, text=True)
    assert child.stdout.readline() == "ready\n"
    time.sleep(1)
    child.send_signal(signal.SIGINT)
    begun = time.monotonic()
    rest = child.communicate(timeout=60)[0]
    assert "Paris" in rest and child.returncode == 0
    assert time.monotonic() - begun < 30


def test_a_program_may_end_while_it_answers():
    need(MODEL)
    script = f"""
import headrace
llm = headrace.LLM({MODEL!r})
stream = llm.stream("One, two,", headrace.SamplingParams(max_tokens=2000, ignore_eos=True))
print(len(next(stream)) > 0)
"""
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, timeout=60)
    assert (done.returncode, done.stdout, done.stderr) == (0, "True\n", "")


def test_flags_of_vllm_are_taken():
    llm = LLM(need(MODEL), dtype="auto", trust_remote_code=True, enforce_eager=True, tensor_parallel_size=1, seed=0, quantization=None,
              gpu_memory_utilization=0.9, max_model_len=512, max_num_seqs=4, enable_prefix_caching=False, disable_log_stats=True)
    assert llm.max_model_len == 512
    first, second = llm.generate([PROMPTS[0] * 20] * 2, GREEDY)
    assert first.outputs[0].text == second.outputs[0].text and second.num_cached_tokens == 0


def test_a_models_seed_is_that_of_all_requests():
    def texts(seed):
        llm = LLM(need(MODEL), seed=seed, max_model_len=256)
        return [llm.generate(PROMPTS[0], SamplingParams(temperature=1.0))[0].outputs[0].text for _ in range(3)]

    first = texts(5)
    assert texts(5) == first and len(set(first)) > 1 and texts(6) != first


def test_the_suggested_sampling(llm):
    suggested = llm.get_default_sampling_params()
    assert suggested.max_tokens == 16 and 0 <= suggested.temperature <= 2
    assert len(llm.generate(PROMPTS[0])[0].outputs[0].token_ids) <= 16
    overridden = LLM(MODEL, max_model_len=256, override_generation_config={"temperature": 0.25})
    assert overridden.get_default_sampling_params().temperature == 0.25


def test_mistakes_are_named(llm):
    with pytest.raises(RuntimeError, match="/no/such.gguf") as refused:
        LLM("/no/such.gguf")
    assert "\n" not in str(refused.value)
    with pytest.raises(ValueError, match="no flag --no-such-flag .see .headrace run --help"):
        LLM(MODEL, no_such_flag=1)
    with pytest.raises(ValueError, match="--max-model-len"):
        LLM(MODEL, max_model_len="many")
    with pytest.raises(ValueError, match="temperature is -1"):
        SamplingParams(temperature=-1)
    with pytest.raises(ValueError, match="the context holds 1024"):
        llm.generate("x " * 3000, GREEDY)
    for fields, words in [({"max_tokens": 2.5}, "max_tokens is 2.5: must be an integer"), ({"min_tokens": 9, "max_tokens": 2}, "at most max_tokens"),
                          ({"logit_bias": {1: float("nan")}}, "logit_bias of token 1"), ({"logit_bias": {1: float("inf")}}, "logit_bias of token 1")]:  # fmt: skip
        with pytest.raises(ValueError, match=words):
            SamplingParams(**fields)
    for ids in ([1.5], [1, 2**31], ["a"]):
        with pytest.raises(ValueError, match="a prompt of token ids has|a prompt has the token id"):
            llm.generate([{"prompt_token_ids": ids}])
    assert SamplingParams(max_tokens=numpy.int64(3)).max_tokens == 3
    with pytest.raises(ValueError, match="the prompt is empty"):
        llm.generate([[]], GREEDY)
    with pytest.raises(ValueError, match="vocabulary"):
        llm.generate([10**6], GREEDY)
    with pytest.raises(ValueError, match="one for all"):
        llm.generate(PROMPTS, [GREEDY])
    with pytest.raises(ValueError, match="prompt_token_ids"):
        llm.generate({"text": "x"}, GREEDY)
    with pytest.raises(ValueError, match="gives no vectors"):
        llm.embed("x")
    with pytest.raises(TypeError):
        llm.generate(None, GREEDY)
    assert "Paris" in llm.generate(PROMPTS[0], GREEDY)[0].outputs[0].text  # it goes on


def test_the_version_is_the_programs():
    done = subprocess.run([need(BINARY), "--version"], capture_output=True, check=True, text=True)
    assert headrace.__version__ in done.stdout


def test_beam_search_finds_the_best_sequences_in_order(llm):
    params = BeamSearchParams(beam_width=4, max_tokens=8, ignore_eos=True)
    outputs = llm.beam_search([PROMPTS[0], {"prompt_token_ids": llm.get_tokenizer().encode(PROMPTS[0])}], params)
    sequences = outputs[0].sequences
    assert [each.tokens for each in outputs[1].sequences] == [each.tokens for each in sequences]
    assert len({tuple(each.tokens) for each in sequences}) == 4
    scores = [each.score for each in sequences]
    assert scores == sorted(scores, reverse=True)
    for each in sequences:
        assert each.cum_logprob == pytest.approx(8 * each.score)
        assert each.text.startswith(PROMPTS[0]) and each.finish_reason == "length"
    greedy = llm.generate(PROMPTS[0], SamplingParams(temperature=0, max_tokens=8, logprobs=0, ignore_eos=True))[0].outputs[0]
    assert sequences[0].cum_logprob >= greedy.cumulative_logprob - 1e-4


@pytest.mark.parametrize("change, words", [
    (dict(early_stopping="maybe"), "early_stopping must be True, False or"),
    (dict(beam_width=0), "n is 0"),
    (dict(beam_width=129), "n is 129"),
])
def test_a_beam_search_that_cannot_be_is_a_value_error(llm, change, words):
    with pytest.raises(ValueError, match=words):
        llm.beam_search(PROMPTS[0], BeamSearchParams(**{"beam_width": 2, "max_tokens": 4, **change}))
