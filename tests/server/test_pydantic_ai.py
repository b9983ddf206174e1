"""An agent framework that loops over tools by itself, until its task is done."""

import asyncio
import dataclasses

import pytest
from pydantic_ai import Agent, RunContext
from pydantic_ai.models.openai import OpenAIChatModel, OpenAIResponsesModel
from pydantic_ai.profiles.openai import OpenAIModelProfile
from pydantic_ai.providers.openai import OpenAIProvider
from pydantic_ai.usage import UsageLimits

from scripted_answers import AGAIN, ANSWER, CALLS

PROTOCOLS = {"chat": OpenAIChatModel, "responses": OpenAIResponsesModel}
# As docs/tools.md says: a strict form of arguments is refused by name.
PROFILE = OpenAIModelProfile(openai_supports_strict_tool_definition=False)


@dataclasses.dataclass
class Visits:
    cities: list[str] = dataclasses.field(default_factory=list)


def agent_of(url, protocol):
    model = PROTOCOLS[protocol]("tiny", provider=OpenAIProvider(base_url=url + "/v1", api_key="unused"), profile=PROFILE)
    agent = Agent(model, deps_type=Visits, model_settings={"max_tokens": 2000})

    @agent.tool
    def get_weather(context: RunContext[Visits], city: str) -> str:
        """The weather of a city."""
        context.deps.cities.append(city)
        return "18 degrees"

    @agent.tool
    def get_time(context: RunContext[Visits], city: str = "here") -> str:
        """The time in a city."""
        context.deps.cities.append(city)
        return "12:00"

    return agent


@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_a_task_of_three_turns_ends(scripted_url, protocol):
    visits = Visits()
    agent = agent_of(scripted_url(CALLS, AGAIN, ANSWER), protocol)
    result = agent.run_sync("How warm, and how late?", deps=visits, usage_limits=UsageLimits(request_limit=3))
    assert result.output == "18 degrees at 12:00."
    assert sorted(visits.cities) == ["Köln", 'Köln "am Rhein"', "here"]
    assert result.usage.requests == 3
    assert result.usage.output_tokens > 0


@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_a_task_ends_with_streams(scripted_url, protocol):
    async def run():
        visits = Visits()
        agent = agent_of(scripted_url(CALLS, ANSWER), protocol)
        async with agent.run_stream("How warm, and how late?", deps=visits) as result:
            text = "".join([piece async for piece in result.stream_text(delta=True)])
        return visits, text

    visits, text = asyncio.run(run())
    # Its text streams begin with the first text of an answer, which here comes before the calls.
    assert text.endswith(("I look it up.", "18 degrees at 12:00."))
    assert sorted(visits.cities) in ([], ["Köln", 'Köln "am Rhein"'])
