"""Large language models in this process, under vLLM's names:

    from headrace import LLM, SamplingParams

    llm = LLM(model="model.gguf")
    for output in llm.generate(["The capital of France is"], SamplingParams(temperature=0.8, top_p=0.95)):
        print(output.prompt, output.outputs[0].text)

Any thread may use a model; what waits for it lets other Python threads run."""

from ._engine import VERSION as __version__
from .async_llm import AsyncLLM
from .llm import LLM
from .outputs import (
    BeamSearchOutput, BeamSearchSequence, CompletionOutput, EmbeddingOutput, EmbeddingRequestOutput, Logprob, RequestOutput)
from .sampling_params import BeamSearchParams, SamplingParams
from .tokenizer import Tokenizer

__all__ = [
    "LLM", "AsyncLLM", "SamplingParams", "RequestOutput", "CompletionOutput", "Logprob", "BeamSearchParams", "BeamSearchOutput",
    "BeamSearchSequence", "EmbeddingRequestOutput", "EmbeddingOutput", "Tokenizer", "__version__",
]
