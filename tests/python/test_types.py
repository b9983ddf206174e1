"""The package's types, as a user's mypy sees them."""

import pathlib
import subprocess
import sys

import headrace

PACKAGE = pathlib.Path(headrace.__file__).parent

SAMPLE = """
import asyncio
from typing import List, Optional

from headrace import LLM, AsyncLLM, EmbeddingRequestOutput, RequestOutput, SamplingParams

params = SamplingParams(temperature=0.8, top_p=0.95, logprobs=2)
llm = LLM(model="model.gguf", max_model_len=2048)
outputs: List[RequestOutput] = llm.generate(["a", "b"], params)
text: str = outputs[0].outputs[0].text
prompt: Optional[str] = outputs[0].prompt
chats: List[RequestOutput] = llm.chat([{"role": "user", "content": "Hello"}], params)
pieces: List[str] = list(llm.stream("a", params))
vectors: List[EmbeddingRequestOutput] = llm.embed("a")
length: float = float(vectors[0].outputs.embedding.sum())


async def ask(model: AsyncLLM) -> str:
    answer = ""
    async for output in model.generate("a", params):
        answer = output.outputs[0].text
    return answer


print(asyncio.run(ask(AsyncLLM("model.gguf"))), prompt, chats, pieces, length, text)
"""
MISTAKES = """
from headrace import LLM, SamplingParams

SamplingParams(temperature="hot")
number: int = LLM("model.gguf").generate("a")[0].outputs[0].text
"""


def mypy(*arguments, cwd):
    return subprocess.run([sys.executable, "-m", "mypy", "--strict", "--cache-dir", str(cwd / "cache"), *arguments],
                          capture_output=True, text=True, cwd=cwd, timeout=300)


def test_the_package_is_strict(tmp_path):
    assert (PACKAGE / "py.typed").exists() and (PACKAGE / "_engine.pyi").exists()
    done = mypy("-p", "headrace", cwd=tmp_path)
    assert done.returncode == 0, done.stdout


def test_a_users_program_is_checked(tmp_path):
    (tmp_path / "sample.py").write_text(SAMPLE)
    done = mypy("sample.py", cwd=tmp_path)
    assert done.returncode == 0, done.stdout
    (tmp_path / "mistakes.py").write_text(MISTAKES)
    done = mypy("mistakes.py", cwd=tmp_path)
    assert done.stdout.count("error:") == 2, done.stdout
