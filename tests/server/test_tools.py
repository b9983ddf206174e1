"""Tools and thoughts, as the OpenAI client sees them: a server whose model says what a script holds."""

import json

from scripted_answers import ANSWER, CALLS

TOOLS = [
    {
        "type": "function",
        "function": {
            "name": name,
            "parameters": {"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]},
        },
    }
    for name in ("get_weather", "get_time")
]


def run_tool(call):
    city = json.loads(call.function.arguments)["city"]
    return {"get_weather": "18 degrees", "get_time": "12:00"}[call.function.name] + f" in {city}"


def converse(ask):
    """The loop of an agent, until an answer without calls."""
    messages = [{"role": "user", "content": "How warm, and how late?"}]
    for _ in range(5):
        message, finish = ask(messages)
        messages.append(message)
        if not message.tool_calls:
            assert finish == "stop"
            return messages
        assert finish == "tool_calls"
        for call in message.tool_calls:
            messages.append({"role": "tool", "tool_call_id": call.id, "content": run_tool(call)})
    raise AssertionError("the model calls without end")


def check(messages):
    calls = messages[1].tool_calls
    assert messages[1].content == "I look it up."
    assert messages[1].reasoning == messages[1].reasoning_content == "Two questions."
    assert [call.function.name for call in calls] == ["get_weather", "get_time"]
    assert len({call.id for call in calls}) == 2
    assert messages[3]["content"] == '12:00 in Köln "am Rhein"'
    assert messages[4].content == "18 degrees at 12:00."


def test_an_agent_goes_round(scripted):
    client = scripted(CALLS, ANSWER)

    def ask(messages):
        choice = client.chat.completions.create(model="tiny", messages=messages, tools=TOOLS, max_tokens=2000).choices[0]
        return choice.message, choice.finish_reason

    check(converse(ask))


def test_an_agent_goes_round_with_streams(scripted):
    client = scripted(CALLS, ANSWER)

    def ask(messages):
        with client.chat.completions.stream(model="tiny", messages=messages, tools=TOOLS, max_tokens=2000) as stream:
            kinds = [event.type for event in stream]
            choice = stream.get_final_completion().choices[0]
        if choice.finish_reason == "tool_calls":
            assert kinds.count("tool_calls.function.arguments.done") == 2
        return choice.message, choice.finish_reason

    check(converse(ask))


def test_choices_of_one_request_have_calls_of_their_own(scripted):
    client = scripted(CALLS)
    answer = client.chat.completions.create(
        model="tiny", messages=[{"role": "user", "content": "x"}], tools=TOOLS, n=3, max_tokens=2000
    )
    assert len({call.id for choice in answer.choices for call in choice.message.tool_calls}) == 6
    assert answer.usage.completion_tokens_details.reasoning_tokens > 0


def test_one_call_where_no_parallel_ones_are_wanted(scripted):
    client = scripted(CALLS)
    choice = client.chat.completions.create(
        model="tiny", messages=[{"role": "user", "content": "x"}], tools=TOOLS, parallel_tool_calls=False, max_tokens=2000
    ).choices[0]
    assert [call.function.name for call in choice.message.tool_calls] == ["get_weather"]
    assert choice.finish_reason == "tool_calls"
