"""`headrace run` with the real model."""

import json
import os
import pty
import signal
import time

import pytest

QUESTION = "What is the capital of France?"


def answer(program, model, *arguments, **options):
    return json.loads(program.text("run", "-m", model, "--json", *arguments, **options))


def test_says_paris(program, model):
    assert "Paris" in program.text("run", "-m", model, "-p", QUESTION, "--temperature", "0")


def test_json_holds_text_tokens_usage_and_timings(program, model):
    report = answer(program, model, "-p", QUESTION, "-n", "8", "--ignore-eos")
    assert report["finish_reason"] == "length"
    assert len(report["tokens"]) == 8
    assert report["usage"]["completion_tokens"] == 8
    assert report["usage"]["total_tokens"] == report["usage"]["prompt_tokens"] + 8
    timings = report["timings"]
    assert timings["prompt_n"] == report["usage"]["prompt_tokens"]
    assert timings["predicted_n"] == 8
    for name in (
        "prompt_ms",
        "prompt_per_token_ms",
        "prompt_per_second",
        "predicted_ms",
        "predicted_per_token_ms",
        "predicted_per_second",
    ):
        assert timings[name] > 0, name


def test_prompt_may_come_from_stdin(program, model):
    by_flag = answer(program, model, "-p", QUESTION, "-n", "12")
    assert answer(program, model, "-n", "12", stdin=QUESTION + "\n")["tokens"] == by_flag["tokens"]
    by_dash = answer(program, model, "-p", "-", "-n", "12", stdin=QUESTION)
    assert by_dash["tokens"] == by_flag["tokens"]


def test_raw_leaves_the_template_out(program, model):
    templated = answer(program, model, "-p", "Once upon a time", "-n", "1")
    raw = answer(program, model, "--raw", "-p", "Once upon a time", "-n", "1")
    assert raw["usage"]["prompt_tokens"] == 4
    assert templated["usage"]["prompt_tokens"] > 20


def test_a_template_of_ones_own(program, model, tmp_path):
    text = "{% for m in messages %}{{ m['content'] }}{% endfor %}"
    path = tmp_path / "plain.jinja"
    path.write_text(text)
    raw = answer(program, model, "--raw", "-p", "Once upon a time", "-n", "4")
    for template in (text, str(path)):
        own = answer(program, model, "-p", "Once upon a time", "-n", "4", "--chat-template", template)
        assert own["usage"] == raw["usage"] and own["tokens"] == raw["tokens"]
    message = program.error("run", "-m", model, "-p", "x", "--chat-template", "{% for %}")
    assert "--chat-template" in message and "line 1" in message
    missing = ("--chat-template", "/nowhere.jinja")
    assert "/nowhere.jinja" in program.error("run", "-m", model, "-p", "x", *missing)


def test_users_cannot_write_control_tokens(program, model):
    plain = answer(program, model, "-p", "x", "-n", "1")["usage"]["prompt_tokens"]
    spelled = answer(program, model, "-p", "x<|im_end|>", "-n", "1")["usage"]["prompt_tokens"]
    assert spelled > plain + 1  # as one control token it would be plain + 1


def test_the_environment_may_name_the_model(program, model):
    program.environment["HEADRACE_MODEL"] = model
    try:
        assert "Paris" in program.text("run", "-p", QUESTION)
    finally:
        del program.environment["HEADRACE_MODEL"]


def test_same_seed_same_answer(program, model):
    flags = ["-p", "Tell me a story.", "-n", "24", "--temperature", "1"]
    first = answer(program, model, *flags, "--seed", "7")["tokens"]
    assert answer(program, model, *flags, "--seed", "7")["tokens"] == first
    assert answer(program, model, *flags, "--seed", "8")["tokens"] != first


def test_stop_text_is_left_out(program, model):
    report = answer(program, model, "-p", QUESTION, "--stop", "Paris")
    assert report["finish_reason"] == "stop"
    assert "Paris" not in report["text"]


def test_output_is_whole_characters(program, model):
    for limit in range(1, 9):
        done = program.run(
            "run", "-m", model, "--raw", "-p", "😀😃😄😁😆😅🤣😂", "-n", limit, check=0
        )
        done.stdout.decode("utf-8")  # raises on half a character


def test_prompt_too_long_names_both_numbers(program, model):
    message = program.error("run", "-m", model, "-p", "word " * 200, "--max-model-len", "64")
    assert "64" in message and "the prompt has 2" in message


def test_full_context_ends_with_length(program, model):
    report = answer(program, model, "-p", "Hi", "-n", "-1", "--ignore-eos", "--max-model-len", "64")
    assert report["finish_reason"] == "length"
    assert report["usage"]["total_tokens"] in (64, 65)  # the last token need not be computed


def test_closed_stdin_of_a_pipe_is_an_error(program, model):
    assert "empty" in program.error("run", "-m", model, stdin="\n")


@pytest.mark.timing
def test_interrupt_stops_the_answer(program, model):
    import subprocess

    child = program.start(
        "run", "-m", model, "-p", "Count to a thousand.", "-n", "-1", "--ignore-eos",
        stdout=subprocess.PIPE, stderr=subprocess.PIPE, stdin=subprocess.DEVNULL,
    )
    assert child.stdout.read(1)
    child.send_signal(signal.SIGINT)
    rest, error = child.communicate(timeout=20)
    assert child.returncode == 130
    assert error == b""
    rest.decode("utf-8", errors="strict")


@pytest.mark.timing
def test_text_arrives_while_the_model_writes(program, model):
    """On a terminal: text before the end, progress erased, the speed last."""
    pid, terminal = pty.fork()
    if pid == 0:
        os.execve(
            program.binary,
            [program.binary, "run", "-m", model, "-p", "Count to ten.", "-n", "40", "--ignore-eos"],
            program.environment,
        )
    arrivals, output = [], b""
    while True:
        try:
            piece = os.read(terminal, 4096)
        except OSError:
            break
        if not piece:
            break
        arrivals.append(time.monotonic())
        output += piece
    assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 0
    assert len(arrivals) > 10
    assert arrivals[-1] - arrivals[0] > 0.02
    assert b"tok/s" in output


def test_packed_weights_are_kept_and_used_by_the_next_start(program, model, tmp_path):
    arguments = ("-p", QUESTION, "-n", "8", "--temperature", "0", "--packed-cache-dir", tmp_path)
    first = answer(program, model, *arguments)["tokens"]
    files = list(tmp_path.iterdir())
    assert len(files) == 1 and files[0].stat().st_size > 50 << 20
    written = files[0].stat().st_ino
    assert answer(program, model, *arguments)["tokens"] == first
    assert [path.stat().st_ino for path in tmp_path.iterdir()] == [written]


def test_when_weights_are_packed_changes_no_token(program, model):
    arguments = ("-p", QUESTION, "-n", "8", "--temperature", "0", "--packed-cache", "off")
    at_use = answer(program, model, *arguments)["tokens"]
    assert answer(program, model, *arguments, "--pack-weights", "start")["tokens"] == at_use


def test_packed_weights_are_not_kept_where_the_environment_says_so(program, model, tmp_path):
    environment = {"HEADRACE_PACKED_CACHE": "off"}
    arguments = ("-p", QUESTION, "-n", "1", "--packed-cache-dir", tmp_path)
    program.text("run", "-m", model, *arguments, environment=environment)
    assert not list(tmp_path.iterdir())
    environment["HEADRACE_PACKED_CACHE"] = "sometimes"
    assert "off,auto,on" in program.error("run", "-m", model, *arguments, environment=environment)


def limited(program, limit, value, *arguments):
    """The program where a resource is short."""
    import resource
    import subprocess

    return subprocess.run(
        [program.binary, *map(str, arguments)], env=program.environment, capture_output=True, timeout=120,
        preexec_fn=lambda: resource.setrlimit(limit, (value, value)),
    )


def test_an_answer_does_not_need_room_for_packed_weights(program, model, tmp_path):
    import resource

    done = limited(
        program, resource.RLIMIT_FSIZE, 1 << 20,
        "run", "-m", model, "-p", QUESTION, "--packed-cache", "on", "--packed-cache-dir", tmp_path,
    )  # fmt: skip
    assert done.returncode == 0 and b"Paris" in done.stdout
    assert not list(tmp_path.iterdir())


def test_a_model_that_memory_cannot_hold_is_refused(program, tmp_path):
    """Before anything is allocated; the limit keeps the machine whole where it is not."""
    import resource

    config = {
        "architectures": ["LlamaForCausalLM"], "hidden_size": 65536, "intermediate_size": 262144,
        "num_hidden_layers": 1000, "num_attention_heads": 512, "num_key_value_heads": 512, "vocab_size": 300,
        "max_position_embeddings": 256,
    }  # fmt: skip
    (tmp_path / "config.json").write_text(json.dumps(config))
    done = limited(
        program, resource.RLIMIT_AS, 4 << 30,
        "run", "-m", tmp_path, "--load-format", "dummy", "--raw", "-p", "x",
    )  # fmt: skip
    assert done.returncode == 1 and done.stdout == b""
    message = done.stderr.decode()
    assert "need " in message and " GiB are free" in message and "--quantization" in message, message


@pytest.mark.parametrize(
    "flags, words",
    [
        (["unpacked"], "is of a GPU"),
        (["packed", "--dtype", "float32"], "exclude each other"),
        (["unpacked", "--quantization", "q8_0"], "is of a GPU"),
        (["both"], "not in"),
    ],
)
def test_block_weights_that_mean_nothing_are_an_error(program, model, flags, words):
    message = program.error("run", "-m", model, "-p", "x", "--device", "cpu", "--block-weights", *flags)
    assert "block-weights" in message and words in message, message


@pytest.mark.parametrize("flag, value", [("--kv-cache-memory-bytes", "90t"), ("--kv-offloading-size", 90000)])
def test_keys_and_values_that_need_more_memory_than_there_is_are_an_error(program, model, flag, value):
    message = program.error("run", "-m", model, "-p", "x", flag, value)
    assert " GiB are free" in message and f"lower {flag}" in message, message


def test_ranks_answer_as_one(program, model):
    """3 key heads on 2 ranks; more ranks than heads; every kind of memory and a type of one's own."""
    asked = ["-p", QUESTION, "-n", "16", "--temperature", "0"]
    whole = answer(program, model, *asked)
    for flags in (["--tp", "2"], ["--tensor-parallel-size", "12", "-t", "2"], ["-tp", "3", "--kv-memory", "contiguous"]):
        assert answer(program, model, *asked, *flags)["tokens"] == whole["tokens"], flags
    sums = ["--tp", "2", "--tensor-parallel-sums", "reduce"]
    assert answer(program, model, *asked, *sums)["tokens"] == answer(program, model, *asked, *sums)["tokens"]
    asked += ["--quantization", "q8_0", "--dtype", "auto"]
    assert answer(program, model, *asked, "--tp", "2")["tokens"] == answer(program, model, *asked)["tokens"]


@pytest.mark.parametrize(
    "flags, words",
    [
        (["--tp", "0"], "--tensor-parallel-size: 0 is outside 1 to 64"),
        (["--tp", "2", "--tensor-parallel-sums", "sum"], "--tensor-parallel-sums: sum not in {auto,gather,reduce}"),
        (["--tp", "2", "--pp", "2"], "--tensor-parallel-size does not go with --pipeline-parallel-size 2"),
    ],
)
def test_ranks_that_cannot_be_are_an_error(program, model, flags, words):
    assert words in program.error("run", "-m", model, "-p", "x", *flags)
