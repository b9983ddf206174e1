"""bench/tables.py and figure.py: tables are those of the rows, and what may not stand in a table is refused."""

import copy
import json
import pathlib
import subprocess
import sys

import pytest
from conftest import ROOT

WORK = {
    "machine": "a machine", "date": "2026-11-22", "model": "a model", "lengths": "8 × 128 in, 256 out", "flags": "default",
    "unit": "ms",
}  # fmt: skip
PEER = {"program": "vLLM", "commit": "0.22.0", "command": "LLM.generate", **WORK, "n": 1, "median": 5.0, "min": 5.0, "max": 5.0}
ROW = {
    "bench": "step", "commit": "3ec99cb", "command": "headrace bench latency", **WORK,
    "n": 3, "median": 4.0, "min": 3.9, "max": 4.4, "samples": [4.4, 3.9, 4.0], "one_run": False, "peer": PEER,
}  # fmt: skip
TABLE = """
[[table]]
name = "steps"
title = "step, ms"
columns = [{ head = "Headrace" }, { head = "vLLM", show = "peer" }, { head = "ratio", show = "ratio" }]
rows = [{ label = "batch 8", match = { bench = "step" } }]
"""


def tables(root, *arguments):
    return subprocess.run(
        [sys.executable, str(ROOT / "bench/tables.py"), "--root", str(root), *arguments], capture_output=True, text=True
    )


@pytest.fixture
def tree(tmp_path):
    """A repository with one table of one row; write(row) writes the row and makes the table anew."""
    (tmp_path / "bench/results").mkdir(parents=True)
    (tmp_path / "docs").mkdir()
    (tmp_path / "bench/tables.toml").write_text(TABLE)
    (tmp_path / "README.md").write_text("before\n\n<!-- table: steps -->\n<!-- end -->\n\nbehind\n")
    write(tmp_path, ROW)
    return tmp_path


def write(root, *rows):
    lines = "".join(json.dumps(row) + "\n" for row in rows)
    (root / "bench/results/rows.jsonl").write_text(lines)


def changed(**fields):
    """ROW with other fields; `peer__flags` is one of the peer, None takes a field away."""
    row = copy.deepcopy(ROW)
    for name, value in fields.items():
        side, name = (row["peer"], name[6:]) if name.startswith("peer__") else (row, name)
        side[name] = value
        if value is None:
            del side[name]
    return row


def test_the_tables_of_this_repository_are_those_of_its_rows():
    done = tables(ROOT, "--check")
    assert done.returncode == 0, done.stdout + done.stderr


def test_the_plots_of_this_repository_are_those_of_its_rows():
    done = subprocess.run([sys.executable, "-I", "-S", str(ROOT / "bench/plots/measured.py"), "--check"], capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr


def test_a_table_says_what_it_is_of(tree):
    assert tables(tree).returncode == 0
    text = (tree / "README.md").read_text()
    assert "| batch 8 | 8 × 128 in, 256 out | 4.00 (3.90–4.40, n 3) | 5.00 (once) | 1.25 × (n 3 and 1) |" in text
    caption = " ".join(text.split())
    assert "Commit 3ec99cb; a machine; 2026-11-22; flags: default." in caption
    assert "Beside vLLM (0.22.0), same lengths and flags, **not in one run** (a machine, 2026-11-22)." in caption
    assert max(len(line) for line in text.split("\n") if not line.startswith("|")) <= 120
    assert text.startswith("before\n") and text.endswith("\nbehind\n")
    assert tables(tree, "--check").returncode == 0


PLAIN_TABLE = """
[[table]]
name = "steps"
title = "us"
rows_of = "rows.jsonl"
columns = [{ head = "plan", show = "plan" }]
rows = [{ label = "64 streams", match = { streams = 64 } }]
"""


def test_rows_that_are_no_figures_give_their_mean(tree):
    (tree / "bench/tables.toml").write_text(PLAIN_TABLE)
    row = {"commit": "3ec99cb", "machine": "a machine", "streams": 64}
    write(tree, {**row, "plan": 3.0}, {**row, "plan": 4.0}, {**row, "streams": 8, "plan": 9.0})
    assert tables(tree).returncode == 0
    text = (tree / "README.md").read_text()
    assert "| 64 streams | 3.50 |" in text
    assert "Commit 3ec99cb; a machine. Means of the rows of `bench/results/rows.jsonl`." in text
    write(tree, {**row, "commit": None, "plan": 3.0})
    assert "rows.jsonl:1: no commit" in tables(tree).stderr
    write(tree, {**row, "plan": "?"})
    assert "no plan in rows.jsonl:1" in tables(tree).stderr
    write(tree, {**row, "streams": 8})
    assert "no row matches" in tables(tree).stderr


def test_rounds_that_took_turns_give_the_ratio_its_spread(tree):
    write(tree, changed(one_run=True, peer__n=3, peer__min=4.0, peer__max=6.0, peer__samples=[4.0, 6.0, 5.0]))
    assert tables(tree).returncode == 0
    text = (tree / "README.md").read_text()
    assert "1.25 × (0.91–1.54, n 3)" in text
    assert "both sides taking turns in one run" in text


def test_a_table_that_differs_from_the_rows_fails_with_a_diff(tree):
    tables(tree)
    page = (tree / "README.md").read_text()
    (tree / "README.md").write_text(page.replace("4.00 (3.90", "3.00 (3.90"))
    done = tables(tree, "--check")
    assert done.returncode == 1
    assert "-| batch 8 | 8 × 128 in, 256 out | 3.00 (3.90" in done.stdout
    assert "+| batch 8 | 8 × 128 in, 256 out | 4.00 (3.90" in done.stdout
    assert "3.00 (3.90" in (tree / "README.md").read_text(), "--check must change nothing"


FAULTS = [
    (changed(commit=None), "rows.jsonl:1: no commit"),
    (changed(machine=None), "rows.jsonl:1: no machine"),
    (changed(command=""), "rows.jsonl:1: no command"),
    (changed(n=None, min=None, max=None), "rows.jsonl:1: no n, min, max"),
    (changed(peer__command=None), "rows.jsonl:1, peer: no command"),
    (changed(peer__n=None, peer__min=None, peer__max=None), "rows.jsonl:1, peer: no n, min, max"),
    (changed(one_run=None), "one_run must say"),
    (changed(peer__lengths="8 × 128 in, 128 out"), "lengths '8 × 128 in, 256 out' stands beside the peer's '8 × 128 in, 128 out'"),
    (changed(flags="--policy ljf-declared"), "flags '--policy ljf-declared' stands beside the peer's 'default'"),
    (changed(peer__model="another"), "model 'a model' stands beside the peer's 'another'"),
    (changed(median=4.5), "the median 4.5 is not between min 3.9 and max 4.4"),
    (changed(n=1, samples=None), "one run has no spread"),
    (changed(median=4.1), "median is 4.1, of the samples 4.0"),
    (changed(n=5), "n is 5, of the samples 3"),
    (changed(lengths=None), "table steps, batch 8, Headrace: no figure matches"),
]  # fmt: skip


@pytest.mark.parametrize("row, message", FAULTS, ids=[message for _, message in FAULTS])
def test_a_row_that_may_not_feed_a_table_is_named(tree, row, message):
    write(tree, row)
    done = tables(tree, "--check")
    assert done.returncode == 1
    assert message in done.stderr


def test_unlike_flags_stand_only_with_the_reason_printed(tree):
    write(tree, changed(flags="--policy fcfs", flags_alike="fcfs is its default"))
    assert tables(tree).returncode == 0
    assert "same lengths and flags (fcfs is its default)" in (tree / "README.md").read_text()


def test_a_new_row_names_a_commit_of_the_repository(tree):
    def git(*words):
        names = ("-c", "user.name=a", "-c", "user.email=a@example.com")
        return subprocess.run(["git", "-C", tree, *names, *words], capture_output=True, text=True, check=True).stdout

    new = changed(date="2026-12-01")
    write(tree, new)
    assert tables(tree).returncode == 0
    assert tables(tree, "--check").returncode == 0  # it is no repository, and cannot say
    git("init", "-q")
    git("commit", "-q", "--allow-empty", "-m", "a")
    refused = tables(tree, "--check")
    assert refused.returncode == 1
    assert "rows.jsonl:1: commit 3ec99cb is not in this repository" in refused.stderr
    write(tree, {**new, "commit": git("rev-parse", "--short", "HEAD").strip()})
    assert tables(tree).returncode == 0
    assert tables(tree, "--check").returncode == 0
    write(tree, ROW)  # of before
    assert tables(tree).returncode == 0
    assert tables(tree, "--check").returncode == 0


def test_the_newest_row_is_shown(tree):
    write(tree, changed(date="2026-11-23", commit="1234567"), ROW)
    assert tables(tree).returncode == 0
    assert "Commit 1234567;" in (tree / "README.md").read_text()


def test_regions_and_definitions_belong_together(tree):
    page = tree / "README.md"
    for text, message in [
        ("<!-- table: other -->\n<!-- end -->\n", "table other is not in bench/tables.toml"),
        ("<!-- table: steps -->\n", "has no end"),
        ("nothing\n", "no file has a region for steps"),
    ]:
        page.write_text(text)
        done = tables(tree, "--check")
        assert done.returncode == 1
        assert message in done.stderr


def test_simulated_steps_say_how_often_the_whole_state_was_read(tree):
    (tree / "bench/results/simulation.jsonl").write_text(json.dumps({"steps": 100}) + "\n")
    assert "simulation.jsonl:1: no check_every" in tables(tree, "--check").stderr


def test_standard_library_only():
    """`./test` runs it with the system's Python."""
    done = subprocess.run([sys.executable, "-I", "-S", str(ROOT / "bench/tables.py"), "--check"], capture_output=True)
    assert done.returncode == 0, done.stderr


LATENCY = {
    "commit": "abc1234", "model": "llama-8b", "batch": 8, "prompt": 128, "output": 256, "ttft_ms_p50": 30.0,
    "step_ms": {"median": 4.2, "min": 4.1, "max": 4.3}, "output_tokens_per_s": {"median": 1, "min": 1, "max": 1},
}  # fmt: skip


def figure(tmp_path, row, *command):
    (tmp_path / "log").write_text(json.dumps(row) + "\n")
    command = [
        sys.executable, str(ROOT / "bench/figure.py"), "--machine", "NVIDIA H200", "--beside", "vLLM",
        "--model", "llama-8b shape, bf16, dummy weights", "--log", str(tmp_path / "log"), "--output", str(tmp_path / "rows"),
        "--", "headrace", "bench", *command,
    ]  # fmt: skip
    return subprocess.run(command, capture_output=True, text=True)


def test_figure_makes_a_row_of_what_the_program_printed(tmp_path):
    done = figure(tmp_path, LATENCY, "latency", "-m", "llama-8b", "--device", "cuda", "-r", "5", "-o", "json")
    assert done.returncode == 0, done.stderr
    row = json.loads((tmp_path / "rows").read_text())
    assert (row["bench"], row["lengths"], row["flags"], row["unit"]) == ("step", "8 × 128 in, 256 out", "default", "ms")
    assert (row["n"], row["median"], row["min"], row["max"]) == (5, 4.2, 4.1, 4.3)
    assert (row["commit"], row["one_run"], row["peer"]["program"]) == ("abc1234", False, "vLLM")
    assert row["peer"]["lengths"] == row["lengths"]


def test_figure_refuses_a_peer_that_did_other_work(tmp_path):
    done = figure(tmp_path, LATENCY, "latency", "--max-num-seqs", "8", "-o", "json")
    assert done.returncode == 1
    assert "flags '--max-num-seqs 8' stands beside the peer's 'default'" in done.stderr
    done = figure(tmp_path, {**LATENCY, "output": 128}, "latency", "-o", "json")
    assert done.returncode == 1
    assert "no figure of vLLM with step, 8 × 128 in, 128 out" in done.stderr
    assert not (tmp_path / "rows").exists()


def test_figure_lets_nothing_stand_beside_declared_lengths(tmp_path):
    row = {
        "commit": "abc1234", "model": "llama-8b", "order": "lengths declared", "requests": 1000, "prompt_tokens": 222780,
        "output_tokens": 211066, "output_tokens_per_s": {"median": 14000, "min": 13900, "max": 14100},
    }  # fmt: skip
    done = figure(tmp_path, row, "throughput", "-o", "json")
    assert done.returncode == 1
    assert "flags 'default, lengths declared' stands beside the peer's 'default'" in done.stderr
    done = figure(tmp_path, {**row, "order": "order of arrival"}, "throughput", "-o", "json")
    assert done.returncode == 0, done.stderr


def test_compare_writes_figures(monkeypatch):
    """bench/peers/compare.py, with stand-ins for the two programs: every measure's row may feed a table."""
    monkeypatch.syspath_prepend(str(ROOT / "bench"))
    monkeypatch.syspath_prepend(str(ROOT / "bench/peers"))
    import compare
    import tables

    speeds = {"headrace": iter([100.0, 400.0, 410.0, 390.0] * 9), "peer": iter([90.0, 95.0] + [100.0, 120.0] * 99)}

    def stand_in(command):
        speed = next(speeds["headrace" if "headrace" in command[0] else "peer"]) if "ceilings" not in command else None
        text = f'[{{"avg_ts": {speed}}}]'
        if speed is None:
            text = "read 1 GiB 60.0 GB/s"
        elif "batched" in command[0]:
            text = f'{{"pl": {command[command.index("-npl") + 1]}, "speed_tg": {speed}}}'
        return compare.Run(compare.text_of(command), text.encode(), 0.03, 100 << 20)

    monkeypatch.setattr(compare, "run", stand_in)
    setting = compare.Setting("/models/x.gguf", 2, "/build/headrace", pathlib.Path("/peer"))
    for name, measure in compare.MEASURES.items():
        sides = compare.take_turns(measure, setting, 3)
        row = compare.figure(measure, setting, sides, ("llama.cpp", "a version"), compare.origin())
        tables.check_figure(tables.Figure(row, name))
        assert row["n"] == row["peer"]["n"] == 3
        assert row["command"].startswith("headrace ") and "/" not in row["command"]
        assert ("read_gb_per_s" in row) == (name == "decode")
        if name == "decode":
            assert (row["median"], row["peer"]["variant"], row["peer"]["median"]) == (400.0, "fa 1", 120.0)
