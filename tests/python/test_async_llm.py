"""AsyncLLM: answers beside other tasks."""

import asyncio

import pytest

from headrace import AsyncLLM, SamplingParams

from conftest import MODEL, need

GREEDY = SamplingParams(temperature=0, max_tokens=12)
ENDLESS = SamplingParams(temperature=0, max_tokens=900, ignore_eos=True)
PROMPTS = ["The capital of France is", "One, two, three,", "Water boils at"]


@pytest.fixture(scope="module")
def model():
    return AsyncLLM(need(MODEL), max_model_len=1024)


async def last_of(outputs):
    last = None
    async for last in outputs:
        pass
    return last


def test_an_answer_grows(model, llm):
    async def outputs():
        return [output async for output in model.generate(PROMPTS[0], GREEDY, request_id="mine")]

    found = asyncio.run(outputs())
    texts = [output.outputs[0].text for output in found]
    assert len(texts) > 3 and all(later.startswith(text) for text, later in zip(texts, texts[1:]))
    assert [output.finished for output in found] == [False] * (len(found) - 1) + [True]
    assert {output.request_id for output in found} == {"mine"}
    assert found[-1].outputs == llm.generate(PROMPTS[0], GREEDY)[0].outputs
    assert len(found[0].outputs[0].token_ids) < len(found[-1].outputs[0].token_ids)


def test_answers_run_together(model, llm):
    async def all_of_them():
        ticks = 0

        async def tick():
            nonlocal ticks
            while True:
                ticks += 1
                await asyncio.sleep(0.001)

        ticking = asyncio.create_task(tick())
        outputs = await asyncio.gather(*(last_of(model.generate(prompt, GREEDY)) for prompt in PROMPTS * 40))
        ticking.cancel()
        return outputs, ticks

    wanted = [output.outputs[0].text for output in llm.generate(PROMPTS, GREEDY)] * 40
    for _ in range(2):  # event loops
        outputs, ticks = asyncio.run(all_of_them())
        assert [output.outputs[0].text for output in outputs] == wanted
        assert ticks > 20


def test_chat(model, llm):
    messages = [{"role": "user", "content": "What is the capital of France?"}]
    assert asyncio.run(last_of(model.chat(messages, GREEDY))).outputs == llm.chat(messages, GREEDY)[0].outputs


def test_a_task_that_is_cancelled_ends_its_answer(model):
    async def cancelled():
        tasks = [asyncio.create_task(last_of(model.generate(prompt, ENDLESS))) for prompt in PROMPTS]
        await asyncio.sleep(0.3)
        for task in tasks:
            task.cancel()
        results = await asyncio.gather(*tasks, return_exceptions=True)
        assert all(isinstance(result, asyncio.CancelledError) for result in results)
        return await asyncio.wait_for(last_of(model.generate(PROMPTS[0], GREEDY)), 5)

    assert "Paris" in asyncio.run(cancelled()).outputs[0].text


def test_mistakes_are_named(model):
    with pytest.raises(ValueError, match="the context holds 1024"):
        asyncio.run(last_of(model.generate("x " * 3000, GREEDY)))
    assert "Paris" in asyncio.run(last_of(model.generate(PROMPTS[0], GREEDY))).outputs[0].text
