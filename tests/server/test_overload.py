"""More requests than the server takes: refusals are quick, and tell the truth about when to come again."""

import concurrent.futures
import json
import time
import urllib.error
import urllib.request

import pytest

from conftest import NAME


def ask(server, tokens):
    """(status, seconds that it took, Retry-After in seconds)."""
    body = {"model": NAME, "prompt": "Once upon a time", "max_tokens": tokens, "ignore_eos": True}
    request = urllib.request.Request(server.url + "/v1/completions", json.dumps(body).encode(),
                                     {"Content-Type": "application/json"})
    started = time.monotonic()
    try:
        with urllib.request.urlopen(request, timeout=120) as answer:
            answer.read()
            return answer.status, time.monotonic() - started, None
    except urllib.error.HTTPError as error:
        return error.code, time.monotonic() - started, int(error.headers["retry-after-ms"]) / 1000


def wait_until(happened):
    deadline = time.monotonic() + 60
    while not happened():
        assert time.monotonic() < deadline
        time.sleep(0.005)


@pytest.mark.timing
def test_retry_after_is_when_there_is_room(start_server):
    server = start_server("--max-num-seqs", 2, "--max-num-queued-reqs", 6)
    with concurrent.futures.ThreadPoolExecutor(32) as pool:
        # It sees how fast it is.
        assert all(status == 200 for status, _, _ in pool.map(lambda _: ask(server, 300), range(4)))
        # Eight fill the server, for seconds; the next is refused.
        full = [pool.submit(ask, server, 300) for _ in range(8)]
        wait_until(lambda: server.metric("vllm:num_requests_waiting") >= 6)
        status, seconds, told = ask(server, 300)
        assert status == 429 and seconds < 1
        refused_at = time.monotonic()
        while True:
            waited = time.monotonic() - refused_at
            if ask(server, 1)[0] == 200:
                break
            assert waited < 60
            time.sleep(0.02)
        assert all(answer.result()[0] == 200 for answer in full)
    print(f"told {told:.2f} s, there was room after {waited:.2f} s")
    # Room comes with the next end, of two at once; no less than a second is told.
    assert 1 <= told <= max(2, 4 * waited)
