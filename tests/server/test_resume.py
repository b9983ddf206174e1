"""A stream that was begun on one server goes on at another: not a byte twice, none lost, none other."""

import http.client
import json
import re
import threading
import time
import urllib.error
import urllib.request

import pytest

from streamed_requests import PROMPT, QUESTION, REQUESTS, TIMES


def answer(url, path, body, resume=None):
    """The whole stream of an answer, with its journal's lines."""
    body = {**({"headrace_resume": resume} if resume is not None else {}), "model": "smol", **body}
    if path != "/generate_stream":
        body["stream"] = True
    request = urllib.request.Request(url + path, json.dumps(body).encode(),
                                     {"Content-Type": "application/json", "X-Headrace-Journal": "1"})
    with urllib.request.urlopen(request, timeout=60) as reply:
        return reply.read()


def take_apart(stream):
    """The head, and of each arrival what is kept of it and its events; the last one's are the end's too."""
    parts = re.split(rb": journal (.*)\n\n", stream)
    assert parts[0] == b"", parts[0]
    lines = [json.loads(line) for line in parts[1::2]]
    events = parts[2::2]
    assert list(lines[0]) == ["head"] and events[0] == b""
    return lines[0]["head"], lines[1:], events[1:]


def without_journal(stream):
    return re.sub(rb": journal .*\n\n", b"", stream)


def timeless(stream):
    return TIMES.sub(b'"time', stream)


def as_told(name, stream):
    """Which of several choices comes first is a matter of time; each has its own order. How many tokens an event has
    is one too, where a form leaves but one text."""
    if name == "form":
        return b"".join(re.findall(rb'"content":"((?:[^"\\]|\\.)*)"', stream))
    events = timeless(stream).split(b"\n\n")
    return sorted(events) if name in ("choices", "prompts") else events


@pytest.fixture(scope="module")
def other(server):
    from conftest import RunningServer
    running = RunningServer("--max-model-len", 2048, "--max-num-seqs", 64)
    yield running.wait_ready()
    running.kill()


@pytest.mark.parametrize("name", REQUESTS)
def test_a_stream_goes_on_elsewhere(server, other, name):
    path, body = REQUESTS[name]
    whole = answer(server.url, path, body)
    head, arrivals, events = take_apart(whole)
    assert len(arrivals) >= 4
    for kept in {1, len(arrivals) // 2, len(arrivals) - 1, len(arrivals)}:
        resumed = answer(other.url, path, body, {"head": head, "journal": arrivals[:kept]})
        joined = b"".join(events[:kept]) + without_journal(resumed)
        if kept == len(arrivals):
            # Only the end may be left, which is told with the last events.
            assert timeless(b"".join(events)).endswith(timeless(resumed))
            continue
        assert as_told(name, joined) == as_told(name, b"".join(events)), kept
        # It can go on once more: the journal of the second is the rest of the first's.
        rest = [json.loads(line) for line in re.findall(rb": journal (.*)\n\n", resumed)]
        if name == "form":
            tokens = [[token for each in lines for token in each["t"]] for lines in (rest, arrivals[kept:])]
            assert tokens[0] == tokens[1]
            continue
        by_choice = sorted(rest, key=lambda each: (each.get("p", 0), each.get("c", 0)))
        kept_by_choice = sorted(arrivals[kept:], key=lambda each: (each.get("p", 0), each.get("c", 0)))
        assert [{**each, "k": 0} for each in by_choice] == [{**each, "k": 0} for each in kept_by_choice], kept


def test_the_last_events_come_again_where_asked(server, other):
    for name in ("chat", "responses", "messages", "probabilities"):
        path, body = REQUESTS[name]
        head, arrivals, events = take_apart(answer(server.url, path, body))
        for kept in (1, 3, len(arrivals)):
            resumed = answer(other.url, path, body, {"head": head, "journal": arrivals[:kept], "resend_last": True})
            assert without_journal(resumed) == b"".join(events[kept - 1:]), (name, kept)


def test_nobody_sees_a_journal_who_did_not_ask(server):
    path, body = REQUESTS["chat"]
    request = urllib.request.Request(server.url + path, json.dumps({**body, "model": "smol", "stream": True}).encode(),
                                     {"Content-Type": "application/json"})
    assert b"journal" not in urllib.request.urlopen(request, timeout=60).read()
    # And an answer in one piece has none.
    request = urllib.request.Request(server.url + path, json.dumps({"messages": QUESTION, "model": "smol", "max_tokens": 4}).encode(),
                                     {"Content-Type": "application/json", "X-Headrace-Journal": "1"})
    assert b"journal" not in urllib.request.urlopen(request, timeout=60).read()


def refusal(url, path, body, resume):
    with pytest.raises(urllib.error.HTTPError) as error:
        answer(url, path, body, resume)
    return error.value.code, json.loads(error.value.read())["error"]["message"]


def test_what_cannot_go_on_is_refused(server):
    path, body = REQUESTS["greedy"]
    head, arrivals, _ = take_apart(answer(server.url, path, body))
    code, message = refusal(server.url, path, body, {"head": {**head, "fingerprint": "another"}, "journal": arrivals[:2]})
    assert code == 409 and "another build, model or arithmetic" in message
    again = answer(server.url, path, body, {"head": {**head, "fingerprint": "another"}, "journal": arrivals[:2], "inexact": True})
    assert again.startswith(b": journal {") and again.endswith(b"data: [DONE]\n\n")
    hostile = [
        (7, "head"), ({}, "head"), ({"head": {}}, "head.id"), ({"head": head}, "journal"),
        ({"head": {**head, "seeds": []}, "journal": []}, "head.seeds"),
        ({"head": {**head, "seeds": ["-1"]}, "journal": []}, "head.seeds"),
        ({"head": head, "journal": [{}]}, r"journal[0]"),
        ({"head": head, "journal": [{"t": [1], "c": 1}]}, "journal[0]"),
        ({"head": head, "journal": [{"t": [1], "p": 1}]}, "journal[0]"),
        ({"head": head, "journal": [{"t": [-4]}]}, "journal[0]"),
        ({"head": head, "journal": [{"t": [1], "f": "abort"}]}, "journal[0]"),
        ({"head": head, "journal": [{"t": [1], "l": []}]}, "journal[0]"),
        ({"head": head, "journal": [{"t": [999999]}]}, "vocabulary"),
        ({"head": head, "journal": [{"t": [5] * 30}]}, "max_tokens"),
    ]
    for resume, word in hostile:
        code, message = refusal(server.url, path, body, resume)
        assert code == 400 and word in message, (resume, message)
    code, message = refusal(server.url, "/v1/completions", {"prompt": PROMPT, "echo": True, "logprobs": 1, "max_tokens": 4},
                            {"head": head, "journal": []})
    assert code == 400 and "log-probabilities of the prompt" in message


def test_a_full_server_refuses_before_it_says_a_word(server, start_server):
    path, body = REQUESTS["greedy"]
    head, arrivals, _ = take_apart(answer(server.url, path, body))
    full = start_server("--max-model-len", 1024, "--max-num-seqs", 1, "--max-queued-requests", 1)
    held = []
    for _ in range(2):
        request = urllib.request.Request(full.url + "/v1/completions", json.dumps(
            {"model": "smol", "prompt": PROMPT, "max_tokens": 900, "ignore_eos": True, "stream": True}).encode(),
            {"Content-Type": "application/json"})
        held.append(threading.Thread(target=lambda request=request: read_until_closed(request), daemon=True))
        held[-1].start()
    deadline = time.monotonic() + 30
    while full.metric("vllm:num_requests_running") + full.metric("vllm:num_requests_waiting") < 2:
        assert time.monotonic() < deadline
        time.sleep(0.02)
    code, message = refusal(full.url, path, body, {"head": head, "journal": arrivals[:3], "resend_last": True})
    assert code == 429 and "running or queued" in message


def read_until_closed(request):
    try:
        urllib.request.urlopen(request, timeout=60).read()
    except (OSError, http.client.HTTPException):
        pass
