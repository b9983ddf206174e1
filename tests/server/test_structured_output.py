"""Answers of a form that the request asks for, from a real model at temperatures at which it would never keep to one.

Pydantic, which made the schemas, is the judge."""

import enum
import json
import re
from typing import Annotated, Literal, Optional

import openai
import pytest
from pydantic import BaseModel, ConfigDict, Field

from conftest import NAME

WILD = {"model": NAME, "temperature": 1.5, "max_tokens": 400}


class Colour(enum.Enum):
    RED = "red"
    BLUE = "blue"


class Address(BaseModel):
    model_config = ConfigDict(extra="forbid")
    street: Annotated[str, Field(max_length=12)]
    number: Annotated[int, Field(ge=1, le=999)]


class Person(BaseModel):
    model_config = ConfigDict(extra="forbid")
    name: Annotated[str, Field(min_length=1, max_length=10)]
    age: Annotated[int, Field(ge=0, le=130)]
    favourite: Colour
    code: Annotated[str, Field(pattern=r"^[A-Z]{2}-\d{1,3}$")]
    nickname: Optional[Annotated[str, Field(max_length=6)]]
    homes: Annotated[list[Address], Field(min_length=1, max_length=2)]


PERSON = {"type": "json_schema", "json_schema": {"name": "person", "strict": True, "schema": Person.model_json_schema()}}
ASK = [{"role": "user", "content": "Tell me of somebody."}]


class GetWeather(BaseModel):
    model_config = ConfigDict(extra="forbid")
    city: Annotated[str, Field(max_length=12)]
    days: Annotated[int, Field(ge=1, le=7)]
    unit: Literal["C", "F"]


def tool(strict=None):
    function = {"name": "get_weather", "parameters": GetWeather.model_json_schema()}
    return {"type": "function", "function": function | ({} if strict is None else {"strict": strict})}


@pytest.fixture(scope="module")
def client(server):
    return server.client()


def test_a_schema_holds_at_any_temperature(client):
    for seed in range(4):
        answer = client.chat.completions.create(messages=ASK, response_format=PERSON, seed=seed, **WILD).choices[0]
        assert answer.finish_reason == "stop"
        Person.model_validate_json(answer.message.content)


def test_the_client_parses(client):
    answer = client.chat.completions.parse(messages=ASK, response_format=Person, seed=7, **WILD).choices[0]
    assert isinstance(answer.message.parsed, Person)


def test_each_choice_and_stream_is_of_the_form(client):
    whole = client.chat.completions.create(messages=ASK, response_format=PERSON, n=3, seed=3, logprobs=True, **WILD)
    texts = [choice.message.content for choice in whole.choices]
    assert len(set(texts)) == 3
    for text in texts:
        Person.model_validate_json(text)
    streamed = {0: "", 1: "", 2: ""}
    for event in client.chat.completions.create(messages=ASK, response_format=PERSON, n=3, seed=3, stream=True, **WILD):
        for choice in event.choices:
            streamed[choice.index] += choice.delta.content or ""
    assert list(streamed.values()) == texts


def test_any_object(client):
    for seed in range(3):
        answer = client.chat.completions.create(messages=ASK, response_format={"type": "json_object"}, seed=seed,
                                                model=NAME, temperature=0.7, max_tokens=300).choices[0]
        assert answer.finish_reason == "stop"
        assert isinstance(json.loads(answer.message.content), dict)


# Nothing of it has a bound but its tokens.
ENDLESS = {"type": "object", "properties": {"names": {"type": "array", "items": {"type": "string"}, "minItems": 3},
                                            "note": {"type": "string"}}, "required": ["names", "note"]}


@pytest.mark.parametrize("most", [24, 40, 90])
def test_a_form_is_ended_by_its_last_token(client, most):
    form = {"type": "json_schema", "json_schema": {"name": "endless", "schema": ENDLESS}}
    for fields in ({}, {"n": 4}, {"frequency_penalty": 1.0}, {"stream": True}):
        ask = {"messages": ASK, "response_format": form, "seed": 5, **WILD, "max_tokens": most, **fields}
        texts, ends = {}, {}
        answer = client.chat.completions.create(**ask)
        for part in answer if "stream" in fields else [answer]:
            for choice in part.choices:
                said = choice.delta if "stream" in fields else choice.message
                texts[choice.index] = texts.get(choice.index, "") + (said.content or "")
                ends[choice.index] = choice.finish_reason
        assert set(ends.values()) == {"stop"}, texts
        for text in texts.values():
            value = json.loads(text)
            assert len(value["names"]) >= 3 and isinstance(value["note"], str)


def test_a_form_that_needs_more_tokens_is_cut(client):
    answer = client.chat.completions.create(messages=ASK, response_format=PERSON, **WILD | {"max_tokens": 10}).choices[0]
    assert answer.finish_reason == "length"


@pytest.mark.parametrize("fields, pattern", [
    ({"guided_regex": r"[a-f]{3}-\d+"}, r"[a-f]{3}-\d+"),
    ({"structured_outputs": {"regex": r"(yes|no)!{1,3}"}}, r"(yes|no)!{1,3}"),
    ({"guided_choice": ["red", "reddish", "blue"]}, "red|reddish|blue"),
    ({"structured_outputs": {"choice": ["Zürich", "Genève"]}}, "Zürich|Genève"),
    ({"guided_grammar": 'root ::= "<" [a-c]+ ">" | "none"'}, "<[a-c]+>|none"),
    ({"grammar": 'root ::= item ("," item)*\nitem ::= [0-9]{2}'}, r"\d\d(,\d\d)*"),
    ({"json_schema": {"const": 7}}, "7"),
    ({"guided_json": json.dumps({"enum": ["a", None]})}, '"a"|null'),
    ({"ebnf": 'root ::= "x"'}, "x"),
])
def test_other_forms(client, fields, pattern):
    for seed in range(3):
        answer = client.chat.completions.create(messages=ASK, model=NAME, temperature=1.5, max_tokens=40, seed=seed,
                                                extra_body=fields).choices[0]
        if answer.finish_reason == "stop":
            assert re.fullmatch(pattern, answer.message.content), answer.message.content


def test_completions_and_penalties(client):
    answer = client.completions.create(model=NAME, prompt="My answer: ", max_tokens=20, temperature=0,
                                       frequency_penalty=1, presence_penalty=1, logit_bias={"28": 100}, logprobs=2,
                                       extra_body={"guided_choice": ["alpha", "beta"], "repetition_penalty": 1.3})
    assert answer.choices[0].text in ("alpha", "beta")
    assert len(answer.choices[0].logprobs.tokens) == answer.usage.completion_tokens


def test_other_apis(server):
    import urllib.request

    def post(path, body):
        request = urllib.request.Request(server.url + path, json.dumps(body).encode(), {"Content-Type": "application/json"})
        return json.load(urllib.request.urlopen(request, timeout=120))

    schema = Person.model_json_schema()
    answer = post("/api/chat", {"model": NAME, "messages": ASK, "format": schema, "stream": False, "options": {"num_predict": 400}})
    Person.model_validate_json(answer["message"]["content"])
    answer = post("/api/generate", {"model": NAME, "prompt": "A person:", "format": schema, "stream": False,
                                    "options": {"num_predict": 400}})
    Person.model_validate_json(answer["response"])
    answer = post("/completion", {"prompt": "A person:", "json_schema": schema, "n_predict": 400})
    Person.model_validate_json(answer["content"])
    answer = post("/completion", {"prompt": "Word:", "grammar": 'root ::= "a" | "b"', "n_predict": 9})
    assert answer["content"] in "ab"
    answer = post("/generate", {"text": "A person:", "sampling_params": {"json_schema": json.dumps(schema), "max_new_tokens": 400}})
    Person.model_validate_json(answer["text"])
    answer = post("/generate", {"inputs": "Digits:", "parameters": {"grammar": {"type": "regex", "value": "[0-9]{3}"},
                                                                    "max_new_tokens": 9}})
    assert re.fullmatch("[0-9]{3}", answer["generated_text"])
    answer = post("/v1/responses", {"input": "Tell me of somebody.", "max_output_tokens": 400,
                                    "text": {"format": {"type": "json_schema", "name": "p", "schema": schema}}})
    Person.model_validate_json(answer["output"][0]["content"][0]["text"])
    answer = post("/v1/messages", {"messages": ASK, "max_tokens": 400,
                                   "output_config": {"format": {"type": "json_schema", "schema": schema}}})
    Person.model_validate_json(answer["content"][0]["text"])


@pytest.mark.parametrize("fields, param, message", [
    ({"response_format": {"type": "json_schema", "json_schema": {"name": "x", "schema": {"properties": {"a": {"not": {}}}}}}},
     "response_format", '#/properties/a: "not" is not supported'),
    ({"response_format": {"type": "json_schema", "json_schema": {"name": "x"}}}, "response_format", "schema is missing"),
    ({"response_format": {"type": "xml"}}, "response_format", "response_format.type must be one of"),
    ({"extra_body": {"guided_regex": "(?=a)"}}, "guided_regex", "not supported"),
    ({"extra_body": {"guided_regex": "(a"}}, "guided_regex", r"without its \)"),
    ({"extra_body": {"guided_grammar": "root ::= nothing"}}, "guided_grammar", '"nothing" is not there'),
    ({"extra_body": {"grammar": "root ::= root \"a\""}}, "grammar", "nothing can match|left-recursive"),
    ({"extra_body": {"guided_choice": []}}, "guided_choice", "an array of 1 to"),
    ({"extra_body": {"guided_json": {}, "guided_regex": "a"}}, "guided_regex", "both ask for a form"),
    ({"extra_body": {"structured_outputs": {"regex": "a{99999999}"}}}, "structured_outputs", "too large"),
    ({"extra_body": {"structured_outputs": {"lark": "x"}}}, "structured_outputs", "structured_outputs.lark is not supported"),
])
def test_errors_name_the_field(client, fields, param, message):
    with pytest.raises(openai.BadRequestError) as error:
        client.chat.completions.create(model=NAME, messages=ASK, max_tokens=4, **fields)
    assert error.value.param == param
    assert re.search(message, error.value.message), error.value.message


@pytest.fixture(scope="module")
def caller():
    """A server that reads calls as Hermes writes them."""
    from conftest import RunningServer

    running = RunningServer("--max-model-len", 2048, "--tool-call-parser", "hermes").wait_ready()
    yield running.client()
    running.kill()


@pytest.mark.parametrize("choice", ["required", {"type": "function", "function": {"name": "get_weather"}}])
@pytest.mark.parametrize("strict", [None, True])
def test_forced_calls(caller, choice, strict):
    other = {"type": "function", "function": {"name": "get_time", "parameters": {"type": "object", "properties": {}}}}
    for seed in range(2):
        answer = caller.chat.completions.create(messages=ASK, tools=[other, tool(strict)], tool_choice=choice,
                                                parallel_tool_calls=False, seed=seed, **WILD).choices[0]
        assert answer.finish_reason == "tool_calls"
        assert not answer.message.content
        (call,) = answer.message.tool_calls
        if call.function.name == "get_weather":
            GetWeather.model_validate_json(call.function.arguments)
        else:
            assert choice == "required" and json.loads(call.function.arguments) == {}


DIALECTS = ["llama3_json", "mistral", "granite", "phi4_mini_json", "deepseek_v3", "deepseek_v31", "deepseek_v32", "kimi_k2",
            "qwen3_coder", "seed_oss", "glm45", "minimax_m2", "openai", "pythonic", "lfm2", "olmo3", "functiongemma", "gemma4",
            "jamba", "cohere_command3", "apertus", "internlm", "gigachat3", "xlam", "step3", "dots", "minicpm5", "hy_v3", "kimi_k3"]


@pytest.mark.parametrize("dialect", DIALECTS)
def test_forced_calls_of_every_dialect(dialect):
    """The model writes none of these forms by itself: the grammar makes it."""
    from conftest import RunningServer

    reasoning = ["--reasoning-parser", "openai_gptoss"] if dialect == "openai" else []
    running = RunningServer("--max-model-len", 2048, "--tool-call-parser", dialect, *reasoning).wait_ready()
    try:
        client = running.client()
        named = {"type": "function", "function": {"name": "get_weather"}}
        for seed, choice in enumerate(["required", named]):
            answer = client.chat.completions.create(messages=ASK, tools=[tool()], tool_choice=choice, seed=seed,
                                                    parallel_tool_calls=False, stop=["a"], **WILD).choices[0]
            assert answer.finish_reason == "tool_calls"
            (call,) = answer.message.tool_calls
            assert call.function.name == "get_weather"
            GetWeather.model_validate_json(call.function.arguments)
        answer = client.chat.completions.create(messages=ASK, tools=[tool(True)], seed=1, **WILD).choices[0]
        for call in answer.message.tool_calls or []:
            GetWeather.model_validate_json(call.function.arguments)
    finally:
        running.kill()


def test_forced_calls_stream(caller):
    arguments = ""
    for event in caller.chat.completions.create(messages=ASK, tools=[tool()], tool_choice="required", seed=1,
                                                parallel_tool_calls=False, stream=True, **WILD):
        for choice in event.choices:
            for call in choice.delta.tool_calls or []:
                arguments += call.function.arguments or ""
    GetWeather.model_validate_json(arguments)


def test_strict_calls_are_of_their_form_where_they_come(caller):
    """Nothing makes the model call; the calls that it has seen, which it repeats, are of another form."""
    messages = []
    for city in ("Rome", "Bern", "Oslo", "Wien", "Bonn", "Paris"):
        call = json.dumps({"name": "get_weather", "arguments": {"town": city, "when": "today"}})
        messages += [{"role": "user", "content": f"Weather in {city}?"},
                     {"role": "assistant", "content": f"<tool_call>\n{call}\n</tool_call>"}]
    messages.append({"role": "user", "content": "Weather in Lyon?"})

    def calls(strict):
        answer = caller.chat.completions.create(messages=messages, tools=[tool(strict)], model=NAME, temperature=0,
                                                max_tokens=200).choices[0]
        return [(call.function.name, json.loads(call.function.arguments)) for call in answer.message.tool_calls or []]

    assert calls(None) == [("get_weather", {"town": "Lyon", "when": "today"})]
    (name, arguments), *_ = strict = calls(True)
    assert name == "get_weather" and arguments["city"] == "Lyon"
    for _, arguments in strict:
        GetWeather.model_validate(arguments)


def test_words_of_a_form_or_calls(caller):
    for seed in range(3):
        answer = caller.chat.completions.create(messages=ASK, tools=[tool()], response_format=PERSON, seed=seed, **WILD).choices[0]
        if answer.message.tool_calls:
            json.loads(answer.message.tool_calls[0].function.arguments)
        else:
            Person.model_validate_json(answer.message.content)


def test_tools_that_cannot_be_forced_are_refused(client):
    with pytest.raises(openai.BadRequestError, match="cannot be forced") as error:
        client.chat.completions.create(messages=ASK, tools=[tool()], tool_choice="required", **WILD)
    assert error.value.param == "tool_choice"


@pytest.mark.parametrize("flags", [(), ("--spec-method", "ngram")])
def test_preempted_answers_keep_their_form(start_server, flags):
    """A pool too small for all: sequences are preempted, computed anew and matched anew."""
    import concurrent.futures

    server = start_server("--max-model-len", 512, "--kv-cache-memory-bytes", 16 << 20, "--admission-headroom", 0, "--max-num-seqs", 16, *flags)
    client = server.client()

    def ask(seed):
        return client.chat.completions.create(messages=ASK, response_format=PERSON, seed=seed, model=NAME, temperature=1.5,
                                              max_tokens=300).choices[0]

    with concurrent.futures.ThreadPoolExecutor(16) as pool:
        answers = list(pool.map(ask, range(16)))
    assert server.metric("vllm:num_preemptions_total") > 0
    for answer in answers:
        assert answer.finish_reason == "stop"
        Person.model_validate_json(answer.message.content)
