#!/usr/bin/env python3
"""Records a chat on a pseudo-terminal, with real times, as asciinema plays it (asciicast v2), and prints what was shown.

    tests/cli/record_session.py docs/img/chat.cast -m MODEL.gguf        then: asciinema play docs/img/chat.cast
"""

import json
import os
import sys
import tempfile
import time
import types

from pseudo_terminal import STYLES, Terminal

BINARY = os.environ.get("HEADRACE_BINARY", "build/headrace")
COLUMNS, ROWS = 80, 24
INPUTS = [
    "Name three rivers of France in a list, with the length of each in bold.",
    "/set temperature 0",
    "Write a Python function that adds two numbers.",
    "/tokens",
    "/save rivers",
    "/load",
    "/exit",
]


def main():
    out, *arguments = sys.argv[1:]
    with tempfile.TemporaryDirectory() as state:
        environment = {"PATH": os.environ["PATH"], "HOME": os.environ["HOME"], "LANG": "C.UTF-8",
                       "TERM": "xterm-256color", "XDG_STATE_HOME": state}
        program = types.SimpleNamespace(binary=BINARY, environment=environment)
        terminal = Terminal(program, "chat", "--seed", "1", *arguments, columns=COLUMNS, rows=ROWS)
        events, start = [], time.monotonic()

        def read_until_quiet(seconds):
            while True:
                before = len(terminal.output)
                if not terminal.read(seconds):
                    return
                events.append([round(time.monotonic() - start, 3), "o", terminal.output[before:].replace(state, "~/.local/state")])

        for text in INPUTS:
            read_until_quiet(1.0)
            for character in text:
                terminal.type(character)
                read_until_quiet(0.03)
            terminal.type("\r")
        read_until_quiet(2.0)
        terminal.close()
    head = {"version": 2, "width": COLUMNS, "height": ROWS, "title": "headrace chat"}
    with open(out, "w") as file:
        for line in [head, *events]:
            file.write(json.dumps(line, ensure_ascii=False) + "\n")
    print(STYLES.sub("", "".join(event[2] for event in events)).replace("\r", ""))


main()
