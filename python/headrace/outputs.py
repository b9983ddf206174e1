"""What comes back: vLLM's names."""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING, Dict, List, Optional, Union

if TYPE_CHECKING:
    import numpy
    from numpy.typing import NDArray


@dataclasses.dataclass
class Logprob:
    logprob: float  # of the plain softmax, before temperature and filters
    rank: Optional[int]  # 1: the best; None: not among the best that were asked for
    decoded_token: str


@dataclasses.dataclass
class CompletionOutput:
    index: int
    text: str
    token_ids: List[int]  # with the end token, where one ended the answer
    cumulative_logprob: Optional[float] = None  # where logprobs were asked for, as
    logprobs: Optional[List[Dict[int, Logprob]]] = None  # these, one entry a token
    finish_reason: Optional[str] = None  # "stop", "length", "abort", "error" (numbers were no numbers); None: it goes on
    stop_reason: Union[None, int, str] = None  # the stop string, or one of stop_token_ids, that ended it

    def finished(self) -> bool:
        return self.finish_reason is not None


@dataclasses.dataclass
class RequestOutput:
    request_id: str
    prompt: Optional[str]  # of a conversation what the template made of it; None: it came as token ids
    prompt_token_ids: List[int]
    outputs: List[CompletionOutput]
    prompt_logprobs: Optional[List[Optional[Dict[int, Logprob]]]] = None  # the first token has None
    finished: bool = False
    num_cached_tokens: int = 0  # of the prompt, that were not computed again


@dataclasses.dataclass
class BeamSearchSequence:
    tokens: List[int]  # of the prompt and the answer, with the end token, where one ended it
    text: str  # of both
    cum_logprob: float  # of the answer's tokens, summed
    score: float  # the same by the answer's length: the best sequence has the highest
    finish_reason: Optional[str] = None
    stop_reason: Union[None, int, str] = None


@dataclasses.dataclass
class BeamSearchOutput:
    sequences: List[BeamSearchSequence]  # best first


@dataclasses.dataclass
class EmbeddingOutput:
    embedding: NDArray[numpy.float32]  # [dimensions]

    @property
    def hidden_size(self) -> int:
        return len(self.embedding)


@dataclasses.dataclass
class EmbeddingRequestOutput:
    request_id: str
    outputs: EmbeddingOutput
    prompt_token_ids: List[int]
    finished: bool = True
