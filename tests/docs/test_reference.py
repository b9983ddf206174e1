"""The reference and the tables of flags are the program's own, and what pages name is there."""

import pathlib
import re
import subprocess
import sys

import pytest

import check_docs
import program_words
import served_words
from conftest import ROOT

PLACEHOLDERS = {"--flag", "--no-x", "--x"}  # of any flag
OTHERS = {"--security-opt", "--prefix", "--install"}  # of docker, cmake
HISTORY = ("docs/decisions/", "docs/kernels/notebook/", "docs/scheduling_notebook.md")  # what was so on its day


@pytest.fixture(scope="module")
def flags(binary):
    """Every flag of every command."""
    return {name for command in program_words.commands(binary) for flag in command.flags for name in flag.names}


def test_the_reference_is_what_the_program_says(binary):
    done = subprocess.run([sys.executable, ROOT / "scripts/reference.py", "--program", binary, "--check"], capture_output=True, text=True)
    assert done.returncode == 0, done.stdout[-4000:] + done.stderr


def test_every_flag_is_in_the_reference(binary, flags):
    page = (ROOT / "docs/reference/flags.md").read_text()
    assert all(f"`{name}`" in page for name in flags)
    assert all(f"\n## headrace {command.name}\n" in page for command in program_words.commands(binary))


def test_every_route_is_in_the_reference():
    page = (ROOT / "docs/reference/routes.md").read_text()
    routes = re.findall(r'^ROUTE\("(\w+)", "([^"]+)"', (ROOT / "src/server/routes.inc").read_text(), re.MULTILINE)
    assert len(routes) > 80
    assert [f"{method} {path}" for method, path in routes if f"| `{method} {path}` |" not in page] == []


def test_every_metric_is_in_the_reference():
    page = (ROOT / "docs/reference/metrics.md").read_text()
    names = served_words.named_in_sources("server", r"(?:vllm|headrace|sglang|llamacpp):\w+") | served_words.named_in_sources("route", r"headrace_route_\w+")
    assert len(names) > 80
    assert [name for name in names if f"| `{name}` |" not in page] == []


def flags_of_scripts():
    """Those of the repository's own scripts and tests, and of foreign programs that the program knows."""
    found = set()
    for folder in ("scripts", "bench", "tests", "src/cli"):
        for path in (ROOT / folder).rglob("*"):
            if path.is_file() and (path.suffix in (".py", ".sh", ".cc") or path.parent.name == "scripts"):
                found |= set(re.findall(r"(?<![\w-])--[a-z][\w-]+", path.read_text(errors="replace")))
    return found


def spans(path):
    """(line, code) of a page; of its tables of other programs' flags without the first column."""
    text = re.sub(r"^\| `-[^`]*` \|", "| |", path.read_text(encoding="utf-8"), flags=re.MULTILINE)
    for number, line in enumerate(text.split("\n"), 1):
        for span in re.findall(r"`([^`]+)`", line):
            yield number, span


def test_flags_that_pages_name_are_there(flags):
    known = flags | flags_of_scripts() | PLACEHOLDERS | OTHERS
    wrong = []
    for path in check_docs.pages():
        if check_docs.named(path).startswith(HISTORY):
            continue
        for number, span in spans(path):
            if flag := re.match(r"(?:headrace [a-z ]*)?(--[a-z][\w-]+)", span):
                wrong += [f"{check_docs.named(path)}:{number}: {flag[1]}"] if flag[1] not in known else []
    assert wrong == []


def test_commands_that_pages_name_are_there(binary):
    first_words = {command.name.split()[0] for command in program_words.commands(binary)} | {"help"}
    named = {(check_docs.named(path), found[1]) for path in check_docs.pages() for _, span in spans(path)
             if (found := re.match(r"(?:build/)?headrace ([a-z]+)\b", span))}  # fmt: skip
    assert len(named) > 50 and sorted((page, word) for page, word in named if word not in first_words) == []


def test_values_that_pages_name_are_among_the_choices(binary):
    flags = [flag for command in program_words.commands(binary) for flag in command.flags]
    of_scripts = {name for path in (ROOT / "bench").rglob("*.py") for name in re.findall(r'add_argument\("(--[\w-]+)"', path.read_text())}
    free = {name for flag in flags if flag.value != "NAME" for name in flag.names} | of_scripts  # also something else than one of some names
    said = {name: " ".join(flag.text for flag in flags if name in flag.names) for flag in flags for name in flag.names if name not in free}
    wrong = []
    for path in check_docs.pages():
        if check_docs.named(path).startswith(HISTORY):
            continue
        for number, span in spans(path):
            for name, value in re.findall(r"(?<![\w-])(--[a-z][\w-]+)[ =]([a-z][\w-]*)(?![\w.:/])", span):
                if name in said and value not in re.findall(r"[\w-]+", said[name]):
                    wrong.append(f"{check_docs.named(path)}:{number}: {name} {value}")
    assert len(said) > 20 and wrong == []


def test_commands_for_those_of_ollama_are_there(binary):
    text = (ROOT / "docs/from/ollama.md").read_text()
    table = text[text.index("<!-- commands -->") : text.index("<!-- end -->")]
    commands = {command.name for command in program_words.commands(binary)}
    theirs = re.findall(r"`ollama (\w+)[^`]*`", table)
    assert len(theirs) > 8
    for here in re.findall(r"`headrace (\w+)[^`]*`", table):
        assert here in commands
    for name in set(theirs) - commands:
        message = program_words.run(binary, name, "x").stderr
        assert f"there is no '{name}': " in message, f"{name}: {message}"


def test_quoted_messages_are_the_programs():
    """What stands in quotation marks in the first column of a table is somewhere in the program."""
    text = re.sub(r"\s+", " ", "".join(source_strings()))
    quoted = re.findall(r"^\| “([^”]+)”", (ROOT / "docs/troubleshooting.md").read_text(), re.MULTILINE)
    assert len(quoted) > 10
    assert [each for each in quoted if not all(part.strip() in text for part in each.split("…") if part.strip())] == []


def source_strings():
    for path in pathlib.Path(ROOT / "src").rglob("*.cc"):
        if not path.name.endswith("_test.cc"):
            yield "".join(re.findall(r'"((?:[^"\\\n]|\\.)*)"', path.read_text(errors="replace"))).replace('\\"', '"') + "\n"


def test_pictures_name_what_is_there(flags):
    headers = "".join(path.read_text(errors="replace") for path in (ROOT / "src").rglob("*.h"))
    pictures = sorted((ROOT / "docs/img/how").glob("*.svg"))
    page = (ROOT / "docs/pictures.md").read_text()
    assert len(re.findall(r"^!\[", page, re.MULTILINE)) == 10 and all(f"img/how/{path.name}" in page for path in pictures)
    for path in pictures:
        text = " ".join(re.findall(r">([^<>]+)</text>", path.read_text()))
        assert all(flag in flags for flag in re.findall(r"(?<!\S)--[a-z][\w-]+", text)), path
        assert all((ROOT / "src" / file).exists() for file in re.findall(r"\b[a-z_]+/[a-z_]+\.\w+", text)), path
        for owner, member in re.findall(r"\b([A-Z]\w+)::(\w+)", text):
            assert re.search(rf"class {owner}\b", headers) and f" {member}(" in headers, f"{path}: {owner}::{member}"
