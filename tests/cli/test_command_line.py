"""Help, versions, completion scripts and errors: nothing here loads a model."""

import shutil
import subprocess

import pytest

COMMANDS = ["run", "chat", "serve", "inspect", "bench", "eval", "completion"]


def test_overview_names_every_command(program):
    for page in (program.text("--help"), program.text("help")):
        for command in COMMANDS:
            assert f"  {command} " in page


def test_no_command_is_an_error_with_the_overview(program):
    done = program.run(check=1)
    assert b"Usage: headrace" in done.stderr


def test_version(program):
    assert program.text("--version").startswith("headrace ")


@pytest.mark.parametrize("command", COMMANDS)
def test_help_of_each_command(program, command):
    page = program.text(command, "--help")
    assert page.startswith(f"Usage: headrace {command}")
    assert "Examples:" in page
    assert max(map(len, page.splitlines())) <= 110
    assert page == program.text("help", command)


def test_output_that_cannot_be_written_is_an_error(program):
    with open("/dev/full", "wb") as full:
        child = program.start("--help", stdout=full, stderr=subprocess.PIPE)
        assert b"the output cannot be written: No space left" in child.communicate()[1]
    assert child.returncode == 1


def test_unknown_command(program):
    assert "'frobnicate'" in program.error("frobnicate")


@pytest.mark.parametrize(
    "arguments, named",
    [
        (["run", "--no-such-flag"], "--no-such-flag"),
        (["run", "-p", "x", "--temperature", "warm"], "--temperature"),
        (["run", "-p", "x", "--temperature", "nan"], "--temperature"),
        (["serve", "--gpu-memory-utilization", "nan"], "--gpu-memory-utilization"),
        (["serve", "--port", "99999"], "--port"),
        (["serve", "-m", "any.gguf", "--allowed-origins", "[1"], "--allowed-origins"),
        (["run", "-p", "x", "--max-model-len", "1.5K"], "--max-model-len"),
        (["run", "-p", "x", "--dtype", "int3"], "--dtype"),
        (["serve", "any.gguf", "--host", "no-such-host.invalid"], "--host no-such-host.invalid"),
        (["serve", "any.gguf", "--revision", "v2"], "--revision v2"),
        (["serve", "any.gguf", "--speculative-config", '{"model": 1}'], "--speculative-config"),
        (["serve", "-hf", "maker/none"], "hf download maker/none"),
        (["bench", "-p", "5x12"], "5x12"),
        (["eval", "perplexity"], "FILE"),
        (["inspect"], "MODEL"),
        (["completion", "tcsh"], "tcsh"),
    ],
)
def test_wrong_flags_are_named(program, arguments, named):
    assert named in program.error(*arguments)


def test_missing_default_model_says_how_to_get_it(program):
    message = program.error("run", "-p", "x")
    assert "quickstart" in message and "-m" in message


@pytest.mark.parametrize(
    "command, remedy", [("pull", "hf download"), ("show", "headrace inspect"), ("run-batch", "headrace batch")]
)
def test_commands_of_other_programs_are_told_what_does_it_here(program, command, remedy):
    message = program.error(command, "x")
    assert f"'{command}'" in message and remedy in message


def test_a_model_may_stand_without_its_flag(program):
    """As in Ollama's `run MODEL PROMPT`."""
    assert "/nowhere/m.gguf" in program.error("run", "/nowhere/m.gguf", "Hello")
    assert "/nowhere/m.gguf" in program.error("chat", "/nowhere/m.gguf")


def test_flags_of_the_environment(program):
    ask = ("run", "-p", "x", "-m", "/nowhere/m.gguf")
    done = program.run(*ask, check=1, environment={"LLAMA_ARG_N_GPU_LAYERS": "99", "HEADRACE_THREADS": "2"})
    assert b"--n-gpu-layers is ignored" in done.stderr and b"/nowhere/m.gguf" in done.stderr
    done = program.run(*ask, check=1, environment={"HEADRACE_THREADS": "many"})
    assert b"--threads" in done.stderr and b"HEADRACE_THREADS" in done.stderr
    done = program.run("run", "-p", "x", check=1, environment={"LLAMA_ARG_MODEL": "/nowhere/l.gguf"})
    assert b"$LLAMA_ARG_MODEL names /nowhere/l.gguf" in done.stderr


def test_missing_file_is_named(program):
    assert "/nowhere/m.gguf" in program.error("run", "-p", "x", "-m", "/nowhere/m.gguf")
    assert "/nowhere/m.gguf" in program.error("inspect", "/nowhere/m.gguf")


def test_empty_prompt(program):
    assert "stdin is empty" in program.error("run", "-m", "any.gguf", stdin="")


def test_a_file_that_is_no_model(program, tmp_path):
    path = tmp_path / "fake.gguf"
    path.write_bytes(b"not a model" * 100)
    for command in (["run", "-p", "x", "-m", path], ["inspect", path]):
        assert "fake.gguf" in program.error(*command)


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_completion_scripts_are_valid(program, shell, tmp_path):
    script = program.text("completion", shell)
    for word in ("max-model-len", "streams", "perplexity", "served-model-name"):
        assert word in script
    if shutil.which(shell) is None:
        return
    path = tmp_path / f"headrace.{shell}"
    path.write_text(script)
    subprocess.run([shell, "-n", str(path)], check=True, timeout=30)


def bash_completes(program, tmp_path, *words):
    """What bash would offer for the last of `words`."""
    path = tmp_path / "headrace.bash"
    path.write_text(program.text("completion", "bash"))
    typed = " ".join(f"'{word}'" for word in ("headrace", *words))
    ask = (
        f"source {path}; COMP_WORDS=({typed}); COMP_CWORD={len(words)}; _headrace; "
        'printf "%s\\n" "${COMPREPLY[@]}"'
    )
    done = subprocess.run(["bash", "-c", ask], capture_output=True, check=True, timeout=30)
    return done.stdout.decode().split()


def test_bash_completes_commands_flags_and_values(program, tmp_path):
    assert bash_completes(program, tmp_path, "be") == ["bench"]
    assert "--max-model-len" in bash_completes(program, tmp_path, "serve", "--max-m")
    assert bash_completes(program, tmp_path, "run", "--dtype", "flo") == ["float32", "float", "float16"]
    assert bash_completes(program, tmp_path, "completion", "f") == ["fish"]
    assert bash_completes(program, tmp_path, "eval", "") == ["perplexity", "score"]
