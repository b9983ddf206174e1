"""AsyncLLM: a model that answers in an event loop."""

from __future__ import annotations

import asyncio
import weakref
from typing import Any, AsyncIterator, Dict, List, Optional

from . import _engine
from ._requests import Answer, Encoded, Message, Model, Prompt
from .outputs import RequestOutput
from .sampling_params import SamplingParams


class AsyncLLM(Model):
    """As LLM, with answers that come while other tasks run. Tasks of any number of event loops may use it."""

    def __init__(self, model: str, seed: Optional[int] = None, **flags: Any) -> None:
        super().__init__(model, seed, **flags)
        self._readers: weakref.WeakKeyDictionary[asyncio.AbstractEventLoop, _LoopReader] = weakref.WeakKeyDictionary()

    def generate(self, prompt: Prompt, sampling_params: Optional[SamplingParams] = None,
                 request_id: Optional[str] = None) -> AsyncIterator[RequestOutput]:
        """The answer so far, each time that more of it came; the last one is `finished`. Leaving the loop (and closing it, or
        cancelling the task) ends the answer."""
        return self._answer(self._encode(prompt), sampling_params, request_id)

    def chat(self, messages: List[Message], sampling_params: Optional[SamplingParams] = None, request_id: Optional[str] = None,
             tools: Optional[List[Dict[str, Any]]] = None,
             chat_template_kwargs: Optional[Dict[str, Any]] = None) -> AsyncIterator[RequestOutput]:
        """The same of a conversation, through the model's chat template."""
        return self._answer(self._encode_chat(messages, tools, chat_template_kwargs), sampling_params, request_id)

    async def _answer(self, encoded: Encoded, params: Optional[SamplingParams],
                      request_id: Optional[str]) -> AsyncIterator[RequestOutput]:
        model = self._text_model()
        loop = asyncio.get_running_loop()
        reader = self._readers.get(loop)
        if reader is None:
            reader = self._readers[loop] = _LoopReader(model.group(True))
        answer = Answer(model, request_id or self._request_id(), encoded, params or self.get_default_sampling_params())
        number = answer.submit(reader.group, self._seed_of(answer.params))
        arrived = reader.open(number, loop)
        try:
            while not answer.output.finished:
                answer.add(await arrived.get())
                while not arrived.empty():  # whoever is slow gets what came meanwhile at once
                    answer.add(arrived.get_nowait())
                yield answer.so_far()
        finally:
            reader.close(number, loop)


class _LoopReader:
    """The news of all answers of one event loop, which its group's file descriptor announces."""

    def __init__(self, group: _engine.RequestGroup) -> None:
        self.group = group
        self._running: Dict[int, asyncio.Queue[_engine.RequestNews]] = {}

    def open(self, number: int, loop: asyncio.AbstractEventLoop) -> asyncio.Queue[_engine.RequestNews]:
        if not self._running:
            loop.add_reader(self.group.file_descriptor, self._read)
        self._running[number] = asyncio.Queue()
        return self._running[number]

    def close(self, number: int, loop: asyncio.AbstractEventLoop) -> None:
        del self._running[number]
        self.group.cancel(number)
        if not self._running:
            loop.remove_reader(self.group.file_descriptor)

    def _read(self) -> None:
        for news in self.group.take(0):
            if news.request in self._running:
                self._running[news.request].put_nowait(news)
