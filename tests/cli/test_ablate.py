"""bench ablate: rows on a real engine, rows that are simulated, and rows that there are not."""

import json

import pytest


def ablate(program, *arguments):
    lines = program.text("bench", "ablate", *arguments, "-o", "json", timeout=300).splitlines()
    return {(row["case"], row["what"]): row for row in map(json.loads, lines)}


def test_simulated_rows_have_a_spread_and_the_better_side_counts(program, model):
    rows = ablate(program, "S6", "-r", 1, "-m", model)
    assert len(rows) >= 2
    for row in rows.values():
        assert row["simulated"] and row["rounds"] == 1
        assert row["gain_min"] <= row["gain"] <= row["gain_max"]
    flooded = rows["beside a flooder, load 1.2", "first token p99"]
    assert flooded["gain"] == pytest.approx(flooded["off"] / flooded["on"])
    assert flooded["gain"] > 10
    in_time = rows["conversation, 22 a second", "in time"]
    assert in_time["gain"] == pytest.approx(in_time["on"] / in_time["off"])  # more is better


def test_a_prompt_that_was_sent_before_is_not_computed_again(program, model):
    rows = ablate(program, "C5", "-r", 1, "-m", model)
    again = rows["1024 tokens sent before", "first token"]
    assert not again["simulated"] and again["gain"] > 3
    assert rows["agentic, 20 a second", "first token p50"]["gain"] > 1


def test_what_does_not_exist_is_refused_with_the_rows_there_are(program, model):
    message = program.error("bench", "ablate", "S99", "-m", model)
    assert "no row 'S99'" in message and "K1" in message and "S8" in message


def test_what_needs_a_gpu_says_so(program, model):
    text = program.text("bench", "ablate", "S8", "-r", 1, "-m", model, "--device", "cpu")
    assert "nothing to overlap" in text
