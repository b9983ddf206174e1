"""Traces from files: replayed in virtual time, and refused by row where they are wrong."""

import json
import subprocess
import sys

import pytest

from conftest import ROOT

COLUMNS = "arrival,input,output,session\n"


def simulate(program, trace, *arguments):
    lines = program.text("bench", "simulate", "--trace", trace, "--format", "json", *arguments)
    return [json.loads(line) for line in lines.splitlines()]


def test_a_csv_file_is_replayed_by_every_policy_asked_for(program, tmp_path):
    trace = tmp_path / "t.csv"
    trace.write_text(COLUMNS + "0,160,8,a\n1,320,8,a\n2,160,8,b\n")
    rows = simulate(program, trace, "--policies", "fcfs,lpm")
    assert [row["policy"] for row in rows] == ["fcfs", "lpm"]
    for row in rows:
        assert row["requests"] == 3
        assert 2 < row["seconds"] < 3
        # The second turn finds the first one's 160 tokens, of 640 that were looked for.
        assert row["hit_rate"] == pytest.approx(160 / 640)


def test_the_same_rows_as_json_lines_give_the_same_report(program, tmp_path):
    csv, lines = tmp_path / "t.csv", tmp_path / "t.jsonl"
    csv.write_text("arrival,input,output\n0,100,8\n0.5,900,30\n")
    lines.write_text('{"timestamp": 9000, "input_length": 100, "output_length": 8}\n'
                     '{"timestamp": 9500, "input_length": 900, "output_length": 30}\n')
    found = [simulate(program, path)[0] for path in (csv, lines)]
    for row in found:
        del row["trace"], row["us_per_step"]
    assert found[0] == found[1]


def test_a_rate_squeezes_a_file(program, tmp_path):
    trace = tmp_path / "t.csv"
    trace.write_text("arrival,input,output\n" + "".join(f"{10 * i},64,4\n" for i in range(11)))
    assert simulate(program, trace)[0]["seconds"] == pytest.approx(100, abs=1)
    assert simulate(program, trace, "--rate", 11)[0]["seconds"] == pytest.approx(1, abs=0.2)
    assert simulate(program, trace, "--requests", 2)[0]["seconds"] == pytest.approx(10, abs=1)


@pytest.mark.parametrize("command", [("simulate",), ("serve", "--port", "9")])
@pytest.mark.parametrize("row, said", [
    ("1,many,3,", 'bad.csv, line 3: input is "many"'),
    ("1,5", "bad.csv, line 3: 2 fields, but the header has 4"),
    ("1,4000,3000,", "raise --max-model-len"),
])
def test_a_bad_row_is_named_before_anything_runs(program, tmp_path, command, row, said):
    trace = tmp_path / "bad.csv"
    trace.write_text(COLUMNS + "0,5,3,\n" + row + "\n")
    assert said in program.error("bench", *command, "--trace", trace)


def test_a_name_that_is_no_trace_is_refused_with_the_choices(program):
    message = program.error("bench", "simulate", "--trace", "nowhere.csv")
    assert "nowhere.csv" in message and "conversation" in message


def test_a_real_replay_and_its_simulation_are_laid_side_by_side(program, model, tmp_path):
    """How close they are is measured on a quiet machine (docs/simulator.md); here, that nothing is lost."""
    trace = tmp_path / "t.csv"
    trace.write_text("arrival,input,output,session\n"
                     + "".join(f"{0.05 * i},{40 + 9 * i},{6 + i % 5},{i % 3}\n" for i in range(12)))
    script = ROOT / "bench" / "simulator" / "against_real.py"
    done = subprocess.run([sys.executable, script, "-m", model, "--program", program.binary,
                           "--trace", trace, "--rate", "20", "--num-prompts", "12", "-o", "json"],
                          capture_output=True, text=True, env=program.environment, timeout=120)
    assert done.returncode == 0, done.stderr
    row = json.loads(done.stdout)
    assert row["requests"] == 12
    assert row["real"].keys() == row["simulated"].keys() == row["error"].keys()
    assert all(value > 0 for times in (row["real"], row["simulated"]) for value in times.values())
    assert row["step_cost"]["base"] + row["step_cost"]["per_decode"] > 0
    assert abs(row["error"]["output_tokens_per_s"]) < 0.6
