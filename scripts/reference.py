#!/usr/bin/env python3
"""Makes docs/reference/*.md and the tables of flags in docs/from/*.md from what the program says of itself.

    scripts/reference.py [--program build/headrace]            writes them anew
    scripts/reference.py [--program build/headrace] --check    prints what would change; exit status 1 if anything would

flags.md is `headrace man`; routes.md is /openapi.json of a server, metrics.md its /metrics after a few requests, and those of
a router. In a table behind `<!-- flags: COMMAND -->` a person writes the first column, another program's flag with a value,
and the third; the second is what COMMAND answers when it is given that flag."""

import argparse
import concurrent.futures
import difflib
import json
import os
import pathlib
import re
import shlex
import sys

import program_words
import served_words

ROOT = pathlib.Path(__file__).resolve().parent.parent
REFERENCE = ROOT / "docs" / "reference"
MODEL = os.environ.get("HEADRACE_MODEL_SMOLLM2", os.path.expanduser("~/.cache/headrace/models/SmolLM2-135M-Instruct.Q4_1.gguf"))
MADE = "<!-- Made by scripts/reference.py from the program: change nothing here. -->\n"
SHARED_BY_MIN = 3  # commands that have a flag alike: then it stands in the table of its group


def cell(text):
    return text.replace("|", "\\|").replace("<", "&lt;")


def code(text):
    return "`" + text.replace("|", "\\|") + "`"


# --- flags


def flag_row(flag, commands=None):
    names = ", ".join(code(name) for name in flag.names if name not in flag.off)
    value = f" {code(flag.value)}" if flag.value and not flag.is_positional else ""
    if flag.off:
        value += "; off: " + ", ".join(code(name) for name in flag.off)
    row = f"| {names}{value} | {cell(flag.text)} |"
    return row if commands is None else f"{row} {', '.join(commands)} |"


def anchor(title):
    return re.sub(r"[^\w\- ]", "", title.lower()).replace(" ", "-")


def flags_page(commands):
    having = {}
    for command in commands:
        for flag in command.flags:
            having.setdefault(flag, []).append(command.name)
    shared = {flag for flag, names in having.items() if len(names) >= SHARED_BY_MIN and flag.names[0] != "--help"}
    groups = list(dict.fromkeys(flag.group for flag in having if flag in shared))
    titles = {group: f"Shared: {group.lower()}" for group in groups}

    page = ["# Flags\n",
            "Every command with its flags; what several commands have alike stands once, under *Shared*. Any flag of a command that takes a",
            "model may come from the environment (`HEADRACE_MAX_MODEL_LEN=4k`) or from the file of `--config`. `headrace COMMAND --help`,",
            "`headrace man` and completions are made from the same table. Each has `--help`, `-h`.\n",
            "| command | |", "|---|---|"]  # fmt: skip
    page += [f"| [{code(command.name)}](#{anchor('headrace ' + command.name)}) | {cell(command.summary)} |" for command in commands]
    for command in commands:
        page += [f"\n## headrace {command.name}", cell(command.summary[0].upper() + command.summary[1:]) + "."]
        own = [flag for flag in command.flags if flag not in shared and flag.names[0] != "--help"]
        for group in dict.fromkeys(flag.group for flag in own):
            page += [f"\n| {group.lower()} | |", "|---|---|"] + [flag_row(flag) for flag in own if flag.group == group]
        also = [group for group in groups if any(flag in shared and flag.group == group for flag in command.flags)]
        if also:
            page.append("\nAnd of " + ", ".join(f"[{titles[group].lower()}](#{anchor(titles[group])})" for group in also) + ".")
        if command.examples:
            page += ["\n```text", command.examples.strip(), "```"]
    for group in groups:
        page += [f"\n## {titles[group]}", "| flag | | commands |", "|---|---|---|"]
        page += [flag_row(flag, having[flag]) for flag in having if flag in shared and flag.group == group]
    return "\n".join(page) + "\n"


# --- flags of other programs


def answer_to(program, command, own, words):
    """`own`: the command's own flags by each of their names. A value in capitals stands for any: whether it is there is not asked."""
    known = own.get(words[0])
    said = "taken"
    if known is None or not re.fullmatch(r"[A-Z/:,=]+", words[-1]):
        said = program_words.how_it_is_taken(program, command, words)
    if said == "taken" and known is None:
        return "accepted"
    if said == "taken":
        name = known.name_of(words[0])
        return "the same" if name == words[0] else code(name)
    if "there is no flag" in said:
        return "–"
    return cell(re.sub(r"^refused: (?:-\S+: )?(?:is not supported: )?", "refused: ", said))


def filled_tables(program, text, commands):
    def filled(match):
        command = match[1]
        own = {name: flag for flag in next(each for each in commands if each.name == command).flags for name in flag.names}

        def row(line):
            found = re.match(r"^\| `(-[^`]*)` \|.*?\| ?([^|]*)\|$", line)
            if found is None:
                return line
            words = shlex.split(found[1]) if "{" not in found[1] else found[1].split(" ", 1)
            return f"| `{found[1]}` | {answer_to(program, command, own, words)} | {found[2].strip()} |".replace("|  |", "| |")

        with concurrent.futures.ThreadPoolExecutor(os.cpu_count()) as pool:
            return f"<!-- flags: {command} -->\n" + "\n".join(pool.map(row, match[2].split("\n"))) + "<!-- end -->"

    return re.sub(r"<!-- flags: (\S+) -->\n(.*?)<!-- end -->", filled, text, flags=re.DOTALL)


# --- files


def made(text):
    """A whole page, with the mark that it is made behind its title."""
    title, _, rest = text.partition("\n")
    return f"{title}\n{MADE}{rest}"


def made_files(program):
    """{path: text}"""
    commands = program_words.commands(program)
    files = {REFERENCE / "flags.md": made(flags_page(commands))}
    for path in sorted((ROOT / "docs" / "from").glob("*.md")):
        text = path.read_text(encoding="utf-8")
        files[path] = filled_tables(program, text, commands)
    for name, text in served_words.pages(program, MODEL).items():
        files[REFERENCE / f"{name}.md"] = made(text)
    return files


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--program", default=os.environ.get("HEADRACE_BINARY", str(ROOT / "build" / "headrace")))
    parser.add_argument("--check", action="store_true")
    options = parser.parse_args()
    changed = False
    for path, text in made_files(options.program).items():
        before = path.read_text(encoding="utf-8") if path.exists() else ""
        if before == text:
            continue
        changed = True
        if options.check:
            name = str(path.relative_to(ROOT))
            sys.stdout.writelines(difflib.unified_diff(before.splitlines(True), text.splitlines(True), name, f"{name} as the program makes it"))
        else:
            path.parent.mkdir(exist_ok=True)
            path.write_text(text, encoding="utf-8")
    if changed and options.check:
        print("reference.py: pages differ from the program: run scripts/reference.py", file=sys.stderr)
    return 1 if changed and options.check else 0


if __name__ == "__main__":
    sys.exit(main())
