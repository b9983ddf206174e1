#!/usr/bin/env python3
"""Habits that a machine keeps: layout, sizes, includes and words of the sources. ./test --quick runs it.

    scripts/check_source.py             what is wrong, one line each; exit status 1 if anything is
    scripts/check_source.py --sizes     the largest files, functions and classes
    scripts/check_source.py --tighten   writes scripts/source_limits.json anew where sources have become smaller

What it looks at:
  layout    clang-format leaves every file as it is
  sizes     no function over 70 lines; no file over 700 lines and no class over 40 methods or 30 members, but for those
            named in source_limits.json with the size that they may not outgrow: they can only become smaller
  includes  an include names a file that is there; folders include only those that docs/architecture.md allows, and
            there is no cycle between them
  names     no class is defined in two files
  words     no word that docs/words.md replaces by one of the field's
"""

import argparse
import concurrent.futures
import json
import os
import pathlib
import re
import shutil
import subprocess
import sys

ROOT = pathlib.Path(__file__).resolve().parent.parent
LIMITS = ROOT / "scripts" / "source_limits.json"
ENDINGS = (".h", ".cc", ".cuh", ".cu", ".inc")
PAGE_ENDINGS = (".js",)  # of which only the layout is looked at
FOLDERS = ("src", "bench", "tests")

FUNCTION_LINES_MAX = 70
FILE_LINES_MAX = 700
METHODS_MAX = 40
MEMBERS_MAX = 30

# Words that a newcomer would have to decode, and what the field says.
WORDS = {
    r"\b(ride|rides|rode|ridden)\b": "run, measured",
    r"\bwhom\b": "the sequence, the request, the caller",
}


def files(endings, folders):
    """Below the folders ("": at the root), but for what is built or hidden."""
    found = []
    for folder in folders:
        for path, below, names in os.walk(ROOT / folder):
            below[:] = sorted(name for name in below if not name.startswith(("build", ".", "__pycache__"))) if folder else []
            found += [pathlib.Path(path) / name for name in sorted(names) if name.endswith(endings)]
    return found


def sources():
    return files(ENDINGS, FOLDERS)


def named(path):
    return str(path.relative_to(ROOT))


# --- layout ---


def layout(paths):
    program = shutil.which("clang-format") or shutil.which("clang-format-14")
    if program is None:
        return ["clang-format is not installed (scripts/packages.txt, group test)"]
    paths = [path for path in paths if path.suffix != ".inc"]
    chunks = [paths[i : i + 25] for i in range(0, len(paths), 25)]

    def run(chunk):
        done = subprocess.run([program, "--dry-run", "--Werror", *map(str, chunk)], capture_output=True, text=True)
        return {line.split(":")[0] for line in done.stderr.split("\n") if "error:" in line}

    with concurrent.futures.ThreadPoolExecutor(os.cpu_count()) as pool:
        wrong = sorted(set().union(*pool.map(run, chunks)))
    return [f"{named(pathlib.Path(path))}: clang-format would change it" for path in wrong]


# --- sizes ---

LITERALS = re.compile(r'//[^\n]*|/\*.*?\*/|R"(\w*)\(.*?\)\1"|"(?:\\.|[^"\\\n])*"|(?<![0-9a-fA-F])\'(?:\\.|[^\'\\\n])+\'', re.DOTALL)


def without_literals(text):
    """The same text, as long and with the same lines, without comments, strings and preprocessor lines."""
    keep_lines = lambda match: re.sub(r"[^\n]", " ", match[0])
    text = LITERALS.sub(keep_lines, text)
    return re.sub(r"^[ \t]*#(?:[^\n]*\\\n)*[^\n]*", keep_lines, text, flags=re.MULTILINE)


BEFORE_BODY = re.compile(r"(\)|\b(const|noexcept|override|final|mutable|try)|->\s*[\w:<>,*&\s]+)\s*$")
INITIALISERS = re.compile(r"\)\s*(?:noexcept\s*)?:[^:]")
CLASS = re.compile(r"\b(class|struct|union)\s+(?:alignas\s*\([^)]*\)\s*)?(?:\[\[[^\]]*\]\]\s*)?(\w[\w:<>, ]*?)\s*(?:final\s*)?(?::[^:].*)?$", re.DOTALL)


def kind_of(head, parent):
    """What the brace behind `head` opens, and its name."""
    head = head.strip()
    space = re.search(r"\bnamespace\b([\w\s:]*)$", head)
    if space or head.startswith("extern"):
        return "namespace", (space[1].replace("inline", "").strip() or "(anonymous)") if space else ""
    if re.search(r"\benum\b", head) and "(" not in head:
        return "other", ""
    found = CLASS.search(head)
    if found and "(" not in re.sub(r"alignas\s*\([^)]*\)|template\s*<[^{}]*>", "", head[: found.end()]) and "=" not in head:
        return "class", found[2].strip()
    body = BEFORE_BODY.search(head) or (head.endswith("}") and INITIALISERS.search(head))
    if parent in ("namespace", "class") and "(" in head and body and not re.search(r"=\s*$", head):
        name = re.search(r"([~\w:]+|operator\s*[^\s(]+)\s*\(", re.sub(r"__launch_bounds__\s*\([^)]*\)|__attribute__\s*\(\(.*?\)\)|alignas\s*\([^)]*\)", "", head))
        return "function", name[1] if name else "?"
    return "other", ""


def measure(path):
    """Lines of the file; [(name, lines)] of functions; [(name, methods, members)] of classes, which have their namespaces."""
    raw = path.read_text(errors="replace")
    text = without_literals(raw)
    functions, classes = [], []
    stack = [("namespace", "", 0)]
    counts = [[0, 0]]
    start, parens = 0, 0  # of the statement; parentheses that are open
    for at, c in enumerate(text):
        if c == "(":
            parens += 1
        elif c == ")":
            parens -= 1
        elif parens == 0 and c == "{":
            head = re.sub(r"^\s*(public|private|protected)\s*:", "", text[start:at].lstrip())
            kind, name = kind_of(head, stack[-1][0])
            begin = start + len(text[start:at]) - len(text[start:at].lstrip())
            stack.append((kind, name, begin, start))
            counts.append([0, 0])
            if kind != "other":
                start = at + 1
        elif parens == 0 and c == "}":
            if len(stack) == 1:
                continue
            kind, name, begin, before = stack.pop()
            methods, members = counts.pop()
            if kind == "function":
                lines = text.count("\n", begin, at) + 1
                functions.append((name, lines))
                if stack[-1][0] == "class":
                    counts[-1][0] += 1
            elif kind == "class":
                outer = [each[1] for each in stack if each[0] in ("namespace", "class") and each[1]]
                classes.append(("::".join([*outer, name]), methods, members))
            start = at + 1 if kind != "other" else before
        elif parens == 0 and c == ";":
            statement = text[start:at].strip()
            if stack[-1][0] == "class" and statement:
                statement = re.sub(r"^(public|private|protected)\s*:", "", statement).strip()
                plain = re.sub(r"<[^;]*>", "", statement.split("=")[0].split("{")[0])
                if re.match(r"(using|friend|typedef|static_assert|template\s*<[^>]*>\s*friend|static constexpr|enum)\b", statement):
                    pass
                elif "(" in plain and not statement.startswith("struct"):
                    counts[-1][0] += 1
                elif not re.match(r"(class|struct)\s+\w+$", statement):
                    counts[-1][1] += 1
            if stack[-1][0] != "other":
                start = at + 1
    return raw.count("\n"), functions, classes


def measured(paths):
    sizes = {}
    for path in paths:
        lines, functions, classes = measure(path)
        where = named(path)
        sizes[f"{where}: lines"] = lines
        for name, length in functions:
            key = f"{where}: {name}: lines"
            sizes[key] = max(length, sizes.get(key, 0))
        for name, methods, members in classes:
            name = name.replace("(anonymous)::", "").removeprefix("headrace::")
            sizes[f"{where}: {name}: methods"] = max(methods, sizes.get(f"{where}: {name}: methods", 0))
            sizes[f"{where}: {name}: members"] = max(members, sizes.get(f"{where}: {name}: members", 0))
    return sizes


def most(key):
    """What a size may be that source_limits.json does not name."""
    if key.endswith(": methods"):
        return METHODS_MAX
    if key.endswith(": members"):
        return MEMBERS_MAX
    return FUNCTION_LINES_MAX if key.count(": ") > 1 else FILE_LINES_MAX


def limits():
    return json.loads(LIMITS.read_text()) if LIMITS.exists() else {}


def sizes_over(paths):
    allowed = limits()
    sizes = measured(paths)
    found = [f"{key}: {size}, at most {allowed.get(key, most(key))}: find the missing noun"
             for key, size in sizes.items() if size > allowed.get(key, most(key))]  # fmt: skip
    found += [f"scripts/source_limits.json: {key} is {sizes.get(key, 0)} now, not {size}: run scripts/check_source.py --tighten"
              for key, size in allowed.items() if sizes.get(key, 0) < size]  # fmt: skip
    return found


def tighten(paths):
    sizes = measured(paths)
    over = {key: size for key, size in sorted(sizes.items()) if size > most(key)}
    before = limits()
    grown = [key for key, size in over.items() if before and size > before.get(key, most(key))]
    if grown:
        sys.exit("larger than before: " + ", ".join(grown))
    LIMITS.write_text(json.dumps(over, indent=2) + "\n")


# --- includes ---


def map_of_folders():
    """folder -> folders that it may include, from the table of docs/architecture.md."""
    rows = re.findall(r"^\| `(\w+)` \|.*\| ([^|]*) \|$", (ROOT / "docs" / "architecture.md").read_text(), re.MULTILINE)
    names = [name for name, _ in rows]
    allowed = {}
    for name, text in rows:
        allowed[name] = set(names) if text.strip() == "everything" else {each for each in re.findall(r"\w+", text) if each in names}
    return allowed


def cycle(edges):
    state, path = {}, []

    def visit(node):
        state[node] = 1
        path.append(node)
        for other in sorted(edges.get(node, ())):
            if state.get(other) == 1:
                return path[path.index(other) :] + [other]
            if other not in state and (found := visit(other)):
                return found
        state[node] = 2
        path.pop()
        return None

    for node in sorted(edges):
        if node not in state and (found := visit(node)):
            return found
    return None


def includes(paths):
    found = []
    allowed = map_of_folders()
    edges = {}
    for path in paths:
        where = path.relative_to(ROOT).parts
        for include in re.findall(r'^\s*#include "([^"]+)"', path.read_text(errors="replace"), re.MULTILINE):
            if not any((base / include).exists() for base in (ROOT / "src", ROOT / "tests", path.parent)):
                found.append(f"{named(path)}: {include} is not there")
            other = include.split("/")[0]
            if where[0] != "src" or not (ROOT / "src" / other).is_dir() or other == where[1]:
                continue
            own_test = re.search(r"(_test|_fuzz|_fixture)\.(cc|h|cu)$", path.name) or path.name.startswith("fake_")
            if where[1] not in allowed:
                found.append(f"{named(path)}: docs/architecture.md has no row for {where[1]}")
            elif not own_test and other not in allowed[where[1]]:
                found.append(f"{named(path)}: {where[1]} may not include {other} (docs/architecture.md)")
            if not own_test:
                edges.setdefault(where[1], set()).add(other)
    loop = cycle(edges)
    if loop:
        found.append("folders include each other: " + " -> ".join(loop))
    return found


# --- names ---


def names(paths):
    """A class of one name in two files is one class to the linker, which keeps the functions of either. A test's names are in a
    namespace of its file's: several tests are compiled as one."""
    places, found = {}, []
    for path in paths:
        if path.name.endswith("_test.cc") and "TEST" in path.read_text() and not re.search(rf"^namespace headrace::(\w+::)?{path.stem} {{$", path.read_text(), re.M):
            found.append(f"{named(path)}: its namespace is headrace::{path.stem}")
        # Tests are programs of their own; what is included into an anonymous namespace ends in .inc.
        if not named(path).startswith("src/") or path.suffix == ".inc" or re.search(r"(_test|_fuzz|_fixture)\.\w+$", path.name) or path.name.startswith("fake_"):
            continue
        for name, _, _ in measure(path)[2]:
            if "(anonymous)" not in name and not re.search(r"[< ]", name):
                places.setdefault(name, set()).add(named(path))
    return found + [f"{name} is a class in {' and in '.join(sorted(where))}" for name, where in sorted(places.items()) if len(where) > 1]


# --- words ---


def words(paths):
    found = []
    pages = files(".md", ("", "docs", *FOLDERS))
    for path in paths + [page for page in pages if named(page) != "docs/words.md"]:
        for number, line in enumerate(path.read_text(errors="replace").split("\n"), 1):
            for pattern, instead in WORDS.items():
                if re.search(pattern, line, re.IGNORECASE):
                    found.append(f"{named(path)}:{number}: {re.search(pattern, line, re.IGNORECASE)[0]}: say {instead}")
    return found


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--sizes", action="store_true")
    parser.add_argument("--tighten", action="store_true")
    options = parser.parse_args()
    paths = sources()
    if options.tighten:
        return tighten(paths)
    if options.sizes:
        sizes = sorted(measured(paths).items(), key=lambda item: item[1] / most(item[0]), reverse=True)
        print("\n".join(f"{size:5} {key}" for key, size in sizes[:60]))
        return 0
    found = sizes_over(paths) + includes(paths) + names(paths) + words(paths) + layout(paths + files(PAGE_ENDINGS, FOLDERS))
    print("\n".join(found))
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
