"""Lines that say how far something is: on a terminal that takes a while, and nowhere else."""

import re

import pytest

from pseudo_terminal import Terminal


SENTENCE = "The river runs from the hills to the sea, and nobody asks it why. "


@pytest.fixture
def text(tmp_path):
    """As much as takes some seconds in fp32."""
    path = tmp_path / "text"
    path.write_text(SENTENCE * 150)
    return path


@pytest.mark.timing
def test_eval_shows_share_rate_and_time_left_and_takes_them_away(program, model, text):
    terminal = Terminal(program, "eval", "perplexity", text, "-m", model, "-c", "128", "--dtype", "float32", columns=100)
    try:
        found = terminal.wait_for(r"perplexity \[#+ *\] +(\d+) %, [\d.]+ windows/s, \d+:\d\d left  [\d.]+", seconds=100)
        assert 0 < int(found[1]) <= 100
        assert terminal.exit_code() == 0
    finally:
        terminal.close()
    result = terminal.output.split("\r\x1b[K")[-1]
    assert re.match(r"perplexity [\d.]+ \+/- ", result), result


def test_a_pipe_gets_no_progress(program, model, tmp_path):
    text = tmp_path / "text"
    text.write_text(SENTENCE * 40)
    done = program.run("eval", "perplexity", text, "-m", model, "-c", "256", check=0)
    assert done.stderr == b""
