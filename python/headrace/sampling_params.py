"""How the tokens of an answer are chosen."""

from __future__ import annotations

import dataclasses
import math
import operator
from typing import Dict, List, Optional, Union

from ._engine import Beams, Sampling

_BOUNDS = {
    "n": (1, 128), "temperature": (0, 100), "top_p": (1e-6, 1), "top_k": (-1, 1 << 30), "min_p": (0, 1),
    "presence_penalty": (-2, 2), "frequency_penalty": (-2, 2), "repetition_penalty": (1e-6, 100), "max_tokens": (1, 1 << 30),
    "min_tokens": (0, 1 << 30), "logprobs": (0, 20), "prompt_logprobs": (0, 20),
}


_INTEGERS = ("n", "top_k", "max_tokens", "min_tokens", "logprobs", "prompt_logprobs", "seed")


@dataclasses.dataclass
class SamplingParams:
    """vLLM's names and defaults. A value outside its range is a ValueError."""

    n: int = 1  # answers to each prompt
    presence_penalty: float = 0.0
    frequency_penalty: float = 0.0
    repetition_penalty: float = 1.0
    temperature: float = 1.0  # 0: always the best token
    top_p: float = 1.0
    top_k: int = 0  # 0 and -1: off
    min_p: float = 0.0
    seed: Optional[int] = None
    stop: Union[None, str, List[str]] = None
    stop_token_ids: Optional[List[int]] = None
    ignore_eos: bool = False
    max_tokens: Optional[int] = 16  # None: as many as the context holds
    min_tokens: int = 0
    logprobs: Optional[int] = None  # of each token of the answer, and of so many of the best
    prompt_logprobs: Optional[int] = None  # the same of the prompt's
    skip_special_tokens: bool = True
    include_stop_str_in_output: bool = False
    logit_bias: Optional[Dict[int, float]] = None

    def __post_init__(self) -> None:
        for name in _INTEGERS:
            value = getattr(self, name)
            try:
                setattr(self, name, None if value is None else operator.index(value))
            except TypeError:
                raise ValueError(f"{name} is {value!r}: must be an integer") from None
        for name, (low, high) in _BOUNDS.items():
            value = getattr(self, name)
            if value is not None and not low <= value <= high:
                raise ValueError(f"{name} is {value}: must be between {low} and {high}")
        if self.max_tokens is not None and self.min_tokens > self.max_tokens:
            raise ValueError(f"min_tokens is {self.min_tokens}: must be at most max_tokens, {self.max_tokens}")
        for token, bias in (self.logit_bias or {}).items():
            if math.isnan(bias) or bias == math.inf:
                raise ValueError(f"logit_bias of token {token} is {bias}: must be a number, or -inf to ban it")

    def _sampling(self, seed: Optional[int]) -> Sampling:
        sampling = Sampling()
        sampling.n = self.n
        sampling.temperature = self.temperature
        sampling.top_p = self.top_p
        sampling.top_k = max(self.top_k, 0)
        sampling.min_p = self.min_p
        sampling.repetition_penalty = self.repetition_penalty
        sampling.presence_penalty = self.presence_penalty
        sampling.frequency_penalty = self.frequency_penalty
        sampling.logit_bias = list((self.logit_bias or {}).items())
        sampling.seed = None if seed is None else seed % (1 << 64)
        sampling.max_tokens = -1 if self.max_tokens is None else self.max_tokens
        sampling.min_tokens = self.min_tokens
        sampling.ignore_eos = self.ignore_eos
        sampling.stop_token_ids = self.stop_token_ids or []
        sampling.logprobs = -1 if self.logprobs is None else self.logprobs
        sampling.prompt_logprobs = -1 if self.prompt_logprobs is None else self.prompt_logprobs
        return sampling

    def _stops(self) -> List[str]:
        return [self.stop] if isinstance(self.stop, str) else list(self.stop or [])


@dataclasses.dataclass
class BeamSearchParams:
    """A search for the most probable answers: vLLM's names, and early_stopping as transformers has it."""

    beam_width: int  # beams, and answers
    max_tokens: int
    ignore_eos: bool = False
    temperature: float = 0.0  # changes nothing: nothing is sampled
    length_penalty: float = 1.0  # an answer of L tokens is ordered by its summed log-probability / L ** length_penalty
    early_stopping: Union[bool, str] = False  # True, False or "never"

    def _sampling_params(self) -> SamplingParams:
        return SamplingParams(n=self.beam_width, temperature=0, max_tokens=self.max_tokens, ignore_eos=self.ignore_eos)

    def _beams(self) -> Beams:
        beams = Beams()
        beams.width = self.beam_width
        beams.length_penalty = self.length_penalty
        beams.early_stopping = str(self.early_stopping).lower()
        return beams
