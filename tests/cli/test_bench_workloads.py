"""bench throughput, bench latency, bench ceilings: what they count and what they refuse."""

import json

import pytest


def rows(program, *arguments):
    return [json.loads(line) for line in program.text("bench", *arguments).splitlines()]


def test_throughput_counts_every_token(program, model, tmp_path):
    requests = [[5, 3], [17, 1], [2, 9], [40, 4]]
    mix = tmp_path / "mix.json"
    mix.write_text(json.dumps({"note": "lengths", "requests": requests}))
    (row,) = rows(program, "throughput", "-m", model, "--requests", mix, "-r", 2, "--no-warmup",
                  "-o", "json")
    assert row["requests"] == len(requests)
    assert row["prompt_tokens"] == sum(prompt for prompt, _ in requests)
    assert row["output_tokens"] == sum(output for _, output in requests)
    seconds = row["seconds"]
    assert 0 < seconds["min"] <= seconds["median"] <= seconds["max"]
    assert row["output_tokens_per_s"]["median"] == pytest.approx(
        row["output_tokens"] / seconds["median"], rel=0.5)
    # The prompts fit one step and the longest answer takes eight more; requests are handed in one by
    # one, so that a step may begin before the last of them.
    assert 9 <= row["steps"] < 9 + len(requests)


@pytest.mark.parametrize("policy, order", [
    (None, "order of arrival"),  # on a CPU no order ends a job sooner
    ("fcfs", "order of arrival"),
    ("ljf-declared", "lengths declared"),
    ("mlfq", "order of mlfq"),
])
def test_throughput_says_in_which_order(program, model, policy, order):
    flags = [] if policy is None else ["--policy", policy]
    command = ["throughput", "-m", model, "--device", "cpu", "--input-len", 4, "--output-len", 2,
               "--num-prompts", 3, "-r", 1, "--no-warmup", *flags]
    (row,) = rows(program, *command, "-o", "json")
    assert row["order"] == order
    assert row["batch_shape"].startswith(
        f"256 sequences at once, {row['max_num_batched_tokens']} tokens a step, {order} (")
    text = program.text("bench", *command).splitlines()
    assert text[0].split(maxsplit=1) == ["batch", row["batch_shape"]]
    assert text[1].split(maxsplit=1) == ["order", order]


def test_latency_has_a_row_a_batch(program, model):
    found = rows(program, "latency", "-m", model, "--batch-size", "1,3", "--input-len", 4,
                 "--output-len", 6, "-r", 1, "--no-warmup", "-o", "json")
    assert [row["batch"] for row in found] == [1, 3]
    assert all(row["step_ms"]["median"] > 0 and row["ttft_ms_p50"] > 0 for row in found)


def test_ceilings_are_positive_and_named(program):
    found = rows(program, "ceilings", "--sizes", "1M,4M", "-r", 1, "-o", "json")
    assert [row["of"] for row in found if row["ceiling"] == "read"] == ["1 MiB", "4 MiB"]
    assert all(row["value"] > 0 for row in found)


@pytest.mark.parametrize("content, said", [
    ("{}", "expected"),
    ("[]", "no requests"),
    ("[[3, 4], [0, 4]]", "request 1"),
    ("[[3, 4, 5]]", "request 0"),
    ("[[3, 4.5]]", "request 0"),
])
def test_a_bad_mix_is_refused_by_entry(program, model, tmp_path, content, said):
    mix = tmp_path / "mix.json"
    mix.write_text(content)
    message = program.error("bench", "throughput", "-m", model, "--requests", mix)
    assert said in message and "mix.json" in message


def test_a_missing_mix_is_named(program, model, tmp_path):
    assert "nowhere.json" in program.error("bench", "throughput", "-m", model, "--requests",
                                           tmp_path / "nowhere.json")


def test_a_report_that_cannot_be_written_is_told_before_the_run(program):
    message = program.error("bench", "serve", "--port", "1", "--report", "/no/such/folder/run.html")
    assert "--report /no/such/folder/run.html: cannot be written" in message
