"""bench/pairs.py: two programs in turns, and the interval of their ratio."""

import pathlib
import subprocess
import sys

import pytest
from conftest import ROOT

sys.path.insert(0, str(pathlib.Path(ROOT) / "bench"))
import pairs


def test_an_interval_holds_the_ratio_and_narrows_with_pairs():
    old = [100.0, 102.0, 98.0, 101.0] * 4
    new = [value * factor for value, factor in zip(old, [1.02, 1.04, 1.03, 1.03] * 4)]
    mean, low, high = pairs.ratio(old, new)
    assert low < 1.03 < high and abs(mean - 1.03) < 0.002
    _, few_low, few_high = pairs.ratio(old[:4], new[:4])
    assert few_high - few_low > high - low
    assert pairs.ratio([1.0], [2.0])[1:] == (0.0, float("inf"))


def test_figures_of_each_command():
    assert pairs.figures('[{"n_prompt": 512, "n_gen": 0, "avg_ts": 7.5}]') == {"512 in, 0 out, tok/s": 7.5}
    lines = '{"batch": 8, "step_ms": {"median": 4.5}}\n{"output_tokens_per_s": {"median": 99.0}}\nnoise'
    assert pairs.figures(lines) == {"step at batch 8, ms": 4.5, "output tok/s": 99.0}


@pytest.fixture
def program(tmp_path):
    def make(name, speed):
        path = tmp_path / name
        path.write_text(f"#!/bin/sh\necho {name} >> {tmp_path}/order\n"
                        f"echo '{{\"output_tokens_per_s\": {{\"median\": {speed}}}}}'\n")  # fmt: skip
        path.chmod(0o755)
        return path

    return make


def test_programs_take_turns_and_their_ratio_is_printed(program, tmp_path):
    command = [sys.executable, f"{ROOT}/bench/pairs.py", program("old", 100), program("new", 110), "-n", "3", "--", "bench"]
    done = subprocess.run(command, capture_output=True, text=True)
    assert done.stdout == "output tok/s: 100 -> 110, new / old 1.1000 (1.1000–1.1000, n 3)\n", done.stderr
    assert (tmp_path / "order").read_text().split() == ["old", "new", "new", "old", "old", "new"]


def test_a_program_that_fails_is_named(program, tmp_path):
    broken = tmp_path / "broken"
    broken.write_text("#!/bin/sh\necho no model >&2\nexit 3\n")
    broken.chmod(0o755)
    done = subprocess.run([sys.executable, f"{ROOT}/bench/pairs.py", broken, program("new", 1), "--", "bench"],
                          capture_output=True, text=True)  # fmt: skip
    assert done.returncode == 1 and "exit status 3" in done.stderr and "no model" in done.stderr
