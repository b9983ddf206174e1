"""bench edge: its rows, with either vocabulary, and what it refuses."""

import json

import pytest


def rows(program, *arguments):
    return [json.loads(line) for line in program.text("bench", "edge", *arguments, "-o", "json").splitlines()]


def test_every_measure_with_and_without_tls(program):
    found = rows(program, "--streams", 5, "--steps", 40, "--steps-per-second", 400, "-r", 2)
    assert [(row["measure"], row["tls"]) for row in found] == [
        (measure, tls) for measure in ("throughput", "latency", "burst") for tls in (False, True)]
    for row in found:
        assert row["tokens_per_second"] * row["seconds"] == pytest.approx(5 * 40, rel=0.2)
        assert row["seconds"] >= 39 / 400
        assert 0 < row["delay_ms_p50"] <= row["delay_ms_p99"] <= row["delay_ms_max"]
        assert row["burst_ms_min"] <= row["burst_ms_p50"] <= row["burst_ms_max"]
        assert row["server_cpu_seconds"] > 0 and row["client_cpu_seconds"] > 0
        assert all(len(values) == row["n"] == 2 for values in row["samples"].values())


@pytest.mark.parametrize("route", ["chat", "completions"])
def test_a_models_own_words(program, model, route):
    (row,) = rows(program, "--measure", "throughput", "--tls", "off", "-m", model, "--route", route,
                  "--streams", 3, "--steps", 60, "-r", 1)
    assert (row["route"], row["streams"], row["steps"]) == (route, 3, 60)
    assert row["vocabulary"] != "made-up words"


def test_what_cannot_be_measured_is_refused(program):
    for flags, word in ((("--streams", 0), "--streams"), (("--measure", "speed"), "--measure"),
                        (("--steps-per-second", -1), "--steps-per-second"),
                        (("-m", "/no/such/model.gguf"), "/no/such/model.gguf")):
        done = program.run("bench", "edge", *flags)
        assert done.returncode != 0
        assert word in done.stderr.decode()
