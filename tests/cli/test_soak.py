"""scripts/gpu_soak.py on the CPU: green on a right server, red on what is planted."""

import argparse
import copy
import json
import pathlib
import stat
import subprocess
import sys

import pytest
from conftest import BINARY, ROOT

sys.path.insert(0, str(ROOT / "scripts"))
import gpu_soak
import soak_check
import soak_models
import soak_requests
import soak_server

SMALL = soak_models.Shape("small", "llama", 4, 2, 64, 128, 512)


def options(tmp_path, **other):
    given = {
        "headrace": BINARY, "device": "cpu", "seed": "1", "requests": 40, "seconds": 0.5, "patience": 60, "threads": 1,
        "scratch": str(tmp_path), "long": 0, "beside": False,
    }  # fmt: skip
    return argparse.Namespace(**{**given, **other})


def flags(name):
    return next(flags for flags in soak_models.FLAGS if flags.name == name)


def start(tmp_path, shape, flag_name, **other):
    return gpu_soak.Start(options(tmp_path, **other), 0, shape, flags(flag_name)).run()


def answer(tokens, finish="length"):
    tops = [{f"token:{token}": -1.0, "token:900": -1.5, "token:901": -2.0} for token in tokens]
    return [{"tokens": list(tokens), "chosen": [-1.0] * len(tokens), "tops": tops, "finish": finish}]


def problem(ours, theirs, exact):
    return soak_check.compare(ours, theirs, exact).problem


@pytest.mark.parametrize("exact", [True, False])
def test_equal_answers_are_right(exact):
    check = soak_check.compare(answer([1, 2, 3]), answer([1, 2, 3]), exact)
    assert (check.problem, check.tokens, check.worst) == ("", 3, 0.0)


def test_exact_answers_differ_by_a_bit():
    for change in ({"chosen": [-1.0, -1.0000001]}, {"tokens": [1, 3]}, {"finish": "stop"}):
        ours = answer([1, 2])
        ours[0].update(change)
        assert next(iter(change)) in problem(ours, answer([1, 2]), exact=True)


def test_near_answers_may_part_where_their_distributions_agree():
    ours, theirs = answer([1, 2, 3]), answer([1, 2, 3])
    ours[0]["tokens"][1], ours[0]["tokens"][2] = 900, 7  # drawn from what is nearly the same
    assert problem(ours, theirs, exact=False) == ""
    assert "tokens differ" in problem(ours, theirs, exact=True)
    ours[0]["tops"][2] = {"token:5": -0.1}  # behind the first difference: another context
    assert problem(ours, theirs, exact=False) == ""


def test_near_answers_are_wrong_at_the_first_token_that_differs():
    ours, theirs = answer([1, 2, 3]), answer([1, 2, 3])
    ours[0]["tokens"][0] = 7
    ours[0]["tops"][0] = {"token:7": -0.2, "token:900": -1.5, "token:901": -2.0}
    assert "position 0: ln p of token:7" in problem(ours, theirs, exact=False)


def test_near_answers_are_wrong_where_one_ln_p_is():
    ours = answer([1, 2, 3])
    ours[0]["tops"][2]["token:900"] -= 0.2
    assert "position 2: ln p of token:900" in problem(ours, answer([1, 2, 3]), exact=False)
    assert "2 tokens" in problem(answer([1, 2]), answer([1, 2, 3]), exact=False)
    assert "1 choices, alone 2" in problem(answer([1]), answer([1]) * 2, exact=False)


def test_a_drawn_token_far_behind_the_best_is_no_measure_of_them():
    ours, theirs = answer([1]), answer([1])
    theirs[0]["tops"][0] = {"token:1": -1.0, "token:900": -1.5, "token:77": -9.0}
    ours[0]["tops"][0] = {"token:1": -1.0, "token:900": -1.5, "token:902": -1.55}
    assert problem(ours, theirs, exact=False) == ""


def test_memory_that_grows_in_the_last_third_is_told():
    flat = [{"seconds": i, "rss_mib": 100.0 + 50 * min(i, 40), "gpu_mib": None} for i in range(90)]
    assert soak_check.growth(flat) == []
    leaking = [{**sample, "rss_mib": sample["rss_mib"] + sample["seconds"]} for sample in flat]
    assert "rss_mib grew" in soak_check.growth(leaking)[0]
    assert soak_check.growth(flat[:6]) == ["too few samples of memory"]


def test_what_grew_is_named():
    smaps = """7f0000100000-7f0000500000 rw-p 00000000 00:00 0
Rss:                2048 kB
7f0004000000-7f0004400000 rw-p 00000000 00:00 0
Rss:                3072 kB
7f1000000000-7f1000400000 r--p 00000000 08:01 42   /usr/lib/libcuda.so.1
Rss:                1024 kB
55d000000000-55d000100000 rw-p 00000000 00:00 0    [heap]
Rss:                 512 kB
"""
    before = soak_server.mappings_of(smaps.splitlines())
    assert before == {"mappings of 4 MiB": 2, "heaps of threads": 3, "libcuda.so.1": 1, "[heap]": 0.5}
    after = soak_server.mappings_of(smaps.replace(" 1024 kB", "90112 kB").splitlines())
    assert soak_check.grown(before, after) == "libcuda.so.1 +87 MiB"


def test_every_pair_of_shape_and_flags_comes_before_one_comes_again():
    at = soak_models.plan("1", [], [], "cuda", 2)
    pairs = [at(number) for number in range(600)]
    assert len({shape.name for shape, _ in pairs}) >= 15 and len({flags.name for _, flags in pairs}) >= 12
    assert pairs == [soak_models.plan("1", [], [], "cuda", 2)(number) for number in range(600)]
    assert all(16 * shape.token_bytes() >= 2 << 20 for shape, flags in pairs if flags.name == "virtual")
    assert all(soak_models.plan("1", [], [], "cuda", 1)(number)[1].ranks == 1 for number in range(600))
    with pytest.raises(SystemExit, match="no nonsense"):
        soak_models.plan("1", ["nonsense"], [], "cuda", 2)


@pytest.fixture
def small(program):
    """`program` skips the test where there is none."""
    return SMALL


@pytest.mark.parametrize("flag_name", ["default", "invariant-swap", "seccomp"])
def test_a_right_server_is_green(small, tmp_path, flag_name):
    line = start(tmp_path, small, flag_name)
    assert line["outcome"] == "ok", line
    assert line["requests"] >= 40 and line["tokens"] > 300 and line["alone"] == 20
    if flag_name == "invariant-swap":
        assert line["pages_stored"] > 0 and line["pages_loaded"] > 0


def test_a_wrong_context_is_red(small, tmp_path, monkeypatch):
    """As if a page of the prompt were another's: its tokens differ beside others, and not alone."""
    send = soak_requests.send

    def planted(port, case, random, flags, abort=None):
        if abort is not None and case.name == "long":
            case = copy.deepcopy(case)
            case.body["prompt"][-48:-32] = range(16, 32)
        return send(port, case, random, flags, abort)

    monkeypatch.setattr(soak_requests, "send", planted)
    for flag_name in ("default", "invariant"):
        line = start(tmp_path, small, flag_name)
        assert line["outcome"] == "wrong" and line["messages"][0].startswith("wrong: long: "), line


def test_a_server_that_dies_is_red(small, tmp_path):
    wrapper = tmp_path / "dies"
    wrapper.write_text(f'#!/bin/sh\n(sleep 2; kill -ABRT $$) &\nexec "{BINARY}" "$@"\n')
    wrapper.chmod(wrapper.stat().st_mode | stat.S_IEXEC)
    line = start(tmp_path, small, "default", headrace=str(wrapper), seconds=6)
    assert line["outcome"] == "crash" and "ended with -6" in line["messages"][0], line


def test_a_refusal_is_no_start(small, tmp_path):
    odd = soak_models.Shape("odd", "llama", 4, 2, 63, 128, 512)
    line = start(tmp_path, odd, "default")
    assert line["outcome"] == "refused" and "head size 63 is odd" in line["refusal"], line
    assert gpu_soak.summary([line])["summary"] == "red"  # no start at all


def test_pressure_that_is_missing_is_red(small, tmp_path):
    roomy = copy.copy(flags("invariant-swap"))
    roomy.pool = soak_models.MODEL_LEN * soak_models.SEQS
    line = gpu_soak.Start(options(tmp_path), 0, small, roomy).run()
    assert line["outcome"] == "pressure" and "pages_stored" in line["messages"][0], line


def test_a_long_run_checks_answers_and_memory(small, tmp_path, monkeypatch):
    monkeypatch.setattr(soak_models, "SHAPES", [small])
    # A server is still growing into its buffers in its first six seconds; growth() itself is tested above.
    monkeypatch.setattr(soak_check, "GROWTH_MIB", 1024.0)
    out = tmp_path / "long.jsonl"
    asked = options(tmp_path, long=0.1, beside=True, periods=1, shapes=[], flags=["default"], out=str(out))
    result = gpu_soak.long_run(asked)
    line = json.loads(out.read_text())
    assert result["summary"] == "green", line
    assert line["requests"] > 40 and line["tokens"] > 300 and line["alone"] == 20
    assert len(line["memory"]["rss_mib"]) == 4 and line["memory"]["rss_mib"][0] > 0


@pytest.mark.parametrize("plant", sorted((ROOT / "tests" / "soak" / "plants").glob("*.patch")), ids=lambda path: path.stem)
def test_a_plant_can_be_put(plant):
    """They are built and found on a GPU only: here it is seen that the code has not moved away from them."""
    applied = subprocess.run(["patch", "--dry-run", "-s", "-f", "-F0", "-p1", "-i", str(plant)], cwd=ROOT, capture_output=True, text=True)
    assert applied.returncode == 0, applied.stdout + applied.stderr
