#!/usr/bin/env python3
"""How often an agent framework ends its tasks with a small model: 20 tasks, each with tools, looped over by pydantic-ai.

    bench/agent_loop.py -m MODEL [--answer text|call] [--task N --times T] [--protocol chat|responses] [--instructions TEXT] [--parallel]
                        [--headrace PROGRAM] [-- FLAGS OF SERVE]

A task is done where the answer names what only the tools know and the tools were called that it takes. Prints a line a task and the
sum, and appends it to bench/results/agents.jsonl. `--answer call`: the answer is a call, too (pydantic-ai's output_type), one call at a
time, so that every turn of the model is a call of the form that its tools have. `--task N`: one of the 20 alone, T times as the server
samples by default, with seeds 0 to T - 1. Otherwise temperature 0. `--instructions`: other words of the system turn. `--parallel`: with
`--answer call` a turn may have several calls. Needs pydantic-ai (tests/requirements.txt:
build/venv/bin/python runs it).
"""
import argparse
import dataclasses
import datetime
import json
import pathlib
import re
import subprocess
import sys
import time

from pydantic_ai import Agent, RunContext
from pydantic_ai.models.openai import OpenAIChatModel, OpenAIResponsesModel
from pydantic_ai.profiles.openai import OpenAIModelProfile
from pydantic_ai.providers.openai import OpenAIProvider
from pydantic_ai.usage import UsageLimits

ROOT = pathlib.Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT / "bench"))
from server import Server  # noqa: E402

WEATHER = {"paris": "17 degrees and rain", "oslo": "4 degrees and snow", "cairo": "31 degrees and sun", "lima": "22 degrees and fog"}
TIMES = {"paris": "09:41", "oslo": "09:42", "tokyo": "16:43", "lima": "02:44"}
PRICES = {"lamp": 34, "chair": 59, "table": 187, "shelf": 76}
PHONES = {"anna": "555-0137", "bruno": "555-0192", "carla": "555-0161"}
FILES = {"notes.txt": "The meeting is on the 19th of May.", "todo.txt": "Buy 23 screws.", "readme.md": "The project is called Heron."}
HOME = {"anna": "Oslo", "bruno": "Lima", "carla": "Paris"}


@dataclasses.dataclass
class Calls:
    names: list[str] = dataclasses.field(default_factory=list)


@dataclasses.dataclass
class Answer:
    """The answer to the user, once the tools have told all that it takes."""

    answer: str


INSTRUCTIONS = "Look up with the tools what you need, then answer the user in a sentence."


def look_up(context, tool, table, key, what):
    context.deps.names.append(tool)
    return str(table.get(key.split(",")[0].strip().lower(), f"there is no such {what}: there are {', '.join(table)}"))


def get_weather(context: RunContext[Calls], city: str) -> str:
    """The weather in a city now."""
    return look_up(context, "get_weather", WEATHER, city, "city")


def get_time(context: RunContext[Calls], city: str) -> str:
    """The local time in a city now."""
    return look_up(context, "get_time", TIMES, city, "city")


def get_price(context: RunContext[Calls], article: str) -> str:
    """The price of an article of the shop, in euros."""
    return look_up(context, "get_price", PRICES, article, "article")


def get_phone_number(context: RunContext[Calls], person: str) -> str:
    """The phone number of a person."""
    return look_up(context, "get_phone_number", PHONES, person, "person")


def get_home_city(context: RunContext[Calls], person: str) -> str:
    """The city in which a person lives."""
    return look_up(context, "get_home_city", HOME, person, "person")


def read_file(context: RunContext[Calls], name: str) -> str:
    """The text of a file."""
    return look_up(context, "read_file", FILES, name, "file")


def multiply(context: RunContext[Calls], a: int, b: int) -> int:
    """The product of two whole numbers."""
    context.deps.names.append("multiply")
    return a * b


def add(context: RunContext[Calls], a: int, b: int) -> int:
    """The sum of two whole numbers."""
    context.deps.names.append("add")
    return a + b


# The task, its tools, the calls that it takes, and what the answer says.
TASKS = [
    ("What is the weather in Paris?", [get_weather, get_time], ["get_weather"], ["17", "rain"]),
    ("What time is it in Tokyo?", [get_weather, get_time], ["get_time"], ["16:43"]),
    ("How much does a lamp cost?", [get_price, multiply], ["get_price"], ["34"]),
    ("What is Bruno's phone number?", [get_phone_number, get_home_city], ["get_phone_number"], ["555-0192"]),
    ("In which city does Carla live?", [get_phone_number, get_home_city], ["get_home_city"], ["paris"]),
    ("Read the file notes.txt and tell me on which day the meeting is.", [read_file, get_time], ["read_file"], ["19"]),
    ("How many screws do I have to buy, says todo.txt?", [read_file, add], ["read_file"], ["23"]),
    ("What is the project called, says readme.md?", [read_file], ["read_file"], ["heron"]),
    ("Multiply 1234 by 77.", [add, multiply], ["multiply"], ["95018|95,018"]),
    ("Add 90817 and 4466.", [add, multiply], ["add"], ["95283|95,283"]),
    ("What is the weather in Oslo, and what time is it there?", [get_weather, get_time], ["get_weather", "get_time"], ["snow", "09:42|9:42"]),
    ("Compare the weather of Cairo and Lima.", [get_weather], ["get_weather", "get_weather"], ["31", "22"]),
    ("How much do a chair and a table cost, each?", [get_price], ["get_price", "get_price"], ["59", "187"]),
    ("Give me the phone numbers of Anna and Carla.", [get_phone_number], ["get_phone_number", "get_phone_number"], ["555-0137", "555-0161"]),
    ("What is the weather in the city where Anna lives? Look up her city first.", [get_home_city, get_weather], ["get_home_city", "get_weather"], ["snow"]),
    ("What time is it where Bruno lives? Look up his city first.", [get_home_city, get_time], ["get_home_city", "get_time"], ["02:44|2:44"]),
    ("What do 12 shelves cost? Look up the price of a shelf, then multiply.", [get_price, multiply], ["get_price", "multiply"], ["912"]),
    ("What do a lamp and a shelf cost together? Look up both prices, then add them.", [get_price, add], ["get_price", "get_price"], ["110"]),
    ("Which is warmer now, Paris or Oslo?", [get_weather, get_time], ["get_weather", "get_weather"], ["paris"]),
    ("I need Carla's city and her phone number.", [get_home_city, get_phone_number], ["get_home_city", "get_phone_number"], ["paris", "555-0161"]),
]  # fmt: skip


def is_done(answer, called, calls, words):
    left = list(called)
    for call in calls:
        if call not in left:
            return False
        left.remove(call)
    return all(re.search(word, answer, re.IGNORECASE) for word in words)


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("-m", "--model", required=True)
    parser.add_argument("--answer", choices=("text", "call"), default="text")
    parser.add_argument("--task", type=int, help="which of the tasks, from 1; all otherwise")
    parser.add_argument("--times", type=int, default=20)
    parser.add_argument("--protocol", choices=("chat", "responses"), default="chat")
    parser.add_argument("--instructions", default=INSTRUCTIONS)
    parser.add_argument("--parallel", action="store_true", help="with --answer call: several calls a turn")
    parser.add_argument("--headrace", default=str(ROOT / "build/headrace"))
    parser.add_argument("flags", nargs="*", help="flags of serve")
    options = parser.parse_args()
    # Each with its settings.
    work = [(*each, {"temperature": 0}) for each in TASKS]
    if options.task:
        work = [(*TASKS[options.task - 1], {"seed": seed}) for seed in range(options.times)]
    kind = {"chat": OpenAIChatModel, "responses": OpenAIResponsesModel}[options.protocol]
    with Server(options.headrace, options.model, "--served-model-name", "agent", *options.flags) as server:
        provider = OpenAIProvider(base_url=f"http://127.0.0.1:{server.port}/v1", api_key="unused")
        model = kind("agent", provider=provider, profile=OpenAIModelProfile(openai_supports_strict_tool_definition=False))
        done = 0
        for task, tools, calls, words, sampling in work:
            settings = {"max_tokens": 400, **sampling, **({"parallel_tool_calls": options.parallel} if options.answer == "call" else {})}
            agent = Agent(model, deps_type=Calls, tools=tools, model_settings=settings, retries=2, instructions=options.instructions,
                          output_type=Answer if options.answer == "call" else str)
            own, start = Calls(), time.monotonic()
            try:
                answer = agent.run_sync(task, deps=own, usage_limits=UsageLimits(request_limit=6)).output
                answer = answer.answer if isinstance(answer, Answer) else answer
            except Exception as error:  # a loop that does not end, a call that cannot be read
                answer = f"({type(error).__name__}: {error})"
            right = is_done(answer, own.names, calls, words)
            done += right
            print(f"{'done' if right else 'not '} {time.monotonic() - start:5.1f} s  {task}  {own.names}  {answer!r}", flush=True)
        print(f"{done} of {len(work)}")
    commit = subprocess.run(["git", "rev-parse", "--short", "HEAD"], cwd=ROOT, capture_output=True, text=True).stdout.strip()
    row = {"bench": "agent_loop", "commit": commit, "date": datetime.date.today().isoformat(), "model": pathlib.Path(options.model).stem,
           "flags": " ".join(options.flags) or "default", "answer": options.answer, "protocol": options.protocol, "tasks": "all" if not options.task else TASKS[options.task - 1][0],
           "n": len(work), "done": done}
    if options.instructions != INSTRUCTIONS:
        row["instructions"] = options.instructions
    if options.parallel:
        row["parallel"] = True
    with open(ROOT / "bench/results/agents.jsonl", "a") as file:
        file.write(json.dumps(row) + "\n")


if __name__ == "__main__":
    main()
