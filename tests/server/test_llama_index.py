"""LlamaIndex's OpenAI-like classes. They want an older openai than the other suites: ./test --full gives them an
environment of their own (tests/requirements_full.txt)."""

import asyncio

import pytest
from llama_index.core.agent.workflow import FunctionAgent
from llama_index.core.base.llms.types import ChatMessage
from llama_index.core.tools import FunctionTool
from llama_index.embeddings.openai_like import OpenAILikeEmbedding
from llama_index.llms.openai_like import OpenAILike

from conftest import NAME
from scripted_answers import AGAIN, ANSWER, CALLS


def model_of(url, name, **options):
    return OpenAILike(
        model=name, api_base=url + "/v1", api_key="unused", is_chat_model=True, max_retries=0, timeout=60,
        context_window=2048, **options,
    )


def test_chats_and_completions(server):
    model = model_of(server.url, NAME, temperature=0, max_tokens=12)
    messages = [ChatMessage(role="user", content="Name a colour.")]
    whole = model.chat(messages).message.content
    assert whole
    pieces = list(model.stream_chat(messages))
    assert pieces[-1].message.content == whole == "".join(piece.delta for piece in pieces)
    assert asyncio.run(model.achat(messages)).message.content == whole

    plain = OpenAILike(model=NAME, api_base=server.url + "/v1", api_key="unused", temperature=0, max_tokens=5, context_window=2048)
    text = plain.complete("The capital of France is").text
    assert text and list(plain.stream_complete("The capital of France is"))[-1].text == text


def test_an_agent_ends_its_task(scripted_url):
    cities = []

    def get_weather(city: str) -> str:
        """The weather of a city."""
        cities.append(city)
        return "18 degrees"

    def get_time(city: str = "here") -> str:
        """The time in a city."""
        cities.append(city)
        return "12:00"

    model = model_of(scripted_url(CALLS, AGAIN, ANSWER), "tiny", is_function_calling_model=True, max_tokens=2000)
    agent = FunctionAgent(tools=[FunctionTool.from_defaults(each) for each in (get_weather, get_time)], llm=model)

    async def run():
        return await agent.run("How warm, and how late?")

    assert str(asyncio.run(run())) == "18 degrees at 12:00."
    assert sorted(cities) == ["Köln", 'Köln "am Rhein"', "here"]


def test_embeddings(minilm):
    model = OpenAILikeEmbedding(model_name=NAME, api_base=minilm.url + "/v1", api_key="unused", embed_batch_size=2)
    rows = model.get_text_embedding_batch(["A cat sits.", "A cat is sitting.", "Stocks fell."])
    assert rows[0] == pytest.approx(model.get_query_embedding("A cat sits."), abs=1e-5)
    near, far = (sum(a * b for a, b in zip(rows[0], other, strict=True)) for other in rows[1:])
    assert near > 0.9 > 0.3 > far
