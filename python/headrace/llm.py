"""LLM: a model that answers when it is called."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Dict, Iterable, Iterator, List, Optional, Sequence, Union

from . import _engine
from ._requests import Answer, Encoded, Message, Model, Prompt, each_params
from .outputs import BeamSearchOutput, BeamSearchSequence, EmbeddingOutput, EmbeddingRequestOutput, RequestOutput
from .sampling_params import BeamSearchParams, SamplingParams

if TYPE_CHECKING:
    import numpy
    from numpy.typing import NDArray

_TEXTS_AT_ONCE = 1024  # that the embedding engine is given
_LOGITS_MAX = 1 << 26  # numbers of one call: 256 MiB, and thrice that while they are collected
_SIGNALS_SECONDS = 0.1  # what waits lets Python handle signals so often, also those that another thread got


class LLM(Model):
    __doc__ = Model.__doc__

    def generate(self, prompts: Union[Prompt, Sequence[Prompt]],
                 sampling_params: Union[None, SamplingParams, Sequence[SamplingParams]] = None,
                 use_tqdm: bool = False) -> List[RequestOutput]:
        """Continues each prompt: a text, token ids, or {"prompt": text} or {"prompt_token_ids": ids}. All run together; the
        answers come in the prompts' order. use_tqdm shows how many are there, with tqdm."""
        each = _list_of(prompts)
        answers = self._run(map(self._encode, each), len(each), sampling_params, use_tqdm)
        return [answer.output for answer in answers]

    def beam_search(self, prompts: Union[Prompt, Sequence[Prompt]], params: BeamSearchParams,
                    use_tqdm: bool = False) -> List[BeamSearchOutput]:
        """The most probable continuations of each prompt, as transformers' generate(num_beams=...) finds them."""
        each = _list_of(prompts)
        answers = self._run(map(self._encode, each), len(each), params._sampling_params(), use_tqdm, params._beams())
        return [BeamSearchOutput(self._sequences(answer)) for answer in answers]

    def chat(self, messages: Union[List[Message], List[List[Message]]],
             sampling_params: Union[None, SamplingParams, Sequence[SamplingParams]] = None, use_tqdm: bool = False,
             add_generation_prompt: bool = True, continue_final_message: bool = False,
             tools: Optional[List[Dict[str, Any]]] = None,
             chat_template_kwargs: Optional[Dict[str, Any]] = None) -> List[RequestOutput]:
        """Answers a conversation, or each of several, through the model's chat template."""
        several: List[Any] = list(messages) if messages and isinstance(messages[0], list) else [messages]
        encoded = (self._encode_chat(each, tools, chat_template_kwargs, add_generation_prompt, continue_final_message)
                   for each in several)
        return [answer.output for answer in self._run(encoded, len(several), sampling_params, use_tqdm)]

    def stream(self, prompt: Union[Prompt, List[Message]], sampling_params: Optional[SamplingParams] = None) -> Iterator[str]:
        """The text of one answer as it comes. A list of messages is a conversation. Leaving the loop ends the answer."""
        model = self._text_model()
        params = sampling_params or self.get_default_sampling_params()
        if params.n != 1:
            raise ValueError(f"n is {params.n}: a stream has one answer")
        chat = isinstance(prompt, list) and bool(prompt) and isinstance(prompt[0], dict)
        encoded = self._encode_chat(prompt) if chat else self._encode(prompt)  # type: ignore[arg-type]
        group = model.group(True)
        Answer(model, self._request_id(), encoded, params).submit(group, self._seed_of(params))
        return _texts(group)

    def logits(self, prompt: Prompt) -> NDArray[numpy.float32]:
        """Of each token of a prompt what the model expects behind it: [tokens, vocabulary], logits less their log-sum-exp, which
        are the log-probabilities; softmax, argmax and differences are those of the raw ones."""
        model = self._text_model()
        if model.on_gpu:
            raise ValueError("logits() needs a model on a CPU (device=\"cpu\"): a GPU tells of the best tokens alone")
        encoded = self._encode(prompt)
        size = len(encoded[1]) * model.vocabulary
        if size > _LOGITS_MAX:
            raise ValueError(f"logits of {len(encoded[1])} tokens and a vocabulary of {model.vocabulary} are {size:,} numbers: "
                             f"at most {_LOGITS_MAX:,}, so {_LOGITS_MAX // model.vocabulary} tokens")
        sampling = SamplingParams(temperature=0, max_tokens=1)._sampling(None)
        sampling.logprobs = sampling.prompt_logprobs = model.vocabulary
        group = model.group(False)
        try:
            group.submit(encoded[1], sampling, [], False, True)
            while True:
                for news in group.take(_SIGNALS_SECONDS):
                    return news.whole_rows()
        finally:
            group.cancel_all()

    def embed(self, prompts: Union[Prompt, Sequence[Prompt]], use_tqdm: bool = False) -> List[EmbeddingRequestOutput]:
        """A vector of each text, of a model that gives vectors, as numpy's float32."""
        model = self._model
        if not isinstance(model, _engine.EmbeddingModel):
            raise ValueError(f"{model.name} generates text and gives no vectors: load it with runner=\"pooling\"")
        if model.is_classifier:
            raise ValueError(f"{model.name} gives classes and no vectors")
        ids = [self._encode(prompt)[1] for prompt in _list_of(prompts)]
        outputs: List[EmbeddingRequestOutput] = []
        with _Progress(len(ids), use_tqdm) as progress:
            for first in range(0, len(ids), _TEXTS_AT_ONCE):
                part = ids[first:first + _TEXTS_AT_ONCE]
                job = model.embed(part)
                while not job.wait(_SIGNALS_SECONDS):
                    pass
                outputs += [EmbeddingRequestOutput(self._request_id(), EmbeddingOutput(vector), each)
                            for vector, each in zip(job.take(model.dimensions), part)]
                progress.update(len(part))
        return outputs

    def _run(self, prompts: Iterable[Encoded], count: int,
             sampling_params: Union[None, SamplingParams, Sequence[SamplingParams]], use_tqdm: bool,
             beams: Optional[_engine.Beams] = None) -> List[Answer]:
        model = self._text_model()
        params = each_params(self.get_default_sampling_params() if sampling_params is None else sampling_params, count)
        group = model.group(False)
        answers: List[Answer] = []
        try:
            for encoded, of_prompt in zip(prompts, params):
                answers.append(Answer(model, self._request_id(), encoded, of_prompt))
                answers[-1].submit(group, self._seed_of(of_prompt), beams)
            with _Progress(count, use_tqdm) as progress:
                ended = 0
                while ended < count:
                    news = group.take(_SIGNALS_SECONDS)
                    for each in news:
                        answers[each.request].add(each)
                    ended += len(news)
                    progress.update(len(news))
        finally:
            group.cancel_all()  # what an exception leaves behind
        return answers

    def _sequences(self, answer: Answer) -> List[BeamSearchSequence]:
        prompt = answer.output.prompt
        text = self._model.decode(answer.ids, True) if prompt is None else prompt
        return [BeamSearchSequence(answer.ids + each.token_ids, text + each.text, score.cumulative_logprob, score.score,
                                   each.finish_reason, each.stop_reason)
                for each, score in zip(answer.output.outputs, answer.beam_scores) if score is not None]


def _list_of(prompts: Union[Prompt, Sequence[Prompt]]) -> List[Prompt]:
    if isinstance(prompts, (str, dict)) or getattr(prompts, "ndim", 0) == 1:
        return [prompts]  # type: ignore[list-item]
    each: List[Any] = list(prompts)
    return [each] if each and isinstance(each[0], int) else each


def _texts(group: _engine.RequestGroup) -> Iterator[str]:
    try:
        finished = False
        while not finished:
            for news in group.take(_SIGNALS_SECONDS):
                finished = news.finished
                for choice in news.choices:
                    if choice.text:
                        yield choice.text
    finally:
        group.cancel_all()


class _Progress:
    """tqdm's bar, where it is wanted and installed."""

    def __init__(self, count: int, wanted: bool) -> None:
        self._bar: Any = None
        if wanted:
            try:
                from tqdm import tqdm  # type: ignore[import-untyped,unused-ignore]
            except ImportError:
                return
            self._bar = tqdm(total=count, desc="Processed prompts")

    def __enter__(self) -> _Progress:
        return self

    def update(self, count: int) -> None:
        if self._bar is not None:
            self._bar.update(count)

    def __exit__(self, *_: Any) -> None:
        if self._bar is not None:
            self._bar.close()
