import os
import pathlib
import sys

import pytest

ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "scripts"))


def pytest_configure(config):
    config.addinivalue_line("markers", "timing: looks at a clock or races a signal; ./test may try it again")


BINARY = os.environ.get("HEADRACE_BINARY", str(ROOT / "build" / "headrace"))
MODELS = pathlib.Path("~/.cache/headrace/models").expanduser()
MODEL = os.environ.get("HEADRACE_MODEL_SMOLLM2", str(MODELS / "SmolLM2-135M-Instruct.Q4_1.gguf"))
MINILM = os.environ.get("HEADRACE_MODEL_MINILM", str(MODELS / "all-MiniLM-L6-v2.zip"))


@pytest.fixture(scope="session")
def binary():
    if not os.access(BINARY, os.X_OK):
        pytest.skip(f"no program at {BINARY}: build it first")
    return BINARY
