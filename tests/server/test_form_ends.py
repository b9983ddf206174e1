"""Where the form of an answer ends: complete, where no token can go on, and what of a request it goes before."""

import json
import re
import urllib.error
import urllib.request

import openai
import pytest

from conftest import NAME, RunningServer

ASK = [{"role": "user", "content": "Give me the data."}]
# Each "a" doubles the ways in which the answer may end: soon there are too many to follow.
LOST = "\n".join([f's{i} ::= "a" s{i + 1} "x" | "a" s{i + 1} "y"' for i in range(20)] + ['s20 ::= "b"'])
TOOL = {"type": "function", "function": {"name": "get_weather", "parameters": {
    "type": "object", "properties": {"city": {"type": "string", "maxLength": 12}, "unit": {"enum": ["C", "F"]}},
    "required": ["city", "unit"], "additionalProperties": False}}}


def tool(strict=None, **parameters):
    function = TOOL["function"] | ({} if strict is None else {"strict": strict})
    return {"type": "function", "function": function | ({"parameters": parameters} if parameters else {})}


def post(server, path, body):
    request = urllib.request.Request(server.url + path, json.dumps(body).encode(), {"Content-Type": "application/json"})
    return json.load(urllib.request.urlopen(request, timeout=120))


@pytest.fixture(scope="module")
def caller():
    running = RunningServer("--max-model-len", 2048, "--tool-call-parser", "hermes").wait_ready()
    yield running.client()
    running.kill()


def test_an_answer_that_cannot_go_on_keeps_its_text(server):
    client = server.client()
    ask = {"model": NAME, "max_tokens": 60, "temperature": 1.5, "seed": 1, "extra_body": {"grammar": "root ::= s0\n" + LOST}}
    answer = client.chat.completions.create(messages=ASK, **ask)
    assert answer.choices[0].finish_reason == "error"
    assert re.fullmatch("a{8,20}", answer.choices[0].message.content)
    assert answer.usage.completion_tokens > 0
    events = [event.choices[0] for event in client.chat.completions.create(messages=ASK, stream=True, **ask) if event.choices]
    assert "".join(event.delta.content or "" for event in events) == answer.choices[0].message.content
    assert events[-1].finish_reason == "error"
    words = client.completions.create(prompt="x", **ask).choices[0]
    assert words.finish_reason == "error" and re.fullmatch("a{8,20}", words.text)
    native = post(server, "/completion", {"prompt": "x", "grammar": "root ::= s0\n" + LOST, "n_predict": 60})
    assert native["stop_type"] == "none" and re.fullmatch("a{8,20}", native["content"])


def test_the_other_choices_go_on(server):
    answer = server.client().chat.completions.create(
        model=NAME, messages=ASK, n=8, max_tokens=60, temperature=2.0, seed=3, extra_body={"grammar": 'root ::= s0 | [b-z] [0-9]{30}\n' + LOST})
    ends = {choice.finish_reason for choice in answer.choices}
    assert ends == {"error", "stop"}
    for choice in answer.choices:
        assert re.fullmatch("a+" if choice.finish_reason == "error" else "[b-z][0-9]{30}", choice.message.content)


@pytest.mark.parametrize("more", [{"ignore_eos": True}, {"min_tokens": 20}, {"ignore_eos": True, "min_tokens": 20}])
@pytest.mark.parametrize("form", [{"guided_choice": ["yes"]}, {"guided_regex": "[0-9]{3}"}, {"guided_json": {"enum": [12]}}])
def test_a_complete_form_ends(server, more, form):
    answer = server.client().chat.completions.create(model=NAME, messages=ASK, max_tokens=100, extra_body=form | more)
    assert answer.choices[0].finish_reason == "stop"
    assert re.fullmatch("yes|[0-9]{3}|12", answer.choices[0].message.content)
    assert answer.usage.completion_tokens <= 4


@pytest.mark.parametrize("stop", [["city"], ['"', "\n"], ["{", "_", "arguments"]])
@pytest.mark.parametrize("stream", [False, True])
def test_stop_strings_are_of_words_and_not_of_forced_calls(caller, stop, stream):
    answer = caller.chat.completions.create(model=NAME, messages=ASK, tools=[tool()], tool_choice="required", stop=stop, seed=1,
                                            temperature=1.5, max_tokens=400, parallel_tool_calls=False, stream=stream)
    if stream:
        choices = [event.choices[0] for event in answer if event.choices]
        arguments = "".join(call.function.arguments or "" for choice in choices for call in choice.delta.tool_calls or [])
        end = choices[-1].finish_reason
    else:
        (call,) = answer.choices[0].message.tool_calls
        arguments, end = call.function.arguments, answer.choices[0].finish_reason
    assert end == "tool_calls"
    assert set(json.loads(arguments)) == {"city", "unit"}


def test_stop_strings_are_not_of_strict_calls(caller):
    """The model repeats the calls that it has seen; of words it is stopped."""
    messages = []
    for city in ("Rome", "Bern", "Oslo", "Wien", "Bonn", "Paris"):
        call = json.dumps({"name": "get_weather", "arguments": {"city": city, "unit": "C"}})
        messages += [{"role": "user", "content": f"Weather in {city}?"},
                     {"role": "assistant", "content": f"<tool_call>\n{call}\n</tool_call>"}]
    messages.append({"role": "user", "content": "Weather in Lyon?"})

    def ask(strict):
        return caller.chat.completions.create(model=NAME, messages=messages, tools=[tool(strict)], temperature=0, max_tokens=200,
                                              stop=["city", "unit"]).choices[0]

    answer = ask(True)
    assert answer.finish_reason == "tool_calls"
    assert json.loads(answer.message.tool_calls[0].function.arguments)["city"] == "Lyon"
    free = ask(None)
    assert free.stop_reason == "city"


@pytest.mark.parametrize("choice", ["required", {"type": "function", "function": {"name": "get_weather"}}])
def test_a_tool_whose_schema_is_not_supported_may_be_forced(caller, choice):
    odd = {"type": "object", "properties": {"a": {"type": "array", "uniqueItems": True}}}
    ask = {"model": NAME, "messages": ASK, "tool_choice": choice, "max_tokens": 300, "parallel_tool_calls": False}
    answer = caller.chat.completions.create(tools=[tool(**odd)], seed=2, **ask).choices[0]
    assert answer.finish_reason == "tool_calls"
    assert isinstance(json.loads(answer.message.tool_calls[0].function.arguments), dict)
    with pytest.raises(openai.BadRequestError, match="uniqueItems"):
        caller.chat.completions.create(tools=[tool(True, **odd)], **ask)


@pytest.mark.parametrize("fields, param", [
    ({"grammar_lazy": True}, "grammar_lazy"),
    ({"grammar_triggers": [{"type": 0, "value": "q"}]}, "grammar_triggers"),
    ({"guided_whitespace_pattern": " "}, "guided_whitespace_pattern"),
])
def test_what_would_change_a_form_is_refused(server, fields, param):
    with pytest.raises(openai.BadRequestError, match=f"{param} is not supported") as error:
        server.client().chat.completions.create(model=NAME, messages=ASK, max_tokens=4, extra_body={"guided_regex": "a"} | fields)
    assert error.value.param == param
    with pytest.raises(urllib.error.HTTPError) as refused:
        post(server, "/completion", {"prompt": "x", "grammar": 'root ::= "a"', "n_predict": 4} | fields)
    assert refused.value.code == 400 and param in refused.value.read().decode()


def test_defaults_of_what_is_refused_are_taken(server):
    answer = post(server, "/completion", {"prompt": "x", "grammar": 'root ::= "a"', "n_predict": 4, "grammar_lazy": False,
                                          "grammar_triggers": [], "guided_whitespace_pattern": None})
    assert answer["content"] == "a"


def test_integers_of_any_length_are_read(server):
    schema = {"type": "integer", "minimum": 3, "maximum": 9, "default": 2**64, "examples": [2**70, -2**63 - 1]}
    answer = server.client().chat.completions.create(model=NAME, messages=ASK, max_tokens=9, extra_body={"guided_json": schema})
    assert 3 <= int(answer.choices[0].message.content) <= 9


@pytest.mark.parametrize("fields", [{"prompt_logprobs": -1}, {"prompt_logprobs": 21}, {"logprobs": -1}])
def test_bounds_of_logprobs_are_the_real_ones(server, fields):
    with pytest.raises(openai.BadRequestError, match=r"must be an integer in \[0, 20\]"):
        server.client().completions.create(model=NAME, prompt="x", max_tokens=1, extra_body=fields)


def test_words_that_are_cut_say_so(caller):
    """Beside a strict tool words may end anywhere: that is no reason to end them for want of tokens."""
    ask = {"model": NAME, "messages": [{"role": "user", "content": "Write a long poem about the sea"}], "temperature": 0}
    free = caller.chat.completions.create(max_tokens=12, **ask).choices[0]
    strict = caller.chat.completions.create(max_tokens=12, tools=[tool(True)], **ask)
    assert strict.choices[0].finish_reason == free.finish_reason == "length"
    assert strict.usage.completion_tokens == 12
    events = caller.responses.create(model=NAME, input="Write a long poem about the sea", max_output_tokens=16, temperature=0,
                                     tools=[{"type": "function", "name": "f", "strict": True, "parameters": {
                                         "type": "object", "properties": {}, "required": [], "additionalProperties": False}}])  # fmt: skip
    assert events.status == "incomplete" and events.incomplete_details.reason == "max_output_tokens"


@pytest.mark.parametrize("pattern, most, least", [("[a-z]*", 5, 5), ("[a-z ]{3,100}", 8, 8), ("([a-z][0-9])*", 6, 5)])
def test_a_least_length_goes_before_an_end_in_time(server, pattern, most, least):
    answer = server.client().completions.create(model=NAME, prompt="x", max_tokens=most, temperature=1.5, seed=1,
                                                extra_body={"guided_regex": pattern, "min_tokens": least})
    assert answer.choices[0].finish_reason in ("length", "stop")
    assert answer.usage.completion_tokens >= least
    assert re.fullmatch(r"[a-z0-9 ]+", answer.choices[0].text)
