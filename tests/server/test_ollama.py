"""Ollama's API, as its own client sees it: a scripted model for calls and thoughts, the real one for the rest."""

import json

import httpx
import ollama
import pytest

from conftest import NAME
from test_tools import ANSWER, CALLS

QUESTION = [{"role": "user", "content": "What is the capital of France? Answer in one word."}]
GREEDY = {"temperature": 0, "num_predict": 16}


@pytest.fixture
def client(server):
    return ollama.Client(server.url)


def get_weather(city: str) -> str:
    """How warm it is.

    Args:
      city: where
    """
    return f"18 degrees in {city}"


def get_time(city: str) -> str:
    """How late it is.

    Args:
      city: where
    """
    return f"12:00 in {city}"


TOOLS = {function.__name__: function for function in (get_weather, get_time)}


def converse(ask):
    """The loop of an agent, as Ollama's documentation writes it."""
    messages = [{"role": "user", "content": "How warm, and how late?"}]
    for _ in range(5):
        message = ask(messages)
        messages.append(message)
        if not message.tool_calls:
            return messages
        for call in message.tool_calls:
            answer = TOOLS[call.function.name](**call.function.arguments)
            messages.append({"role": "tool", "tool_name": call.function.name, "content": answer})
    raise AssertionError("the model calls without end")


def check(messages):
    first, last = messages[1], messages[4]
    assert first.content == "I look it up." and first.thinking == "Two questions."
    assert [call.function.name for call in first.tool_calls] == ["get_weather", "get_time"]
    assert first.tool_calls[0].function.arguments == {"city": "Köln"}
    assert messages[3]["content"] == '12:00 in Köln "am Rhein"'
    assert last.content == "18 degrees at 12:00." and last.thinking == "Now I know."


def test_an_agent_goes_round(scripted_url):
    client = ollama.Client(scripted_url(CALLS, ANSWER))
    check(converse(lambda messages: client.chat("tiny", messages, tools=list(TOOLS.values()), think=True).message))


def test_an_agent_goes_round_with_streams(scripted_url):
    client = ollama.Client(scripted_url(CALLS, ANSWER))

    def ask(messages):
        content, thinking, calls, last = "", "", [], None
        for part in client.chat("tiny", messages, tools=list(TOOLS.values()), stream=True):
            content += part.message.content or ""
            thinking += part.message.thinking or ""
            calls += part.message.tool_calls or []
            last = part
        assert last.done and last.done_reason == "stop"
        return ollama.Message(role="assistant", content=content, thinking=thinking, tool_calls=calls or None)

    check(converse(ask))


def test_chat(client):
    answer = client.chat(NAME, QUESTION, options=GREEDY)
    assert "Paris" in answer.message.content and answer.message.role == "assistant"
    assert answer.model == NAME and answer.done and answer.done_reason in ("stop", "length")
    assert 0 < answer.eval_count <= 16 and answer.prompt_eval_count > 10
    assert 0 < answer.eval_duration < answer.total_duration < 60e9
    assert answer.total_duration >= answer.prompt_eval_duration > 0


def test_a_stream_says_the_same(client):
    whole = client.chat(NAME, QUESTION, options=GREEDY)
    parts = list(client.chat(NAME, QUESTION, options=GREEDY, stream=True))
    assert "".join(part.message.content for part in parts) == whole.message.content
    assert [part.done for part in parts] == [False] * (len(parts) - 1) + [True]
    assert parts[-1].eval_count == whole.eval_count and len(parts) > 2


def test_the_same_tokens_as_the_openai_api(client, server):
    """A length that the prompt is in too; Ollama's default sampling matters to no greedy answer."""
    ours = client.chat(NAME, QUESTION, options=GREEDY).message.content
    theirs = server.client().chat.completions.create(model=NAME, messages=QUESTION, temperature=0, max_tokens=16)
    assert ours == theirs.choices[0].message.content


def test_generate(client):
    answer = client.generate(NAME, QUESTION[0]["content"], options=GREEDY)
    assert "Paris" in answer.response and answer.done
    raw = client.generate(NAME, "1, 2, 3, 4, 5, 6, 7, 8,", raw=True, options={**GREEDY, "num_predict": 6})
    assert "9" in raw.response and raw.eval_count == 6 and raw.done_reason == "length"
    text = "".join(part.response for part in client.generate(NAME, "1, 2, 3, 4, 5, 6, 7, 8,", raw=True, stream=True, options=GREEDY))
    assert text.startswith(raw.response)


def test_no_tokens_warm_the_cache(client):
    answer = client.generate(NAME, "one two three four", raw=True, options={"num_predict": 0})
    assert answer.response == "" and answer.eval_count == 0 and answer.done_reason == "length"


def test_options(client):
    def sample(**options):
        return client.generate(NAME, "Once upon a time", raw=True, options={"num_predict": 24, "temperature": 1.3, **options}).response

    assert sample(seed=11) == sample(seed=11)
    assert len({sample(seed=seed) for seed in range(4)}) > 1
    stopped = client.generate(NAME, "1, 2, 3, 4, 5, 6, 7, 8,", raw=True, options={"temperature": 0, "num_predict": 40, "stop": [" 11"]})
    assert "10" in stopped.response and "11" not in stopped.response and stopped.done_reason == "stop"


def test_logprobs(client):
    answer = client.chat(NAME, QUESTION, options=GREEDY, logprobs=True, top_logprobs=3)
    assert len(answer.logprobs) == answer.eval_count
    assert answer.logprobs[0].top_logprobs[0].logprob == answer.logprobs[0].logprob <= 0
    assert len(answer.logprobs[0].top_logprobs) == 3


def test_what_is_served(client, server):
    assert [model.model for model in client.list().models] == [NAME]
    shown = client.show(NAME)
    assert shown.details.format == "gguf" and shown.details.family == "llama"
    assert shown.modelinfo["general.parameter_count"] > 130e6 and "completion" in shown.capabilities
    assert client.ps().models[0].context_length == 2048
    assert client.generate(NAME, "", keep_alive="5m").done_reason == "load"
    assert client.chat(NAME + ":latest", QUESTION, options=GREEDY).done
    assert httpx.head(server.url + "/").status_code == 200
    assert httpx.get(server.url + "/").text == "Ollama is running"


def test_a_model_is_made(server, client):
    steps = list(client.create("sum", from_=NAME, system="You add numbers.", stream=True,
                               parameters={"temperature": 0, "num_predict": 4, "stop": ["\n"]}))
    assert steps[-1].status == "success"
    assert "sum" in [model.model for model in client.list().models]
    shown = client.show("sum")
    assert "FROM " + NAME in shown.modelfile and 'SYSTEM """You add numbers."""' in shown.modelfile
    assert "num_predict 4" in shown.parameters and shown.template
    made = client.chat("sum:latest", QUESTION)
    turns = [{"role": "system", "content": "You add numbers."}, *QUESTION]
    by_hand = client.chat(NAME, turns, options={"temperature": 0, "num_predict": 4, "stop": ["\n"]})
    assert (made.message.content, made.prompt_eval_count) == (by_hand.message.content, by_hand.prompt_eval_count)
    assert made.model == "sum:latest" and made.eval_count <= 4
    # What a request says goes before what the model says.
    assert client.chat("sum", turns, options={"num_predict": 2}).eval_count == 2
    assert client.generate("sum", "2 + 2", system="You are brief.").eval_count <= 4
    openai = server.client()
    answer = openai.chat.completions.create(model="sum", messages=QUESTION)
    assert answer.model == "sum" and answer.choices[0].message.content == made.message.content
    assert "sum" in [model.id for model in openai.models.list()]
    client.copy("sum", "copy")
    assert client.show("copy").modelfile == shown.modelfile
    client.create("child", from_="copy", parameters={"num_predict": 1})
    assert client.chat("child", QUESTION).eval_count == 1
    for name in ("sum", "copy", "child"):
        client.delete(name)
        with pytest.raises(ollama.ResponseError) as gone:
            client.chat(name, QUESTION)
        assert gone.value.status_code == 404


def test_what_is_served_needs_no_pull(client):
    assert client.pull(NAME).status == "success"
    assert [line.status for line in client.pull(NAME, stream=True)][-1] == "success"


def test_examples_as_ollamas_pages_print_them(server):
    """`curl URL -d BODY` says that a body is a form."""
    form = {"Content-Type": "application/x-www-form-urlencoded"}
    for method, path, body in (
        ("POST", "/api/generate", {"model": NAME, "prompt": "Why is the sky blue?", "stream": False, "options": {"num_predict": 4}}),
        ("POST", "/api/chat", {"model": NAME, "messages": QUESTION, "stream": False, "options": {"num_predict": 4}}),
        ("POST", "/api/show", {"model": NAME}),
        ("POST", "/api/create", {"model": "printed", "from": NAME, "system": "You are Mario.", "stream": False}),
        ("DELETE", "/api/delete", {"model": "printed"}),
    ):
        answer = httpx.request(method, server.url + path, content=json.dumps(body), headers=form, timeout=60)
        assert answer.status_code == 200, (path, answer.text)
        page = httpx.request(method, server.url + path, content=json.dumps(body), headers=form | {"Origin": "https://evil.example"})
        assert page.status_code == 403, path


def test_a_made_model_answers_every_protocol(server, client):
    client.create("mario", from_=NAME, system="You are Mario.", parameters={"temperature": 0, "num_predict": 3})
    http = httpx.Client(base_url=server.url, timeout=60)
    assert http.get("/v1/models/mario").json()["root"] == NAME
    by_hand = http.post("/v1/messages", json={"model": NAME, "system": "You are Mario.", "messages": QUESTION, "temperature": 0, "max_tokens": 3}).json()
    made = http.post("/v1/messages", json={"model": "mario", "messages": QUESTION}).json()
    assert made["content"] == by_hand["content"] and made["usage"]["output_tokens"] == by_hand["usage"]["output_tokens"]
    response = http.post("/v1/responses", json={"model": "mario", "input": QUESTION}).json()
    assert response["output"][0]["content"][0]["text"] == made["content"][0]["text"] and response["model"] == "mario"
    assert http.post("/completion", json={"model": "mario", "prompt": "a"}).json()["tokens_predicted"] <= 3
    client.delete("mario")


@pytest.mark.parametrize(
    "ask, status, word",
    [
        (lambda client: client.chat("other", QUESTION), 404, "other"),
        (lambda client: client.show("other"), 404, "other"),
        (lambda client: client.pull("llama3"), 404, "llama3"),
        (lambda client: client.push("llama3"), 400, "/api/push"),
        (lambda client: client.create("x", from_="llama3"), 404, "from"),
        (lambda client: client.create(NAME, from_=NAME), 400, "name of a served model"),
        (lambda client: client.create("x", from_=NAME, template="{{ .Prompt }}"), 400, "template"),
        (lambda client: client.create("x", from_=NAME, adapters={"a": "sha256:b"}), 400, "adapters"),
        (lambda client: client.create("x", from_=NAME, quantize="q4_0"), 400, "quantize"),
        (lambda client: client.create("x", from_=NAME, parameters={"top_p": 3}), 400, "parameters.top_p"),
        (lambda client: client.create("x", from_=NAME, parameters={"mirostat": 1}), 400, "parameters.mirostat"),
        (lambda client: client.copy("llama3", "x"), 404, "source"),
        (lambda client: client.delete(NAME), 400, "served for as long"),
        (lambda client: client.delete("llama3"), 404, "llama3"),
        (lambda client: client.embed(NAME, "x"), 400, "--embedding"),
        (lambda client: client.embeddings(NAME, "x"), 400, "--embedding"),
        (lambda client: client.chat(NAME, QUESTION, think=True), 400, "think"),
        (lambda client: client.chat(NAME, QUESTION, options={"num_ctx": 0}), 400, "options.num_ctx"),
        (lambda client: client.chat(NAME, QUESTION, options={"mirostat": 1}), 400, "options.mirostat"),
        (lambda client: list(client.chat(NAME, QUESTION, options={"top_p": 3}, stream=True)), 400, "options.top_p"),
        (lambda client: client.generate(NAME, "x", suffix="y"), 400, "suffix is not supported by this model"),
        (lambda client: client.generate(NAME, "x", context=[1, 2]), 400, "context"),
    ],
)
def test_refusals_name_what_they_refuse(client, ask, status, word):
    with pytest.raises(ollama.ResponseError) as refused:
        ask(client)
    assert refused.value.status_code == status and word in refused.value.error
