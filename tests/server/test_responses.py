"""The Responses API, as the `openai` client sees it: a server whose model says what a script holds, and a real model."""

import json
import time
import urllib.error
import urllib.request

import openai
import pytest

from conftest import NAME
from scripted_answers import AGAIN, ANSWER, CALLS

TOOLS = [
    {
        "type": "function",
        "name": name,
        "description": "What it is like there",
        "parameters": {"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]},
        "strict": False,
    }
    for name in ("get_weather", "get_time")
]
QUESTION = "How warm, and how late?"


def run_tool(call):
    city = json.loads(call.arguments).get("city", "here")
    return {"get_weather": "18 degrees", "get_time": "12:00"}[call.name] + f" in {city}"


def outputs_of(answer):
    return [
        {"type": "function_call_output", "call_id": item.call_id, "output": run_tool(item)}
        for item in answer.output
        if item.type == "function_call"
    ]


def kinds(answer):
    return [item.type for item in answer.output]


def check(answers):
    assert [kinds(answer) for answer in answers] == [
        ["reasoning", "message", "function_call", "function_call"],
        ["function_call"],
        ["reasoning", "message"],
    ]
    thought, message, weather, time = answers[0].output
    assert thought.content[0].text == "Two questions."
    assert message.content[0].text == answers[0].output_text == "I look it up."
    assert (weather.name, json.loads(weather.arguments)) == ("get_weather", {"city": "Köln"})
    assert (time.name, json.loads(time.arguments)) == ("get_time", {"city": 'Köln "am Rhein"'})
    assert len({weather.call_id, time.call_id, answers[1].output[0].call_id}) == 3
    assert answers[2].output_text == "18 degrees at 12:00."
    assert all(answer.status == "completed" and answer.id.startswith("resp_") for answer in answers)
    ids = [item.id for answer in answers for item in answer.output]
    assert len(set(ids)) == len(ids)


@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize("stored", [False, True])
def test_an_agent_goes_round_three_turns(scripted, stream, stored):
    client = scripted(CALLS, AGAIN, ANSWER)

    def ask(**options):
        options = dict(model="tiny", tools=TOOLS, max_output_tokens=2000, store=stored, **options)
        if not stream:
            return client.responses.create(**options)
        with client.responses.stream(**options) as events:
            for _ in events:
                pass
            return events.get_final_response()

    answers, items = [], [{"role": "user", "content": QUESTION}]
    for _ in range(5):
        if stored:
            previous = {"previous_response_id": answers[-1].id} if answers else {}
            answers.append(ask(input=outputs_of(answers[-1]) if answers else QUESTION, **previous))
        else:
            answers.append(ask(input=items))
            items += [item.model_dump(exclude_none=True) for item in answers[-1].output] + outputs_of(answers[-1])
        if "function_call" not in kinds(answers[-1]):
            break
    check(answers)


def test_events_of_a_stream(scripted):
    client = scripted(CALLS)
    events = list(client.responses.create(model="tiny", input=QUESTION, tools=TOOLS, max_output_tokens=2000, stream=True))
    assert [event.sequence_number for event in events] == list(range(len(events)))
    names = [event.type.removeprefix("response.") for event in events]
    assert names[:2] == ["created", "in_progress"] and names[-1] == "completed"
    assert events[0].response.status == events[1].response.status == "in_progress"
    shapes = {
        "reasoning": ["output_item.added", "content_part.added", "reasoning_text.delta", "reasoning_text.done", "content_part.done", "output_item.done"],
        "message": ["output_item.added", "content_part.added", "output_text.delta", "output_text.done", "content_part.done", "output_item.done"],
        "function_call": ["output_item.added", "function_call_arguments.delta", "function_call_arguments.done", "output_item.done"],
    }
    final = events[-1].response
    for index, item in enumerate(final.output):
        own = [event for event in events if getattr(event, "output_index", None) == index]
        own_names = list(dict.fromkeys(event.type.removeprefix("response.") for event in own))
        assert own_names == shapes[item.type]
        assert own[0].item.status == "in_progress" and own[-1].item == item
        assert all(event.item_id == item.id for event in own[1:-1])
        text = "".join(event.delta for event in own if event.type.endswith(".delta"))
        whole = item.arguments if item.type == "function_call" else item.content[0].text
        done = next(event for event in own if event.type.endswith("_text.done") or event.type.endswith("arguments.done"))
        assert text == whole == (done.arguments if item.type == "function_call" else done.text)
    assert client.responses.retrieve(final.id).output == final.output


def test_a_response_says_what_was_asked(scripted):
    client = scripted("Four.")
    answer = client.responses.create(
        model="tiny", input="2 + 2?", instructions="Be brief.", temperature=0.5, metadata={"a": "b"}, max_output_tokens=50,
        reasoning={"summary": "auto"}, truncation="auto", text={"format": {"type": "text"}}, user="me", tools=TOOLS,
        include=["reasoning.encrypted_content"], parallel_tool_calls=False, prompt_cache_key="k",
    )
    assert (answer.object, answer.status, answer.error, answer.incomplete_details) == ("response", "completed", None, None)
    assert (answer.instructions, answer.temperature, answer.metadata, answer.max_output_tokens) == ("Be brief.", 0.5, {"a": "b"}, 50)
    assert (answer.truncation, answer.user, answer.parallel_tool_calls, answer.tool_choice) == ("auto", "me", False, "auto")
    assert [tool.name for tool in answer.tools] == ["get_weather", "get_time"]
    assert answer.usage.output_tokens == len("Four.") + 1
    assert answer.usage.total_tokens == answer.usage.input_tokens + answer.usage.output_tokens
    plain = client.responses.create(model="tiny", input="2 + 2?")
    assert (plain.instructions, plain.metadata, plain.tools, plain.previous_response_id, plain.background) == (None, {}, [], None, False)
    assert (plain.text.format.type, plain.truncation, plain.top_logprobs) == ("text", "disabled", 0)


def test_a_length_ends_a_response(scripted):
    client = scripted("one two three", CALLS)
    answer = client.responses.create(model="tiny", input="x", max_output_tokens=5)
    assert (answer.status, answer.incomplete_details.reason, answer.output_text) == ("incomplete", "max_output_tokens", "one t")
    assert answer.output[0].status == "incomplete"
    *_, last = client.responses.create(model="tiny", input="x", tools=TOOLS, max_output_tokens=len(CALLS) - 30, stream=True)
    assert last.type == "response.incomplete"
    assert [item.status for item in last.response.output] == ["completed", "completed", "completed", "incomplete"]
    # What comes behind it reads the cut call as one without arguments.
    assert client.responses.create(model="tiny", input="y", previous_response_id=last.response.id).output_text == "one two three"


def test_stored_responses(scripted):
    client = scripted("Four.", "Five.")
    first = client.responses.create(model="tiny", input="2 + 2?")
    second = client.responses.create(
        model="tiny", previous_response_id=first.id,
        input=[{"role": "user", "content": [{"type": "input_text", "text": "And"}]}, {"role": "user", "content": "2 + 3?"}],
    )
    assert client.responses.retrieve(second.id) == second
    assert second.previous_response_id == first.id
    # The conversation is the prompt: its prompt is longer by the first turn.
    alone = client.responses.create(model="tiny", input="And\n2 + 3?", store=False)
    assert second.usage.input_tokens > alone.usage.input_tokens + len("2 + 2?Four.")
    items = client.responses.input_items.list(second.id, order="asc").data
    assert [item.content[0].text for item in items] == ["And", "2 + 3?"]
    assert [item.content[0].text for item in client.responses.input_items.list(second.id).data] == ["2 + 3?", "And"]
    page = client.responses.input_items.list(second.id, order="asc", limit=1)
    assert (len(page.data), page.has_more, page.first_id) == (1, True, items[0].id)
    assert [item.id for item in client.responses.input_items.list(second.id, order="asc", after=items[0].id).data] == [items[1].id]

    with pytest.raises(openai.BadRequestError, match="background"):
        client.responses.cancel(first.id)
    client.responses.delete(first.id)
    for call in (client.responses.retrieve, client.responses.delete, client.responses.cancel, client.responses.input_items.list):
        with pytest.raises(openai.NotFoundError):
            call(first.id)
    with pytest.raises(openai.NotFoundError, match="previous_response_id"):
        client.responses.create(model="tiny", input="x", previous_response_id=second.id)
    with pytest.raises(openai.NotFoundError):
        client.responses.retrieve(alone.id)


@pytest.mark.parametrize(
    "fields, name",
    [
        ({"input": []}, "input"),
        ({"input": None}, "input is missing"),
        ({"input": 1}, "input"),
        ({"input": [1]}, r"input\[0\]"),
        ({"input": [{"role": "wizard", "content": "x"}]}, r"input\[0\].role"),
        ({"input": [{"role": "user", "content": [{"type": "input_image", "image_url": "x"}]}]}, "no images"),
        ({"input": [{"type": "item_reference", "id": "x"}]}, r"input\[0\].type"),
        ({"input": [{"type": "function_call_output", "call_id": "x", "output": "y"}]}, r"input\[0\].call_id"),
        ({"input": [{"type": "function_call", "call_id": "x", "name": "f", "arguments": "["}]}, r"input\[0\].arguments"),
        ({"instructions": 1}, "instructions"),
        ({"max_output_tokens": 0}, "max_output_tokens"),
        ({"temperature": -1}, "temperature"),
        ({"metadata": {"a": 1}}, "metadata"),
        ({"store": "yes"}, "store"),
        ({"previous_response_id": ""}, "previous_response_id"),
        ({"background": 1}, "background must be"),
        ({"background": True, "store": False}, "background needs store"),
        ({"conversation": "x"}, "conversation is not supported"),
        ({"prompt": {"id": "x"}}, "prompt is not supported"),
        ({"top_logprobs": 3}, "top_logprobs is not supported"),
        ({"include": ["message.output_text.logprobs"]}, "include"),
        ({"text": {"format": {"type": "json_schema", "name": "x", "schema": {}}}}, r"text\.format\.schema is not supported: .*structured output"),
        ({"text": {"verbosity": "low"}}, "text.verbosity"),
        ({"tools": [{"type": "web_search"}]}, r'tools\[0\].type must be one of function, got "web_search"'),
        ({"tools": [{**TOOLS[0], "strict": True}]}, "strict is not supported"),
        ({"tools": TOOLS, "tool_choice": "required"}, "tool_choice is not supported"),
        ({"truncation": "middle"}, "truncation"),
        ({"reasoning": {"effort": "much"}}, "reasoning"),
        ({"reasoning": {"summary": "long"}}, "reasoning.summary"),
        ({"n": 2}, "n is not a field"),
        ({"messages": [{"role": "user", "content": "x"}]}, "messages is not supported: send input"),
    ],
)
def test_what_is_wrong_is_named(scripted, fields, name):
    client = scripted("x")
    with pytest.raises(openai.BadRequestError, match=name) as caught:
        client.responses.create(model="tiny", input="x", extra_body=fields)
    assert caught.value.param in (*fields, "tools", "input")


# --- In the background -------------------------------------------------------------------------------


def wait_for(client, id, *states):
    for _ in range(1000):
        answer = client.responses.retrieve(id)
        if answer.status in states:
            return answer
        time.sleep(0.01)
    raise AssertionError(f"{answer.status} is none of {states}")


def test_a_response_in_the_background(scripted):
    client = scripted(CALLS, "Four.")
    queued = client.responses.create(model="tiny", input=QUESTION, tools=TOOLS, max_output_tokens=2000, background=True)
    assert (queued.status, queued.output, queued.background) == ("queued", [], True)
    answer = wait_for(client, queued.id, "completed")
    assert kinds(answer) == ["reasoning", "message", "function_call", "function_call"]
    assert answer.background and answer.usage.output_tokens == len(CALLS.encode()) + 1
    assert client.responses.cancel(queued.id) == answer  # it is too late
    after = client.responses.create(model="tiny", input=outputs_of(answer), tools=TOOLS, previous_response_id=queued.id)
    assert after.output_text == "Four."
    client.responses.delete(queued.id)
    with pytest.raises(openai.NotFoundError):
        client.responses.retrieve(queued.id)


def test_a_stream_is_taken_up_again(scripted):
    client = scripted(ANSWER)
    options = dict(model="tiny", input=QUESTION, background=True)
    first = []
    stream = client.responses.create(stream=True, **options)
    for event in stream:
        first.append(event)
        if len(first) == 5:
            break
    stream.close()
    id = first[0].response.id
    rest = list(client.responses.retrieve(id, stream=True, starting_after=first[-1].sequence_number))
    events = first + rest
    assert [event.sequence_number for event in events] == list(range(len(events)))
    assert events[0].type == "response.created" and events[-1].type == "response.completed"
    assert events[-1].response == client.responses.retrieve(id)
    again = list(client.responses.retrieve(id, stream=True))
    assert again == events
    assert list(client.responses.retrieve(id, stream=True, starting_after=len(events) - 1)) == []
    plain = client.responses.create(**options)
    with pytest.raises(openai.BadRequestError, match="made with background and stream"):
        client.responses.retrieve(plain.id, stream=True)


# --- A real model ------------------------------------------------------------------------------------

CAPITAL = "What is the capital of France? Answer in one word."


def test_an_answer_of_a_model(client):
    options = dict(model=NAME, temperature=0, max_output_tokens=16)
    answer = client.responses.create(input=CAPITAL, **options)
    assert "Paris" in answer.output_text
    chat = client.chat.completions.create(model=NAME, messages=[{"role": "user", "content": CAPITAL}], temperature=0, max_tokens=16)
    assert answer.output_text == chat.choices[0].message.content
    events = list(client.responses.create(input=[{"role": "user", "content": CAPITAL}], stream=True, **options))
    assert "".join(event.delta for event in events if event.type == "response.output_text.delta") == answer.output_text
    assert events[-1].response.usage.output_tokens == answer.usage.output_tokens
    assert events[-1].response.usage.input_tokens_details.cached_tokens > 0


def test_a_conversation_goes_on(client):
    options = dict(model=NAME, temperature=0, max_output_tokens=16)
    first = client.responses.create(input=CAPITAL, **options)
    second = client.responses.create(input="And of Italy?", previous_response_id=first.id, **options)
    chat = client.chat.completions.create(
        model=NAME, temperature=0, max_tokens=16,
        messages=[
            {"role": "user", "content": CAPITAL},
            {"role": "assistant", "content": first.output_text},
            {"role": "user", "content": "And of Italy?"},
        ],
    )
    assert second.output_text == chat.choices[0].message.content
    assert second.usage.input_tokens == chat.usage.prompt_tokens


def test_too_long_an_input(client):
    with pytest.raises(openai.BadRequestError, match="input has .* maximum context length is 2048") as caught:
        client.responses.create(model=NAME, input="a " * 2500)
    assert caught.value.param == "input"


def test_a_key_sees_its_own_responses_only(start_server):
    server = start_server("--api-key", "one", "--api-key", "two")
    one, two = (server.client(api_key=key) for key in ("one", "two"))
    answer = one.responses.create(model=NAME, input=CAPITAL, max_output_tokens=2)
    assert one.responses.retrieve(answer.id).id == answer.id
    for call in (two.responses.retrieve, two.responses.delete, two.responses.cancel, two.responses.input_items.list):
        with pytest.raises(openai.NotFoundError):
            call(answer.id)
    with pytest.raises(openai.NotFoundError):
        two.responses.create(model=NAME, input="x", previous_response_id=answer.id)
    with pytest.raises(openai.AuthenticationError):
        server.client(api_key="wrong").responses.retrieve(answer.id)
    assert one.responses.retrieve(answer.id).id == answer.id


def test_the_store_is_bounded(start_server):
    server = start_server("--max-stored-response-bytes", "20k")
    client = server.client()
    ids = [client.responses.create(model=NAME, input="Hi.", max_output_tokens=1).id for _ in range(20)]
    kept = []
    for each in ids:
        try:
            kept.append(client.responses.retrieve(each).id)
        except openai.NotFoundError:
            pass
    assert 2 < len(kept) < 20 and kept == ids[-len(kept) :]
    nothing = start_server("--max-stored-response-bytes", 0).client()
    answer = nothing.responses.create(model=NAME, input="Hi.", max_output_tokens=1)
    with pytest.raises(openai.NotFoundError):
        nothing.responses.retrieve(answer.id)
