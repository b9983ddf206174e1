"""Prompts to requests, and their news to outputs: what LLM and AsyncLLM share."""

from __future__ import annotations

import dataclasses
import itertools
import json
import operator
import random
from typing import Any, Dict, Iterable, List, Optional, Sequence, Tuple, Union

from . import _engine
from .outputs import CompletionOutput, Logprob, RequestOutput
from .sampling_params import SamplingParams
from .tokenizer import Tokenizer

Message = Dict[str, Any]
# A text, token ids (a list or a numpy array), {"prompt": text} or {"prompt_token_ids": ids}.
Prompt = Union[str, Dict[str, Any], Sequence[int]]
Encoded = Tuple[Optional[str], List[int]]


class Model:
    """A model: a .gguf file, a folder, or a name as of `headrace pull`. Flags of `headrace run` are arguments by their names:
    max_model_len=2048, dtype="float32", threads=4, enable_prefix_caching=False. seed: the same calls choose the same tokens in
    each run of a program; without it they do where SamplingParams say a seed."""

    def __init__(self, model: str, seed: Optional[int] = None, **flags: Any) -> None:
        arguments: List[str] = []
        for name, value in flags.items():
            flag = name.replace("_", "-")
            if isinstance(value, bool):
                arguments.append(f"--{flag}" if value else f"--no-{flag}")
            elif value is not None:
                arguments.append(f"--{flag}={json.dumps(value) if isinstance(value, (dict, list)) else value}")
        self._model = _engine.load_model(str(model), arguments)
        self._tokenizer = Tokenizer(self._model)
        self._numbers = itertools.count()
        self._seeds = None if seed is None else random.Random(seed)

    @property
    def model_name(self) -> str:
        return self._model.name

    @property
    def max_model_len(self) -> int:
        return self._model.max_model_len

    def get_tokenizer(self) -> Tokenizer:
        return self._tokenizer

    def get_default_sampling_params(self) -> SamplingParams:
        """What the model's makers suggest."""
        suggested = self._text_model().default_sampling()
        return SamplingParams(temperature=suggested.temperature, top_p=suggested.top_p, top_k=suggested.top_k,
                              min_p=suggested.min_p, repetition_penalty=suggested.repetition_penalty)

    def _text_model(self) -> _engine.TextModel:
        if isinstance(self._model, _engine.TextModel):
            return self._model
        raise ValueError(f"{self._model.name} gives vectors and generates no text: use embed()")

    def _seed_of(self, params: SamplingParams) -> Optional[int]:
        if params.seed is None and self._seeds is not None:
            return self._seeds.getrandbits(64)
        return params.seed

    def _request_id(self) -> str:
        return str(next(self._numbers))

    def _encode(self, prompt: Prompt) -> Encoded:
        if isinstance(prompt, dict):
            if "prompt_token_ids" in prompt:
                return prompt.get("prompt"), _ids(prompt["prompt_token_ids"])
            if "prompt" not in prompt:
                raise ValueError(f"a prompt has the keys {sorted(prompt)}: must have prompt or prompt_token_ids")
            prompt = prompt["prompt"]
        if isinstance(prompt, str):
            return prompt, self._model.encode(prompt)
        return None, _ids(prompt)

    def _encode_chat(self, messages: Sequence[Message], tools: Optional[List[Dict[str, Any]]] = None,
                     chat_template_kwargs: Optional[Dict[str, Any]] = None, add_generation_prompt: bool = True,
                     continue_final_message: bool = False) -> Encoded:
        variables = dict(chat_template_kwargs or {})
        if tools:
            variables["tools"] = tools
        ids = self._text_model().encode_chat(json.dumps(list(messages)), json.dumps(variables),
                                             add_generation_prompt and not continue_final_message, continue_final_message)
        return self._model.decode(ids, False), ids


def _ids(prompt: Any) -> List[int]:
    try:
        ids = list(map(operator.index, prompt.tolist() if hasattr(prompt, "tolist") else prompt))
    except TypeError:
        raise ValueError("a prompt of token ids has something that is no integer") from None
    for each in (min(ids, default=0), max(ids, default=0)):
        if not 0 <= each < 1 << 31:
            raise ValueError(f"a prompt has the token id {each}: there is no such token")
    return ids


class Answer:
    """One request's output as its news make it."""

    def __init__(self, model: _engine.TextModel, request_id: str, encoded: Encoded, params: SamplingParams) -> None:
        self._model = model
        self.params = params
        prompt, self.ids = encoded
        logprobs: Optional[List[Dict[int, Logprob]]] = None if params.logprobs is None else []
        choices = [CompletionOutput(index, "", [], None if logprobs is None else 0.0, None if logprobs is None else [])
                   for index in range(params.n)]
        self.beam_scores: List[Optional[_engine.BeamScore]] = [None] * params.n
        self.output = RequestOutput(request_id, prompt, self.ids, choices,
                                    None if params.prompt_logprobs is None else [None])

    def submit(self, group: _engine.RequestGroup, seed: Optional[int], beams: Optional[_engine.Beams] = None) -> int:
        params = self.params
        return group.submit(self.ids, params._sampling(seed), params._stops(), params.include_stop_str_in_output,
                            params.skip_special_tokens, beams)

    def add(self, news: _engine.RequestNews) -> None:
        output = self.output
        output.finished = news.finished
        output.num_cached_tokens = news.cached_tokens
        if output.prompt_logprobs is not None:
            output.prompt_logprobs += map(self._logprobs, news.prompt_logprobs)
        for choice in news.choices:
            of_choice = output.outputs[choice.index]
            of_choice.text += choice.text
            of_choice.token_ids += choice.tokens
            of_choice.finish_reason = choice.finish_reason or None
            self.beam_scores[choice.index] = choice.beam_score
            of_choice.stop_reason = choice.stop_token if choice.stop_text is None else choice.stop_text
            if of_choice.logprobs is not None and of_choice.cumulative_logprob is not None:
                entries = choice.logprobs
                of_choice.logprobs += map(self._logprobs, entries)
                of_choice.cumulative_logprob += sum(entry.logprob for entry in entries)

    def so_far(self) -> RequestOutput:
        """The output as it is now, which no news changes."""
        choices = [dataclasses.replace(choice, token_ids=list(choice.token_ids), logprobs=choice.logprobs and list(choice.logprobs))
                   for choice in self.output.outputs]
        return dataclasses.replace(self.output, outputs=choices)

    def _logprobs(self, entry: _engine.TokenLogprobs) -> Dict[int, Logprob]:
        best = entry.top
        ranks = {token: rank for rank, (token, _) in enumerate(best, 1)}
        named = [(entry.token, entry.logprob)] + [pair for pair in best if pair[0] != entry.token]
        return {token: Logprob(logprob, ranks.get(token), self._model.decode([token], False)) for token, logprob in named}


def each_params(params: Union[SamplingParams, Sequence[SamplingParams]], count: int) -> Iterable[SamplingParams]:
    if isinstance(params, SamplingParams):
        return itertools.repeat(params, count)
    if len(params) != count:
        raise ValueError(f"{count} prompts and {len(params)} sampling_params: one for all, or one for each")
    return params
