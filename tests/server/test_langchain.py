"""LangChain's OpenAI classes, which read more of an answer than the client below them."""

import pytest
from langchain_core.messages import AIMessageChunk, HumanMessage, SystemMessage, ToolMessage
from langchain_core.tools import tool
from langchain_openai import ChatOpenAI, OpenAI, OpenAIEmbeddings
from pydantic import BaseModel

from conftest import NAME
from scripted_answers import ANSWER, CALLS


@tool
def get_weather(city: str) -> str:
    """The weather of a city."""
    return f"18 degrees in {city}"


@tool
def get_time(city: str) -> str:
    """The time in a city."""
    return f"12:00 in {city}"


TOOLS = {each.name: each for each in (get_weather, get_time)}


@pytest.fixture
def chat_of():
    return lambda url, **options: ChatOpenAI(
        base_url=url + "/v1", api_key="unused", max_retries=0, timeout=60, **{"model": "tiny", **options}
    )


def sum_of(chunks):
    whole = AIMessageChunk("")
    for chunk in chunks:
        whole += chunk
    return whole


def test_a_chat_as_a_whole_as_a_stream_and_in_batches(server, chat_of):
    chat = chat_of(server.url, model=NAME, temperature=0, max_tokens=12)
    messages = [SystemMessage("You answer briefly."), HumanMessage("Name a colour.")]
    whole = chat.invoke(messages)
    assert whole.content
    assert whole.response_metadata["finish_reason"] in ("length", "stop")
    usage = whole.usage_metadata
    assert usage["input_tokens"] + usage["output_tokens"] == usage["total_tokens"] and usage["output_tokens"] <= 12
    streamed = sum_of(chat.stream(messages, stream_usage=True))
    assert streamed.content == whole.content
    assert streamed.usage_metadata["total_tokens"] == usage["total_tokens"]
    assert [each.content for each in chat.batch([messages] * 3)] == [whole.content] * 3


def test_log_probabilities(server, chat_of):
    chat = chat_of(server.url, model=NAME, temperature=0, max_tokens=3, logprobs=True, top_logprobs=2)
    entries = chat.invoke("Hello").response_metadata["logprobs"]["content"]
    assert len(entries) == 3
    for entry in entries:
        assert len(entry["top_logprobs"]) == 2
        assert entry["logprob"] == pytest.approx(entry["top_logprobs"][0]["logprob"])


@pytest.mark.parametrize("streamed", [False, True])
@pytest.mark.parametrize("protocol", ["chat", "responses"])
def test_an_agent_goes_round(scripted_url, chat_of, streamed, protocol):
    chat = chat_of(scripted_url(CALLS, ANSWER), max_tokens=2000, use_responses_api=protocol == "responses")
    agent = chat.bind_tools(list(TOOLS.values()))
    messages = [HumanMessage("How warm, and how late?")]
    ask = (lambda: sum_of(agent.stream(messages))) if streamed else (lambda: agent.invoke(messages))
    message = ask()
    assert [call["name"] for call in message.tool_calls] == ["get_weather", "get_time"]
    assert message.tool_calls[1]["args"] == {"city": 'Köln "am Rhein"'}
    assert not message.invalid_tool_calls
    messages.append(message)
    for call in message.tool_calls:
        messages.append(TOOLS[call["name"]].invoke(call))
        assert isinstance(messages[-1], ToolMessage)
    assert messages[-1].content == '12:00 in Köln "am Rhein"'
    final = ask()
    assert not final.tool_calls
    assert final.text == "18 degrees at 12:00."


def test_structured_output_by_a_tool_is_refused_by_name(scripted_url, chat_of):
    class Colour(BaseModel):
        name: str

    # A forced call and a schema are not there yet: an answer that only may fit would be worse than none.
    for method, field in (("function_calling", "tool_choice"), ("json_schema", "response_format")):
        asker = chat_of(scripted_url("x"), max_tokens=20).with_structured_output(Colour, method=method)
        with pytest.raises(Exception, match=field):
            asker.invoke("A colour?")


def test_completions(server):
    model = OpenAI(base_url=server.url + "/v1", api_key="unused", model=NAME, temperature=0, max_tokens=5, max_retries=0)
    whole = model.invoke("The capital of France is")
    assert whole and "".join(model.stream("The capital of France is")) == whole
    assert model.generate(["One two", "One two"]).generations[0][0].text == model.invoke("One two")


def test_embeddings(minilm):
    # Texts as they are: its own token ids are those of OpenAI's models.
    embeddings = OpenAIEmbeddings(base_url=minilm.url + "/v1", api_key="unused", model=NAME, check_embedding_ctx_length=False)
    rows = embeddings.embed_documents(["A cat sits.", "A cat is sitting.", "Stocks fell."])
    assert rows[0] == pytest.approx(embeddings.embed_query("A cat sits."), abs=1e-5)
    near, far = (sum(a * b for a, b in zip(rows[0], other, strict=True)) for other in rows[1:])
    assert near > 0.9 > 0.3 > far
