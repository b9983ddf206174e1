"""Large language models in this process, under vLLM's names:

    from headrace import LLM, SamplingParams

    llm = LLM("model.gguf", max_model_len=2048)
    for output in llm.generate(["The capital of France is"], SamplingParams(temperature=0, max_tokens=8)):
        print(output.outputs[0].text)
    for text in llm.stream([{"role": "user", "content": "Why is the sky blue?"}]):
        print(text, end="", flush=True)

Any thread may use an LLM; what waits for the model lets other Python threads run.
"""

from __future__ import annotations

import dataclasses
import json
from typing import Any, Dict, Iterator, List, Optional, Sequence, Union

from ._engine import Generation, LoadedModel, Sampling, __version__

__all__ = ["LLM", "SamplingParams", "RequestOutput", "CompletionOutput", "__version__"]

Message = Dict[str, Any]
Prompt = Union[str, Dict[str, Any], Sequence[int]]

_AT_ONCE = 128  # requests that wait or run; the engine's queue holds 256


@dataclasses.dataclass
class SamplingParams:
    """How tokens are chosen; vLLM's names and defaults."""

    n: int = 1
    temperature: float = 1.0
    top_p: float = 1.0
    top_k: int = 0
    min_p: float = 0.0
    presence_penalty: float = 0.0
    frequency_penalty: float = 0.0
    repetition_penalty: float = 1.0
    seed: Optional[int] = None
    stop: Union[None, str, List[str]] = None
    stop_token_ids: Optional[List[int]] = None
    max_tokens: Optional[int] = 16
    min_tokens: int = 0
    ignore_eos: bool = False

    def __post_init__(self) -> None:
        bounds = {
            "n": (1, 128), "temperature": (0, 100), "top_p": (1e-6, 1), "min_p": (0, 1), "repetition_penalty": (1e-6, 100),
            "presence_penalty": (-2, 2), "frequency_penalty": (-2, 2), "min_tokens": (0, 1 << 30), "top_k": (-1, 1 << 30),
            "max_tokens": (1, 1 << 30),
        }
        for name, (low, high) in bounds.items():
            value = getattr(self, name)
            if value is not None and not low <= value <= high:
                raise ValueError(f"{name} is {value}: must be between {low} and {high}")

    def _for_choice(self, choice: int) -> Sampling:
        sampling = Sampling()
        for name in ("temperature", "top_p", "min_p", "presence_penalty", "frequency_penalty", "repetition_penalty",
                     "min_tokens", "ignore_eos"):
            setattr(sampling, name, getattr(self, name))
        sampling.top_k = max(self.top_k, 0)
        sampling.max_tokens = -1 if self.max_tokens is None else self.max_tokens
        sampling.stop_token_ids = self.stop_token_ids or []
        sampling.seed = None if self.seed is None else self.seed + choice
        return sampling

    def _stops(self) -> List[str]:
        return [self.stop] if isinstance(self.stop, str) else list(self.stop or [])


@dataclasses.dataclass
class CompletionOutput:
    index: int
    text: str
    token_ids: List[int]
    finish_reason: Optional[str]


@dataclasses.dataclass
class RequestOutput:
    request_id: str
    prompt: Optional[str]  # None: it came as token ids
    prompt_token_ids: List[int]
    outputs: List[CompletionOutput]
    finished: bool = True


class LLM:
    """A model: a .gguf file, a folder, or a name as of `headrace pull`. Flags of `headrace run` are arguments by their names:
    max_model_len=2048, dtype="float32", threads=4, enable_prefix_caching=False."""

    def __init__(self, model: str, **flags: Any) -> None:
        arguments: List[str] = []
        for name, value in flags.items():
            flag = name.replace("_", "-")
            if isinstance(value, bool):
                arguments.append(f"--{flag}" if value else f"--no-{flag}")
            elif value is not None:
                arguments += [f"--{flag}", json.dumps(value) if isinstance(value, (dict, list)) else str(value)]
        self._model = LoadedModel(model, arguments)
        self._requests = 0

    @property
    def model_name(self) -> str:
        return self._model.name

    @property
    def max_model_len(self) -> int:
        return self._model.max_model_len

    def encode(self, text: str) -> List[int]:
        """Token ids of a text; control tokens that are spelled in it are text."""
        return self._model.encode(text)

    def get_default_sampling_params(self) -> SamplingParams:
        """What the model's makers suggest."""
        suggested = self._model.default_sampling()
        return SamplingParams(temperature=suggested.temperature, top_p=suggested.top_p, top_k=suggested.top_k,
                              min_p=suggested.min_p, repetition_penalty=suggested.repetition_penalty)

    def generate(self, prompts: Union[Prompt, Sequence[Prompt]],
                 sampling_params: Union[None, SamplingParams, Sequence[SamplingParams]] = None) -> List[RequestOutput]:
        """Continues each prompt: a text, token ids, or {"prompt": text} or {"prompt_token_ids": ids}. All run together; the answers
        come in the prompts' order."""
        if isinstance(prompts, (str, dict)) or (prompts and isinstance(prompts[0], int)):
            prompts = [prompts]  # type: ignore[list-item]
        return self._run([self._ids_of(prompt) for prompt in prompts], sampling_params)  # type: ignore[arg-type]

    def chat(self, messages: Union[List[Message], List[List[Message]]],
             sampling_params: Union[None, SamplingParams, Sequence[SamplingParams]] = None) -> List[RequestOutput]:
        """Answers a conversation, or each of several, through the model's chat template."""
        several = messages if messages and isinstance(messages[0], list) else [messages]
        return self._run([(None, self._model.encode_messages(json.dumps(each))) for each in several], sampling_params)

    def stream(self, prompt: Union[Prompt, List[Message]], sampling_params: Optional[SamplingParams] = None) -> Iterator[str]:
        """The text of one answer as it comes. A list of messages is a conversation. Leaving the loop ends the answer."""
        chat = isinstance(prompt, list) and bool(prompt) and isinstance(prompt[0], dict)
        ids = self._model.encode_messages(json.dumps(prompt)) if chat else self._ids_of(prompt)[1]  # type: ignore[arg-type]
        params = sampling_params or self.get_default_sampling_params()
        generation = self._model.generate(ids, params._for_choice(0), params._stops())
        try:
            text = generation.next()
            while text is not None:
                yield text
                text = generation.next()
        finally:
            generation.cancel()

    def _ids_of(self, prompt: Prompt) -> "tuple[Optional[str], List[int]]":
        if isinstance(prompt, dict):
            if "prompt_token_ids" in prompt:
                return prompt.get("prompt"), list(prompt["prompt_token_ids"])
            prompt = prompt["prompt"]
        if isinstance(prompt, str):
            return prompt, self._model.encode(prompt)
        return None, list(prompt)

    def _run(self, prompts: "List[tuple[Optional[str], List[int]]]",
             sampling_params: Union[None, SamplingParams, Sequence[SamplingParams]]) -> List[RequestOutput]:
        if sampling_params is None:
            sampling_params = self.get_default_sampling_params()
        each = [sampling_params] * len(prompts) if isinstance(sampling_params, SamplingParams) else list(sampling_params)
        if len(each) != len(prompts):
            raise ValueError(f"{len(prompts)} prompts and {len(each)} sampling_params: one for all, or one for each")
        wanted = [(at, choice) for at, params in enumerate(each) for choice in range(params.n)]
        running: List["tuple[int, int, Generation]"] = []
        outputs: List[List[CompletionOutput]] = [[] for _ in prompts]
        try:
            while wanted or running:
                while wanted and len(running) < _AT_ONCE:
                    at, choice = wanted.pop(0)
                    params = each[at]
                    running.append((at, choice, self._model.generate(prompts[at][1], params._for_choice(choice), params._stops())))
                at, choice, generation = running.pop(0)
                pieces: List[str] = []
                while (piece := generation.next()) is not None:
                    pieces.append(piece)
                outputs[at].append(CompletionOutput(choice, "".join(pieces), generation.tokens, generation.finish_reason))
        finally:
            for _, _, generation in running:
                generation.cancel()
        first = self._requests
        self._requests += len(prompts)
        return [RequestOutput(str(first + at), text, ids, outputs[at]) for at, (text, ids) in enumerate(prompts)]
