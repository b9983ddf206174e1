#!/usr/bin/env python3
"""Habits that a machine keeps of the pages: links that lead somewhere, blocks that say what they are. ./test --quick runs it.

    scripts/check_docs.py           what is wrong, one line each; exit status 1 if anything is
    scripts/check_docs.py --marked  the blocks of commands that no test runs, with the reason of each

What it looks at, in every .md file:
  links   a relative link names a file or folder that is there; its anchor is a heading there
  blocks  a fenced block says its language. Those of `sh` and `python` are commands: tests/docs runs them, unless the
          line in front of the block is `<!-- not run: REASON -->`
"""

import argparse
import dataclasses
import functools
import os
import pathlib
import re
import sys

ROOT = pathlib.Path(__file__).resolve().parent.parent
COMMANDS = ("sh", "python")
LINK = re.compile(r"!?\[[^\]]*\]\(([^)\s]+)(?:\s+\"[^\"]*\")?\)")
MARK = re.compile(r"^<!-- not run: (\S.*) -->$")


@dataclasses.dataclass
class Block:
    line: int  # of its first line of text, from 1
    language: str
    text: str
    reason: str | None  # why no test runs it

    @property
    def is_command(self):
        return self.language in COMMANDS


def pages():
    found = []
    for path, folders, names in os.walk(ROOT):
        folders[:] = sorted(name for name in folders if not name.startswith((".", "build", "__pycache__")))
        found += [pathlib.Path(path) / name for name in sorted(names) if name.endswith(".md")]
    return found


def named(path):
    return str(path.relative_to(ROOT))


def blocks_of(text):
    """The fenced blocks of a page; a fence that is never closed is a block to its end."""
    found, lines, at = [], text.split("\n"), 0
    while at < len(lines):
        fence = re.match(r"^(`{3,})\s*([\w+-]*)", lines[at])
        if fence is None:
            at += 1
            continue
        begin = at + 1
        end = next((i for i in range(begin, len(lines)) if lines[i].strip() == fence[1]), len(lines))
        mark = MARK.match(lines[at - 1]) if at > 0 else None
        found.append(Block(begin + 1, fence[2], "\n".join(lines[begin:end]) + "\n", mark and mark[1]))
        at = end + 1
    return found


def without_code(text):
    """The same lines, without what is in fences and in `code`."""
    text = re.sub(r"^(`{3,}).*?^\1$", lambda match: re.sub(r"[^\n]", " ", match[0]), text, flags=re.MULTILINE | re.DOTALL)
    return re.sub(r"`[^`\n]+`", lambda match: " " * len(match[0]), text)


def slug(heading):
    """A heading's anchor, as forges and the site make it."""
    heading = re.sub(r"\[([^\]]*)\]\([^)]*\)", r"\1", heading)
    return re.sub(r"[^\w\- ]", "", heading.strip().lower()).replace(" ", "-")


@functools.cache
def anchors_of(path):
    found, text = set(), re.sub(r"^(`{3,}).*?^\1$", "", path.read_text(encoding="utf-8"), flags=re.MULTILINE | re.DOTALL)
    for heading in re.findall(r"^#{1,6} +(.+?) *#*$", text, re.MULTILINE):
        anchor, number = slug(heading), 0
        while anchor in found:
            number += 1
            anchor = f"{slug(heading)}-{number}"
        found.add(anchor)
    return found | set(re.findall(r"<a (?:id|name)=\"([^\"]+)\"", text))


def links(path, text):
    found = []
    for number, line in enumerate(without_code(text).split("\n"), 1):
        for link in LINK.findall(line):
            if re.match(r"[a-z][a-z+]*:", link):
                continue
            file, _, anchor = link.partition("#")
            target = (path.parent / file).resolve() if file else path
            if not target.exists():
                found.append(f"{named(path)}:{number}: {link}: there is no such file")
            elif not target.is_relative_to(ROOT):
                found.append(f"{named(path)}:{number}: {link} leads out of the repository")
            elif anchor and (target.suffix != ".md" or anchor not in anchors_of(target)):
                found.append(f"{named(path)}:{number}: {link}: no heading of {named(target)} has this anchor")
    return found


def blocks(path, text):
    found = []
    for block in blocks_of(text):
        if not block.language:
            found.append(f"{named(path)}:{block.line - 1}: a block without a language: sh or python for commands, else text, json, ...")
        elif block.reason and not block.is_command:
            found.append(f"{named(path)}:{block.line - 1}: a mark in front of a block that is none of commands")
    for number, line in enumerate(text.split("\n"), 1):
        if line.startswith("<!-- not run") and (MARK.match(line) is None or not text.split("\n")[number].startswith("```")):
            found.append(f"{named(path)}:{number}: a mark is the line `<!-- not run: REASON -->` in front of a block")
    return found


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--marked", action="store_true")
    options = parser.parse_args()
    found = []
    for path in pages():
        text = path.read_text(encoding="utf-8")
        if options.marked:
            found += [f"{named(path)}:{block.line}: {block.reason}" for block in blocks_of(text) if block.reason]
        else:
            found += links(path, text) + blocks(path, text)
    print("\n".join(found))
    return 1 if found and not options.marked else 0


if __name__ == "__main__":
    sys.exit(main())
