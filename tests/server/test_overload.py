"""More requests than the server takes: refusals are quick, and tell the truth about when to come again."""

import concurrent.futures
import json
import time
import urllib.error
import urllib.request

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


def test_retry_after_is_when_there_is_room(start_server):
    server = start_server("--max-num-seqs", 2, "--max-num-queued-reqs", 6)
    with concurrent.futures.ThreadPoolExecutor(32) as pool:
        # Eight fill the server; the others are refused while those run.
        full = [pool.submit(ask, server, 100) for _ in range(8)]
        while server.metric("vllm:num_requests_waiting") < 6:
            time.sleep(0.005)
        while server.metric("vllm:request_success_total") < 2:  # it has seen how fast it is
            time.sleep(0.02)
        full += [pool.submit(ask, server, 100) for _ in range(2)]
        while server.metric("vllm:num_requests_waiting") < 6:
            time.sleep(0.005)
        status, seconds, told = ask(server, 100)
        assert status == 429 and seconds < 0.5
        refused_at = time.monotonic()
        while ask(server, 1)[0] == 429:
            time.sleep(0.05)
        waited = time.monotonic() - refused_at
        assert all(answer.result()[0] == 200 for answer in full)
    print(f"told {told:.2f} s, there was room after {waited:.2f} s")
    # Room comes with the next end; no less than a second is told.
    assert 1 <= told <= max(1.5, 3 * waited)
