"""Every block of commands in the pages is run, page by page, as a reader would; those that are marked `not run` at least name flags that there are."""

import importlib.util
import os
import re
import shlex

import pytest

import check_docs
import program_words
from conftest import MINILM, MODEL
from reader import Reader

PACKAGE = "headrace"  # whose blocks ./test --full runs, where it is installed


def blocks(path):
    return [block for block in check_docs.blocks_of(path.read_text(encoding="utf-8")) if block.is_command]


def of_package(block):
    return block.language == "python" and re.search(rf"^(?:from|import) {PACKAGE}\b", block.text, re.MULTILINE) is not None


PAGES = {check_docs.named(path): [block for block in blocks(path) if block.reason is None] for path in check_docs.pages()}
RUN = [name for name, found in PAGES.items() if any(not of_package(block) for block in found)]
OF_PACKAGE = [name for name, found in PAGES.items() if any(map(of_package, found))]
MARKED = [(check_docs.named(path), block) for path in check_docs.pages() for block in blocks(path) if block.reason is not None]


@pytest.fixture
def reader(tmp_path, binary):
    for model in (MODEL, MINILM):
        if not os.path.exists(model):
            pytest.skip(f"no model at {model} (./test fetches it)")
    found = Reader(tmp_path, binary, MODEL, MINILM)
    yield found
    found.close()


def run_page(reader, name, chosen):
    for block in PAGES[name]:
        if not chosen(block):
            continue
        done = reader.run(block)
        logs = "".join(log.read_text(errors="replace") for log in reader.logs.iterdir())
        assert done.returncode == 0, f"{name}:{block.line}\n{block.text}\n{done.stdout[-2000:]}\n{done.stderr[-3000:]}\n{logs[-2000:]}"
        assert '{"error"' not in done.stdout, f"{name}:{block.line}: an answer is an error:\n{done.stdout[-2000:]}"


@pytest.mark.timing
@pytest.mark.parametrize("name", RUN)
def test_the_blocks_of_a_page_run(reader, name):
    run_page(reader, name, lambda block: not of_package(block))


@pytest.mark.timing
@pytest.mark.parametrize("name", OF_PACKAGE)
def test_the_blocks_of_the_python_package_run(reader, name):
    if importlib.util.find_spec(PACKAGE) is None:
        pytest.skip("the Python package is not installed: ./test --full runs these")
    run_page(reader, name, of_package)


def commands_of(text, names):
    """The calls of the program in a block of sh, as (command, its words)."""
    for line in re.sub(r"\\\n", " ", text).split("\n"):
        words = shlex.split(line, comments=True)
        if words and words[0].split("/")[-1] == "headrace":
            two = " ".join(words[1:3])
            yield (two, words[3:]) if two in names else (words[1], words[2:])


def test_marked_blocks_name_flags_that_there_are(binary):
    flags = {command.name: {name for flag in command.flags for name in flag.names} for command in program_words.commands(binary)}
    seen = 0
    for name, block in MARKED:
        for command, words in commands_of(block.text, flags) if block.language == "sh" else ():
            assert command in flags, f"{name}:{block.line}: there is no command {command}"
            seen += 1
            for word in words:
                flag = word.split("=")[0]
                assert not flag.startswith("-") or flag in flags[command], f"{name}:{block.line}: {command} has no flag {flag}"
    assert seen > 5


def test_reasons_are_few_and_said():
    """A reason is about the reader's machine, not about the page."""
    assert all(len(block.reason) > 10 for _, block in MARKED)
    run = sum(map(len, PAGES.values()))
    assert run > 2 * len(MARKED), f"{run} blocks are run, {len(MARKED)} are not"


def block(text, language="sh"):
    return check_docs.Block(1, language, text, None)


@pytest.mark.parametrize("text", ["headrace run --no-such-flag", "false | cat", "headrace serve -m /nowhere.gguf", "curl -f http://127.0.0.1:8000/health"])
def test_a_block_that_fails_is_seen(reader, text):
    assert reader.run(block(text)).returncode != 0


def test_servers_end_with_the_page(reader):
    done = reader.run(block("headrace serve -m ANY.gguf --port 8001 && curl -sf http://127.0.0.1:8001/health && echo && cat $READER_LOGS/pids"))
    assert done.returncode == 0 and '"ok"' in done.stdout, done.stderr
    pid = int(done.stdout.split()[-1])
    reader.end_servers()
    assert not os.path.exists(f"/proc/{pid}/exe") or "headrace" not in os.readlink(f"/proc/{pid}/exe")
