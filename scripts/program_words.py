"""What the program says of itself: its commands with their flags, read from `headrace man`, and how it takes a flag."""

import dataclasses
import functools
import re
import subprocess


@dataclasses.dataclass(frozen=True)
class Flag:
    names: tuple[str, ...]  # "--model", "-m"; of a positional its name alone
    value: str  # "" : it takes none
    text: str
    group: str
    off: tuple[str, ...] = ()  # of the names those that say no

    @property
    def own_name(self):
        """The one that stands first in help."""
        return next((name for name in self.names if name.startswith("--")), self.names[0])

    def name_of(self, used):
        """What help calls what `used`, one of the names, asks for."""
        if used not in self.off:
            return self.own_name
        twin = "--no-" + self.own_name[2:]
        return twin if twin in self.off else used

    @property
    def is_positional(self):
        return not self.names[0].startswith("-")


@dataclasses.dataclass
class Command:
    name: str  # "bench latency"
    summary: str
    flags: list[Flag]
    examples: str


def run(program, *arguments):
    return subprocess.run([program, *arguments], capture_output=True, text=True, timeout=60)


def from_roff(text):
    return text.replace("\\-", "-").replace("\\e", "\\").replace("\\&", "")


def flag_of(entry, group, off):
    """What stands between two .TP."""
    head, _, text = entry.partition("\n")
    names = tuple(from_roff(name) for name in re.findall(r"\\fB(.*?)\\fR", head))
    value = re.search(r"\\fI(.*?)\\fR", head)
    return Flag(names, from_roff(value[1]) if value else "", from_roff(" ".join(text.split())), group, tuple(name for name in names if name in off))


def off_names(program, command):
    """Names that switch something off, as the help of a command marks them."""
    page = " ".join(run(program, *command.split(), "--help").stdout.split())
    return {name.strip() for found in re.findall(r"\(off: ([^)]*)\)", page) for name in found.split(",")}


@functools.cache
def commands(program):
    page = run(program, "man").stdout
    sections = re.split(r'^\.SH "(.+)"\n', page, flags=re.MULTILINE)[1:]
    found = []
    for name, section in zip(sections[::2], sections[1::2]):
        section = section.split("\n.SH ")[0]
        summary = from_roff(re.search(r"^\.PP\n(.*)\.$", section, re.MULTILINE)[1])
        examples = re.search(r"\.nf\n(.*?)\n\.fi", section, re.DOTALL)
        flags, off = [], off_names(program, from_roff(name))
        for group, entries in re.findall(r'^\.SS "([^"\n]+)"\n(.*?)(?=^\.SS |^\.PP\n\.nf|\Z)', section, re.MULTILINE | re.DOTALL):
            flags += [flag_of(entry, from_roff(group), off) for entry in entries.split(".TP\n")[1:]]
        found.append(Command(from_roff(name), summary, flags, from_roff(examples[1]) if examples else ""))
    return found


NOWHERE = "/nowhere/model.gguf"


def how_it_is_taken(program, command, words):
    """A flag of another program, with its value: what this one's command says to it. "taken", or why not."""
    port = [] if words[0] == "--port" else ["--port", "0"]
    done = run(program, command, "-m", NOWHERE, *port, *words)
    warning = re.search(r"warning: \S+ is ignored: (.*)", done.stderr)
    if warning:
        return "ignored: " + warning[1]
    if NOWHERE in done.stderr or "cannot listen" in done.stderr:  # flags are read, then the port is opened, then the model
        return "taken"
    error = re.search(r"error: (.*?)(?: \(see '.*'\))?$", done.stderr, re.MULTILINE)
    return "refused: " + (error[1] if error else done.stderr.strip())
