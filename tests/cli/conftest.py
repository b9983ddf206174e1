"""The program under test and the model it runs: where ./test says, else where a build leaves them."""

import collections
import os
import pathlib
import subprocess

import pytest

def pytest_configure(config):
    config.addinivalue_line("markers", "timing: looks at a clock or races a signal; ./test may try it again")


ROOT = pathlib.Path(__file__).resolve().parents[2]
BINARY = os.environ.get("HEADRACE_BINARY", str(ROOT / "build" / "headrace"))
MODEL = os.environ.get(
    "HEADRACE_MODEL_SMOLLM2",
    os.path.expanduser("~/.cache/headrace/models/SmolLM2-135M-Instruct.Q4_1.gguf"),
)


class Program:
    """build/headrace as a child process."""

    def __init__(self, binary, environment):
        self.binary = binary
        self.environment = environment

    def run(self, *arguments, stdin="", check=None, timeout=120, environment=None):
        """Runs to the end. check: the exit code that is expected."""
        done = subprocess.run(
            [self.binary, *map(str, arguments)],
            input=stdin.encode() if isinstance(stdin, str) else stdin,
            capture_output=True,
            timeout=timeout,
            env={**self.environment, **(environment or {})},
        )
        if check is not None:
            assert done.returncode == check, done.stderr.decode(errors="replace")
        return done

    def text(self, *arguments, **options):
        """What it prints; it must succeed."""
        return self.run(*arguments, check=0, **options).stdout.decode()

    def error(self, *arguments, **options):
        """The one line with which it must fail."""
        done = self.run(*arguments, check=1, **options)
        assert done.stdout == b""
        message = done.stderr.decode()
        assert message.startswith("headrace: error: ")
        assert message.count("\n") == 1, message
        return message

    def start(self, *arguments, **options):
        return subprocess.Popen([self.binary, *map(str, arguments)], env=self.environment, **options)


@pytest.fixture(scope="session")
def program(tmp_path_factory):
    if not os.access(BINARY, os.X_OK):
        pytest.skip(f"no program at {BINARY}: build it first")
    home = tmp_path_factory.mktemp("home")
    environment = {
        "PATH": os.environ["PATH"],
        "HOME": str(home),
        "LANG": "C.UTF-8",
        "TERM": "xterm",
    }
    return Program(BINARY, environment)


@pytest.fixture(scope="session")
def model():
    if not os.path.exists(MODEL):
        print(f"skipped: no model at {MODEL} (./test fetches it)")
        pytest.skip(f"no model at {MODEL} (./test fetches it)")
    return MODEL


# Where a row's bits are promised to be the same in every batch (decisions 1, 22 and 24): at default flags
# on a CPU without AMX, with --batch-invariant on every CPU.
EqualBits = collections.namedtuple("EqualBits", "flags environment")
HAS_AMX = "amx_bf16" in pathlib.Path("/proc/cpuinfo").read_text().split()
WITHOUT_AMX = {"HEADRACE_CPU_ISA": "avx512"} if HAS_AMX else {}


@pytest.fixture(params=[EqualBits((), WITHOUT_AMX), EqualBits(("--batch-invariant",), {})],
                ids=["default flags without AMX", "batch invariant"])
def equal_bits(request):
    return request.param
