"""The `anthropic` client: against a server whose model says what a script holds, and a real model."""

import json
import urllib.error
import urllib.request

import anthropic
import httpx
import pytest

from conftest import NAME
from scripted_answers import AGAIN, ANSWER, CALLS

TOOLS = [
    {
        "name": name,
        "description": "What it is like there",
        "input_schema": {"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]},
    }
    for name in ("get_weather", "get_time")
]
QUESTION = [{"role": "user", "content": "How warm, and how late?"}]


@pytest.fixture
def scripted(scripted_url):
    def start(*answers, **options):
        return anthropic.Anthropic(base_url=scripted_url(*answers, **options), api_key="unused", max_retries=0, timeout=60)

    return start


def client_of(server, **options):
    return anthropic.Anthropic(**{"base_url": server.url, "api_key": "unused", "max_retries": 0, "timeout": 120, **options})


def run_tool(block):
    return {"get_weather": "18 degrees", "get_time": "12:00"}[block.name] + f" in {block.input.get('city', 'here')}"


def converse(ask):
    """The loop of an agent, until an answer without calls."""
    messages = list(QUESTION)
    answers = []
    for _ in range(5):
        answers.append(ask(messages))
        messages.append(answers[-1].to_param())
        calls = [block for block in answers[-1].content if block.type == "tool_use"]
        if not calls:
            assert answers[-1].stop_reason == "end_turn"
            return answers
        assert answers[-1].stop_reason == "tool_use"
        messages.append(
            {
                "role": "user",
                "content": [{"type": "tool_result", "tool_use_id": call.id, "content": run_tool(call)} for call in calls],
            }
        )
    raise AssertionError("the model calls without end")


def check(answers):
    assert [[block.type for block in answer.content] for answer in answers] == [
        ["thinking", "text", "tool_use", "tool_use"],
        ["tool_use"],
        ["thinking", "text"],
    ]
    thought, text, weather, time = answers[0].content
    assert thought.thinking == "Two questions."
    assert thought.signature
    assert text.text == "I look it up."
    assert (weather.name, weather.input) == ("get_weather", {"city": "Köln"})
    assert (time.name, time.input) == ("get_time", {"city": 'Köln "am Rhein"'})
    assert answers[1].content[0].input == {}
    assert len({weather.id, time.id, answers[1].content[0].id}) == 3
    assert answers[2].content[1].text == "18 degrees at 12:00."
    assert all(answer.role == "assistant" and answer.id.startswith("msg_") for answer in answers)


def test_an_agent_goes_round_three_turns(scripted):
    client = scripted(CALLS, AGAIN, ANSWER)
    check(converse(lambda messages: client.messages.create(model="tiny", messages=messages, tools=TOOLS, max_tokens=2000)))


def test_an_agent_goes_round_with_streams(scripted):
    client = scripted(CALLS, AGAIN, ANSWER)

    def ask(messages):
        with client.messages.stream(model="tiny", messages=messages, tools=TOOLS, max_tokens=2000) as stream:
            for _ in stream:
                pass
            return stream.get_final_message()

    check(converse(ask))


def test_events_of_a_stream(scripted):
    client = scripted(CALLS)
    events = list(client.messages.create(model="tiny", messages=QUESTION, tools=TOOLS, max_tokens=2000, stream=True))
    kinds = [event.type for event in events]
    assert kinds[0] == "message_start" and kinds[-2:] == ["message_delta", "message_stop"]
    start = events[0].message
    assert (start.role, start.content, start.stop_reason, start.model) == ("assistant", [], None, "tiny")
    assert start.usage.input_tokens > 0
    # Blocks one behind the other: start, deltas of its kind, stop.
    deltas = {"thinking": {"thinking_delta", "signature_delta"}, "text": {"text_delta"}, "tool_use": {"input_json_delta"}}
    open_block, seen, arguments = None, [], {}
    for event in events[1:-2]:
        if event.type == "content_block_start":
            assert open_block is None and event.index == len(seen)
            open_block = event.content_block
            seen.append(open_block.type)
        elif event.type == "content_block_delta":
            assert event.index == len(seen) - 1
            assert event.delta.type in deltas[open_block.type]
            if event.delta.type == "input_json_delta":
                arguments[event.index] = arguments.get(event.index, "") + event.delta.partial_json
        else:
            assert event.type == "content_block_stop" and event.index == len(seen) - 1
            open_block = None
    assert open_block is None
    assert seen == ["thinking", "text", "tool_use", "tool_use"]
    assert [json.loads(text) for text in arguments.values()] == [{"city": "Köln"}, {"city": 'Köln "am Rhein"'}]
    assert events[-2].delta.stop_reason == "tool_use"
    assert events[-2].usage.output_tokens > 0


def raw(client, path, body, headers=None):
    """Status, headers and body as they are on the wire."""
    request = urllib.request.Request(
        str(client.base_url).rstrip("/") + path,
        json.dumps(body).encode() if not isinstance(body, bytes) else body,
        {"Content-Type": "application/json", **(headers or {})},
    )
    try:
        response = urllib.request.urlopen(request, timeout=60)
    except urllib.error.HTTPError as error:
        response = error
    return response.status, response.headers, response.read().decode()


def test_a_stream_on_the_wire(scripted):
    client = scripted("Hi.")
    _, headers, text = raw(client, "/v1/messages", {"messages": QUESTION, "max_tokens": 9, "stream": True})
    assert headers["request-id"] == headers["x-request-id"]
    assert headers["content-type"].startswith("text/event-stream")
    events = [event.split("\n") for event in text.strip().split("\n\n")]
    assert all(len(lines) == 2 and lines[0].startswith("event: ") and lines[1].startswith("data: ") for lines in events)
    assert all(json.loads(data[6:])["type"] == name[7:] for name, data in events)
    names = [name[7:] for name, _ in events]
    assert names[:3] == ["message_start", "content_block_start", "ping"]
    assert "[DONE]" not in text


def test_what_ends_an_answer(scripted):
    client = scripted("one two three")

    def ask(**options):
        return client.messages.create(**{"model": "tiny", "messages": QUESTION, "max_tokens": 100, **options})

    answer = ask()
    assert (answer.stop_reason, answer.stop_sequence, answer.content[0].text) == ("end_turn", None, "one two three")
    answer = ask(stop_sequences=["four", " three"])
    assert (answer.stop_reason, answer.stop_sequence, answer.content[0].text) == ("stop_sequence", " three", "one two")
    answer = ask(max_tokens=5)
    assert (answer.stop_reason, answer.usage.output_tokens, answer.content[0].text) == ("max_tokens", 5, "one t")
    # More than the context leaves is what it leaves.
    assert ask(max_tokens=1_000_000).stop_reason == "end_turn"


def test_a_call_that_is_cut_is_none(scripted):
    client = scripted(CALLS)
    answer = client.messages.create(model="tiny", messages=QUESTION, tools=TOOLS, max_tokens=len(CALLS) - 30)
    assert answer.stop_reason == "max_tokens"
    assert [block.name for block in answer.content if block.type == "tool_use"] == ["get_weather"]


def test_tool_choice(scripted):
    client = scripted(CALLS)

    def ask(choice):
        return client.messages.create(model="tiny", messages=QUESTION, tools=TOOLS, tool_choice=choice, max_tokens=2000)

    one = ask({"type": "auto", "disable_parallel_tool_use": True})
    assert [block.name for block in one.content if block.type == "tool_use"] == ["get_weather"]
    none = ask({"type": "none"})
    assert none.stop_reason == "end_turn" and "<tool_call>" in none.content[-1].text
    for choice in ({"type": "any"}, {"type": "tool", "name": "get_time"}):
        with pytest.raises(anthropic.BadRequestError, match="tool_choice is not supported"):
            ask(choice)


def test_thinking(scripted):
    client = scripted(ANSWER)

    def kinds(**options):
        answer = client.messages.create(model="tiny", messages=QUESTION, max_tokens=2000, **options)
        return [block.type for block in answer.content]

    assert kinds() == ["thinking", "text"]
    assert kinds(thinking={"type": "enabled", "budget_tokens": 1024}) == ["thinking", "text"]
    assert kinds(thinking={"type": "adaptive"}) == ["thinking", "text"]
    assert kinds(thinking={"type": "enabled", "budget_tokens": 1024, "display": "omitted"}) == ["text"]
    assert kinds(thinking={"type": "disabled"}) == ["text"]


def test_an_answer_that_was_begun_goes_on(client, server):
    begun = QUESTION + [{"role": "assistant", "content": "The capital of"}]
    answer = client.messages.create(model=NAME, max_tokens=6, messages=begun, extra_body={"temperature": 0})
    body = {"messages": begun, "continue_final_message": True, "add_generation_prompt": False}
    rendered = httpx.post(server.url + "/apply-template", json=body).json()["prompt"]
    assert rendered.endswith("The capital of")
    alone = server.client().completions.create(
        model=NAME, prompt=rendered, max_tokens=6, temperature=0,
        extra_body={"parse_special": True, "add_special_tokens": False})
    assert answer.content[0].text == alone.choices[0].text
    count = client.messages.count_tokens(model=NAME, messages=begun)
    # What other tests left in the cache is counted apart.
    assert count.input_tokens == answer.usage.input_tokens + (answer.usage.cache_read_input_tokens or 0)


@pytest.mark.parametrize(
    "fields, name",
    [
        ({"messages": []}, "messages"),
        ({"messages": [{"role": "wizard", "content": "x"}]}, r"messages\[0\].role"),
        ({"messages": [{"role": "user"}]}, r"messages\[0\].content"),
        ({"messages": [{"role": "user", "content": [{"type": "image", "source": {}}]}]}, "no images"),
        ({"messages": [{"role": "user", "content": [{"type": "video"}]}]}, r'content\[0\].type must be one of text, tool_result, got "video"'),
        ({"messages": QUESTION + [{"role": "assistant", "content": "The "}]}, "must not end with white space"),
        ({"messages": [{"role": "user", "content": [{"type": "tool_result", "tool_use_id": "x"}]}]}, "tool_use_id"),
        ({"max_tokens": 0}, "max_tokens"),
        ({"max_tokens": "many"}, "max_tokens"),
        ({"system": 1}, "system"),
        ({"temperature": -1}, "temperature"),
        ({"stop_sequences": [""]}, "stop_sequences"),
        ({"thinking": {"type": "sometimes"}}, "thinking.type"),
        ({"thinking": {"type": "enabled", "budget_tokens": -1}}, "thinking.budget_tokens"),
        ({"metadata": {"user_id": 1}}, "metadata.user_id"),
        ({"tools": [{"type": "web_search_20250305", "name": "web_search"}]}, r"tools\[0\].type"),
        ({"tools": [{"name": "f"}]}, "input_schema"),
        ({"output_config": {"format": {"type": "json_schema", "schema": {}}}}, "output_config.format"),
        ({"n": 2}, "n is not a field"),
        ({"mcp_servers": [{"url": "x"}]}, "mcp_servers"),
    ],
)
def test_what_is_wrong_is_named(scripted, fields, name):
    client = scripted("x")
    with pytest.raises(anthropic.BadRequestError, match=name) as caught:
        client.messages.create(model="tiny", **{"messages": QUESTION, "max_tokens": 9, **{k: fields[k] for k in fields if k in ("messages", "max_tokens")}}, extra_body=fields)
    assert caught.value.body["type"] == "error"
    assert caught.value.body["error"]["type"] == "invalid_request_error"
    assert caught.value.request_id


def test_errors_before_the_handler_have_the_same_shape(scripted):
    client = scripted("x")
    cases = [
        ("/v1/messages", b"{", {}, 400, "invalid_request_error"),
        ("/v1/messages", b"[]", {}, 400, "invalid_request_error"),
        ("/v1/messages", b"{}", {}, 400, "invalid_request_error"),
        ("/v1/messages/batches", b"{}", {}, 404, "not_found_error"),
        ("/v1/messages", b"{}", {"Content-Type": "text/plain", "Sec-Fetch-Site": "none"}, 415, "invalid_request_error"),
        ("/v1/messages", b"{}", {"Origin": "https://evil.example"}, 403, "permission_error"),
        ("/v1/messages", b" " * (9 << 20), {}, 413, "request_too_large"),
    ]
    for path, body, headers, status, kind in cases:
        got, _, text = raw(client, path, body, headers)
        answer = json.loads(text)
        assert (got, answer["type"], answer["error"]["type"]) == (status, "error", kind), path
        assert answer["error"]["message"]
    with pytest.raises(anthropic.NotFoundError, match="no model"):
        client.messages.create(model="claude", messages=QUESTION, max_tokens=9)
    # Others keep theirs.
    assert "param" in json.loads(raw(client, "/v1/chat/completions", b"{}")[2])["error"]


# --- A real model ------------------------------------------------------------------------------------


@pytest.fixture
def client(server):
    return client_of(server)


CAPITAL = [{"role": "user", "content": "What is the capital of France? Answer in one word."}]


def test_an_answer_of_a_model(client, server):
    options = dict(model=NAME, messages=CAPITAL, max_tokens=16, extra_body={"temperature": 0})
    answer = client.messages.create(**options)
    assert "Paris" in answer.content[0].text
    chat = server.client().chat.completions.create(model=NAME, messages=CAPITAL, max_tokens=16, temperature=0)
    assert answer.content[0].text == chat.choices[0].message.content
    with client.messages.stream(**options) as stream:
        assert "".join(stream.text_stream) == answer.content[0].text
        assert stream.get_final_message().stop_reason == answer.stop_reason
    # The blocks of one text, and a system prompt in either form, are the same prompt.
    parts = [{"type": "text", "text": CAPITAL[0]["content"], "cache_control": {"type": "ephemeral"}}]
    again = client.messages.create(**{**options, "messages": [{"role": "user", "content": parts}]})
    assert again.content[0].text == answer.content[0].text


def test_usage_tells_what_the_cache_had(client):
    text = "Count: " + " ".join(map(str, range(200)))
    options = dict(model=NAME, messages=[{"role": "user", "content": text}], max_tokens=4, system="Be brief.")
    counted = client.messages.count_tokens(**{k: options[k] for k in ("model", "messages", "system")}).input_tokens
    first, second = (client.messages.create(**options).usage for _ in range(2))
    assert first.input_tokens + first.cache_read_input_tokens == counted
    assert second.cache_read_input_tokens > 0.9 * counted
    assert second.input_tokens + second.cache_read_input_tokens == counted
    assert second.cache_creation_input_tokens == 0
    with client.messages.stream(**options) as stream:
        assert stream.get_final_message().usage.cache_read_input_tokens == second.cache_read_input_tokens


def test_counting_takes_what_an_answer_takes(client):
    messages = CAPITAL + [
        {"role": "assistant", "content": [{"type": "tool_use", "id": "a", "name": "get_time", "input": {"city": "Bonn"}}]},
        {"role": "user", "content": [{"type": "tool_result", "tool_use_id": "a", "content": [{"type": "text", "text": "12"}]}]},
    ]
    count = lambda **options: client.messages.count_tokens(model=NAME, **options).input_tokens
    assert count(messages=messages) > count(messages=CAPITAL) > 5
    assert count(messages=CAPITAL, system="You know all capitals.") != count(messages=CAPITAL)
    with pytest.raises(anthropic.BadRequestError, match="messages has more than 4096 tokens"):
        count(messages=[{"role": "user", "content": "a b " * 9000}])


def test_the_end_of_the_context_ends_an_answer(client):
    long = [{"role": "user", "content": "Say a, again and again. " + "a " * 1900}]
    used = client.messages.count_tokens(model=NAME, messages=long).input_tokens
    answer = client.messages.create(model=NAME, messages=long, max_tokens=5000, extra_body={"seed": 1})
    if answer.stop_reason != "end_turn":
        assert answer.stop_reason == "model_context_window_exceeded"
        assert answer.usage.output_tokens == 2048 - used
    with pytest.raises(anthropic.BadRequestError, match="maximum context length is 2048"):
        client.messages.create(model=NAME, messages=[{"role": "user", "content": "a " * 2500}], max_tokens=5)


def test_keys(start_server):
    server = start_server("--api-key", "right", "--key-requests-per-minute", 2)
    ask = dict(model=NAME, messages=CAPITAL, max_tokens=1)
    with pytest.raises(anthropic.AuthenticationError) as refused:
        client_of(server, api_key="wrong").messages.create(**ask)
    assert refused.value.body["error"]["type"] == "authentication_error"
    assert refused.value.request_id
    client = client_of(server, api_key="right")  # as x-api-key
    client.messages.create(**ask)
    client_of(server, api_key=None, auth_token="right").messages.create(**ask)  # as a bearer
    with pytest.raises(anthropic.RateLimitError) as over:
        client.messages.create(**ask)
    assert over.value.body["error"]["type"] == "rate_limit_error"
    assert over.value.response.headers["retry-after"]
    assert client.messages.count_tokens(model=NAME, messages=CAPITAL).input_tokens > 0
