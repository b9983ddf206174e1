"""The models and the program, where ./test says, else where a build leaves them; the package is installed (`pip install .`)."""

import os
import pathlib
import zipfile

import pytest

from headrace import LLM

ROOT = pathlib.Path(__file__).resolve().parents[2]
BINARY = os.environ.get("HEADRACE_BINARY", str(ROOT / "build" / "headrace"))
MODELS = pathlib.Path("~/.cache/headrace/models").expanduser()
MODEL = os.environ.get("HEADRACE_MODEL_SMOLLM2", str(MODELS / "SmolLM2-135M-Instruct.Q4_1.gguf"))
MINILM = os.environ.get("HEADRACE_MODEL_MINILM", str(MODELS / "all-MiniLM-L6-v2.zip"))


def need(path):
    if not os.path.exists(path):
        pytest.skip(f"{path} is missing: ./test builds and fetches it")
    return path


def pytest_configure(config):
    config.addinivalue_line("markers", "timing: looks at a clock or races a signal")


@pytest.fixture(scope="session")
def llm():
    return LLM(model=need(MODEL), max_model_len=1024)


@pytest.fixture(scope="session")
def encoder(tmp_path_factory):
    folder = tmp_path_factory.mktemp("minilm")
    with zipfile.ZipFile(need(MINILM)) as packed:
        packed.extractall(folder)
    return LLM(model=str(folder))
