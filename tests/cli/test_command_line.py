"""Help, versions, completion scripts and errors: nothing here loads a model."""

import re
import shutil
import subprocess

import pytest

COMMANDS = ["run", "chat", "serve", "route", "inspect", "bench", "eval", "completions", "top", "man"]


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


@pytest.mark.parametrize("command, remedy", [
    ("ps", "headrace top"), ("stop", "keep_alive"), ("cp", "--served-model-name"), ("create", "--system"),
    ("push", "files"), ("quantise", "did you mean 'quantize'?"), ("serv", "did you mean 'serve'?"),
    ("nonsense", "see 'headrace --help'"),
])
def test_commands_of_others_and_misspelt_ones_name_the_remedy(program, command, remedy):
    assert remedy in program.error(command)


def test_a_rate_of_zero_is_refused_in_few_words(program):
    assert "--rate: 0 is no number above 0" in program.error("bench", "simulate", "--rate", "0")


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
        (["serve", "-hf", "maker/none"], "headrace pull maker/none"),
        (["bench", "-p", "5x12"], "5x12"),
        (["eval", "perplexity"], "FILE"),
        (["inspect"], "MODEL"),
        (["completions", "tcsh"], "tcsh"),
    ],
)
def test_wrong_flags_are_named(program, arguments, named):
    assert named in program.error(*arguments)


def test_missing_default_model_says_how_to_get_it(program):
    message = program.error("run", "-p", "x")
    assert "quickstart" in message and "-m" in message


@pytest.mark.parametrize(
    "command, remedy", [("ls", "headrace list"), ("run-batch", "headrace batch")]
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
    done = program.run(*ask, "-n5", check=1, environment={"HEADRACE_MAX_TOKENS": "many"})  # the command line goes first
    assert b"/nowhere/m.gguf" in done.stderr and b"HEADRACE_MAX_TOKENS" not in done.stderr
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


def subcommands_of(program):
    """The names of the overview: "bench", "bench serve", ..."""
    page = program.text("--help")
    listed = page[page.index("Commands:\n") + len("Commands:\n") : page.index("\n\n  --version")]
    return [line[2:20].strip() for line in listed.split("\n")]


def flags_of_help(program, command):
    """Every long and short flag that the help of a command names as its own, with its aliases."""
    page = program.text(*command.split(), "--help")
    flags = set()
    for line in page.split("\nExamples:")[0].split("\n"):
        if found := re.match(r"  (?:(-\w), )?(?:   )?\s?(--[\w-]+)", line):
            flags |= {name for name in found.groups() if name}
    for aliases in re.findall(r"\(also ([^)]*)\)", re.sub(r"\s+", " ", page)):
        flags |= {name.strip() for name in aliases.split(",")}
    return flags


def test_each_flag_of_each_command_is_in_completions_and_manual(program):
    scripts = {shell: program.text("completions", shell) for shell in ("bash", "zsh", "fish")}
    manual = program.text("man").replace("\\-", "-")
    commands = subcommands_of(program)
    assert {"serve", "chat", "bench serve", "bench ceilings", "top"} <= set(commands)
    bash_flags = dict(re.findall(r"^ +'([\w ]+)'\) flags='([^']*)'", scripts["bash"], re.M))
    for command in commands:
        flags = flags_of_help(program, command)
        assert {"--help", "-h"} <= flags
        section = manual[manual.index(f'\n.SH "{command}"\n') :].split("\n.SH ")[1]
        arm = scripts["zsh"][scripts["zsh"].index(f"        '{command}')\n            _arguments") :].split(" ;;")[0]
        fish = [line for line in scripts["fish"].split("\n") if f'(__headrace_command) = "{command}"' in line]
        for flag in flags:
            assert flag in bash_flags[command].split(), (command, flag)
            assert f"'{flag}[" in arm, (command, flag)
            spelled = f" -l {flag[2:]} " if flag.startswith("--") else f" -s {flag[1:]} "
            assert any(spelled in line for line in fish), (command, flag)
            assert f"\\fB{flag}\\fR" in section, (command, flag)
        alone = program.text("man", *command.split()).replace("\\-", "-")
        assert all(f"\\fB{flag}\\fR" in alone for flag in flags)


def test_the_manual_is_what_roff_takes(program, tmp_path):
    if shutil.which("groff") is None:
        pytest.skip("groff is not installed")
    path = tmp_path / "headrace.1"
    path.write_text(program.text("man"))
    done = subprocess.run(["groff", "-man", "-ww", "-Tutf8", "-Kutf8", str(path)], capture_output=True, check=True, timeout=60)
    assert done.stderr == b""
    text = re.sub("\x1b\\[[0-9;]*m", "", done.stdout.decode())
    assert "--max-model-len" in text and "headrace chat" in text
    assert "is no command" in program.error("man", "nonsense")


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_completion_scripts_are_valid(program, shell, tmp_path):
    script = program.text("completions", shell)
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
    path.write_text(program.text("completions", "bash"))
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
    assert bash_completes(program, tmp_path, "completions", "f") == ["fish"]
    assert bash_completes(program, tmp_path, "eval", "") == ["perplexity", "score"]
    assert "--random-input-len" in bash_completes(program, tmp_path, "bench", "serve", "--random-i")
    assert bash_completes(program, tmp_path, "bench", "lat") == ["latency"]


def test_completions_have_an_older_name(program):
    assert program.text("completion", "bash") == program.text("completions", "bash")
