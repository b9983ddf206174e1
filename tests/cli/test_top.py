"""`headrace top`: a live view of a server, on a terminal and in a pipe."""

import re
import signal
import time

import pytest

from pseudo_terminal import Terminal
from stand_in import StandIn

METRICS = """# TYPE vllm:num_requests_running gauge
vllm:num_requests_running{{model_name="m"}} {running}
vllm:num_requests_waiting{{model_name="m"}} 4
vllm:kv_cache_usage_perc{{model_name="m"}} 0.5
vllm:prefix_cache_queries_total 200
vllm:prefix_cache_hits_total 50
vllm:generation_tokens_total {tokens}
vllm:time_to_first_token_seconds_bucket{{le="0.1"}} 10
vllm:time_to_first_token_seconds_bucket{{le="+Inf"}} 10
"""


@pytest.fixture
def server():
    running = StandIn()
    running.metrics = METRICS.format(running=3, tokens=100)
    yield running
    running.close()


@pytest.fixture
def top(program, server):
    terminal = Terminal(program, "top", "--url", server.url, "--interval", "0.1")
    yield terminal
    terminal.close()


def test_once_prints_one_frame_in_a_pipe(program, server):
    frame = program.text("top", "--url", server.url, "--once", "--interval", "0.1")
    assert "\x1b" not in frame
    for text in ("first-model, second-model", "3 running, 4 waiting", " 50 %", "25 % of 200 tokens", "first token", "p99"):
        assert text in frame
    assert max(map(len, frame.split("\n"))) <= 80


def test_what_changes_is_shown_and_q_leaves(top, server):
    top.wait_for("3 running")
    server.metrics = METRICS.format(running=8, tokens=5000)
    top.wait_for("8 running")
    top.wait_for("[\u2840-\u28ff]")  # dots of the plot
    top.type("q")
    assert top.exit_code() == 0
    assert top.output.startswith("\x1b[?1049h") and top.output.endswith("\x1b[?25h\x1b[?1049l")


def test_a_new_size_is_drawn_at_once(top):
    top.wait_for("first token")
    top.resize(30, rows=8)
    for _ in range(3):  # the frame that was on its way, and whole ones behind it
        frame = top.rows_until("\x1b\\[H(?s:.)*?\x1b\\[J", seconds=5)
    rows = [re.sub("\x1b\\[[HKJ]", "", row) for row in frame]
    assert len(rows) <= 8 and max(map(len, rows)) <= 30, rows


@pytest.mark.parametrize("key", ["\x03", "\x04", "Q"])
def test_other_keys_that_leave(top, key):
    top.wait_for("3 running")
    top.type(key)
    assert top.exit_code() == 0


def test_sigterm_gives_the_terminal_back(top):
    top.wait_for("3 running")
    top.signal(signal.SIGTERM)
    assert top.exit_code() == 143
    assert top.output.endswith("\x1b[?25h\x1b[?1049l")


def test_a_server_that_goes_is_told_until_it_comes(program):
    server = StandIn()
    server.metrics = METRICS.format(running=3, tokens=100)
    terminal = Terminal(program, "top", "--url", server.url, "--interval", "0.1")
    try:
        terminal.wait_for("3 running")
        server.close()
        terminal.wait_for("Connection refused")
        terminal.type("q")
        assert terminal.exit_code() == 0
    finally:
        terminal.close()


@pytest.mark.timing
@pytest.mark.parametrize("path", ["/metrics", "/v1/models"])
def test_q_leaves_while_the_server_says_nothing(top, server, path):
    top.wait_for("3 running")
    server.slow[path] = 30
    time.sleep(0.5)
    begin = time.monotonic()
    top.type("q")
    assert top.exit_code() == 0
    assert time.monotonic() - begin < 2


@pytest.mark.timing
def test_a_server_that_drips_is_one_that_does_not_answer(top, server):
    top.wait_for("3 running")
    server.drip = 0.5  # seconds from byte to byte
    top.wait_for("not in 5 s", seconds=12)


def test_names_of_models_stay_in_their_row(program, server):
    server.models = (200, '{"data": [{"id": "a\\nb\\tc\\u001b[31m"}]}')
    frame = program.text("top", "--url", server.url, "--once", "--interval", "0.1")
    assert "a b c[31m\n" in frame


def test_a_terminal_without_sequences_gets_none(program, server):
    terminal = Terminal(program, "top", "--url", server.url, environment={"TERM": "dumb"})
    assert terminal.exit_code() == 1
    assert "--once prints" in terminal.output and "\x1b" not in terminal.output


def test_errors_are_one_line(program, server):
    assert "connect to 127.0.0.1:1" in program.error("top", "--once", "--url", "http://127.0.0.1:1")
    assert "--once prints" in program.error("top", "--url", server.url)
    server.metrics = "go_goroutines 7\n"
    assert "none of the numbers" in program.error("top", "--once", "--url", server.url)
    server.key = "sesame"
    assert "wants a key" in program.error("top", "--once", "--url", server.url)


def test_a_key_of_the_environment_is_sent(program, server):
    server.key = "sesame"
    frame = program.text("top", "--once", "--interval", "0.1", "--url", server.url,
                         environment={"HEADRACE_API_KEY": "sesame"})
    assert "3 running" in frame
