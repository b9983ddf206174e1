#!/usr/bin/env python3
"""Makes the tables of measured figures in README.md and docs/ from the rows of bench/results/*.jsonl.

    bench/tables.py            writes every region `<!-- table: NAME -->` ... `<!-- end -->` anew
    bench/tables.py --check    prints what would change, and fails where a table differs from the rows, a row is not complete or a
                               new one names a commit that this repository has not

bench/tables.toml says which rows a table shows and how; bench/README.md says what a row holds. A row with `lengths` is a
figure: it needs every field of FIGURE, and a peer every field of PEER. A comparison stands only between equal lengths, flags,
model and unit (flags that only sound unlike: the row says why in `flags_alike`, which is printed). Which commits, machines and flags a table is of, how many times each side ran and whether both took turns in
one run is printed with it, so that no table can leave it out. A table with `rows_of` is made of a file's rows that are no figures
(single runs of one part, taken apart): its columns `show` fields, the mean of all rows that match. Standard library only.
"""

import argparse
import dataclasses
import difflib
import json
import pathlib
import re
import shutil
import statistics
import subprocess
import sys
import textwrap
import tomllib

ROOT = pathlib.Path(__file__).resolve().parents[1]
SPREAD = ("n", "median", "min", "max")
FIGURE = ("bench", "commit", "machine", "command", "date", "flags", "lengths", "model", *SPREAD, "unit")
PEER = ("program", "commit", "machine", "command", "date", "flags", "lengths", "model", *SPREAD, "unit")
ALIKE = ("flags", "lengths", "model", "unit")  # of both sides of a comparison
LARGER_IS_BETTER = {"tok/s": True, "ms": False, "s": False, "MiB": False}
COMMITS_SINCE = "2026-11-29"  # rows from then on name commits of this repository; its history before was rewritten
REGION = re.compile(r"<!-- table: (\S+) -->\n(.*?)<!-- end -->", re.DOTALL)


class Fault(Exception):
    """A row or a definition that may not feed a table; the text names the place and what is wrong."""


# ---- Rows ----


@dataclasses.dataclass
class Figure:
    row: dict
    place: str  # file:line

    def field(self, name: str):
        """`name`, or `peer.name`."""
        value = self.row
        for part in name.split("."):
            value = value.get(part) if isinstance(value, dict) else None
        return value


def check_spread(side: dict, place: str) -> None:
    if not (isinstance(side["n"], int) and side["n"] >= 1):
        raise Fault(f"{place}: n is {side['n']!r}, not a number of runs")
    if any(isinstance(side[name], bool) or not isinstance(side[name], (int, float)) for name in SPREAD):
        raise Fault(f"{place}: n, median, min and max must be numbers")
    if not side["min"] <= side["median"] <= side["max"]:
        raise Fault(f"{place}: the median {side['median']} is not between min {side['min']} and max {side['max']}")
    if side["n"] == 1 and side["min"] != side["max"]:
        raise Fault(f"{place}: one run has no spread, but min is {side['min']} and max {side['max']}")
    samples = side.get("samples")
    if samples is None:
        return
    of_samples = {"n": len(samples), "median": statistics.median(samples), "min": min(samples), "max": max(samples)}
    for name in SPREAD:
        if abs(of_samples[name] - side[name]) > 1e-6 * abs(side[name]):
            raise Fault(f"{place}: {name} is {side[name]}, of the samples {of_samples[name]}")


def check_side(side: dict, fields: tuple, place: str) -> None:
    missing = [name for name in fields if side.get(name) in (None, "", {})]
    if missing:
        raise Fault(f"{place}: no {', '.join(missing)}")
    check_spread(side, place)


def check_figure(figure: Figure) -> None:
    row, place = figure.row, figure.place
    check_side(row, FIGURE, place)
    peer = row.get("peer")
    if peer is None:
        return
    check_side(peer, PEER, f"{place}, peer")
    if not isinstance(row.get("one_run"), bool):
        raise Fault(f"{place}: one_run must say whether both sides took turns in one run")
    for name in ALIKE:
        said = name == "flags" and row.get("flags_alike")
        if row[name] != peer[name] and not said:
            raise Fault(f"{place}: {name} {row[name]!r} stands beside the peer's {peer[name]!r}: not the same work")


def read_rows(folder: pathlib.Path) -> list[Figure]:
    """Every row, in the order of file and line; those that are figures are checked."""
    rows = []
    for path in sorted(folder.glob("*.jsonl")):
        for number, line in enumerate(path.read_text(encoding="utf-8").splitlines(), 1):
            if not line.strip():
                continue
            place = f"{path.name}:{number}"
            try:
                row = json.loads(line)
            except json.JSONDecodeError as error:
                raise Fault(f"{place}: {error}") from None
            if path.name == "simulation.jsonl" and "check_every" not in row:
                raise Fault(f"{place}: no check_every (of how many steps one had its whole state read)")
            rows.append(Figure(row, place))
            if "lengths" in row:
                check_figure(rows[-1])
    return rows


def figures_of(rows: list[Figure]) -> list[Figure]:
    """In the order of date, file and line."""
    return sorted((row for row in rows if "lengths" in row.row), key=lambda figure: figure.row["date"])


def read_figures(folder: pathlib.Path) -> list[Figure]:
    return figures_of(read_rows(folder))


def check_commits(rows: list[Figure], root: pathlib.Path) -> None:
    """That the commits of new rows are here; a tree without its whole history cannot say."""
    wanted = {figure.row["commit"]: figure.place for figure in rows
              if figure.row.get("commit") and figure.row.get("date", "") >= COMMITS_SINCE}  # fmt: skip

    def git(*words: str, **options) -> str:
        return subprocess.run(["git", "-C", root, *words], capture_output=True, text=True, **options).stdout

    if not wanted or shutil.which("git") is None or git("rev-parse", "--is-shallow-repository").strip() != "false":
        return
    asked = "".join(f"{commit}^{{commit}}\n" for commit in wanted)
    for (commit, place), answer in zip(wanted.items(), git("cat-file", "--batch-check=%(objecttype)", input=asked).splitlines()):
        if answer != "commit":
            raise Fault(f"{place}: commit {commit} is not in this repository: name the one that has what was measured")


# ---- Cells ----


def digits_of(value: float) -> int:
    """Behind the point, so that about three are shown."""
    size = abs(value)
    return 0 if size >= 100 else 1 if size >= 20 else 2 if size >= 1 else 3


def number(value: float, digits: int | None = None) -> str:
    return f"{value:,.{digits_of(value) if digits is None else digits}f}"


def with_spread(middle: float, low: float, high: float, runs: int, unit: str = "") -> str:
    digits = digits_of(middle)
    if runs == 1:
        return f"{number(middle, digits)}{unit} (once)"
    return f"{number(middle, digits)}{unit} ({number(low, digits)}–{number(high, digits)}, n {runs})"


def side_text(side: dict) -> str:
    return with_spread(side["median"], side["min"], side["max"], side["n"], " ×" if side["unit"] == "×" else "")


def ratios(ours: list[float], theirs: list[float], larger: bool) -> list[float]:
    return [mine / peer if larger else peer / mine for mine, peer in zip(ours, theirs)]


def ratio_text(row: dict) -> str:
    """The ratio of the medians; its spread is that of the rounds where both took turns, else none is known."""
    peer, larger = row["peer"], LARGER_IS_BETTER[row["unit"]]
    (middle,) = ratios([row["median"]], [peer["median"]], larger)
    if row["one_run"] and len(row.get("samples", [])) == len(peer.get("samples", [])) > 0:
        rounds = ratios(row["samples"], peer["samples"], larger)
        return with_spread(middle, min(rounds), max(rounds), len(rounds), " ×")
    return f"{number(middle)} × (n {row['n']} and {peer['n']})"


def cell_text(figure: Figure, show: str) -> str:
    row = figure.row
    if show == "ours":
        return side_text(row)
    if show == "ratio":
        return ratio_text(row) if "peer" in row else ""
    if show == "peer":
        return side_text(row["peer"]) if "peer" in row else ""
    value = figure.field(show)
    if value is None:
        raise Fault(f"{figure.place}: no {show}, which a table shows")
    return number(value) if isinstance(value, (int, float)) else str(value)


# ---- Tables ----


def matching(figures: list[Figure], match: dict) -> list[Figure]:
    """Those that match; {field}_min, as in n_min, is a bound."""
    return [
        figure for figure in figures
        if all((figure.field(name[:-4]) or 0) >= wanted if name.endswith("_min") else figure.field(name) == wanted
               for name, wanted in match.items())
    ]  # fmt: skip


def select(figures: list[Figure], match: dict) -> Figure | None:
    """The newest that matches."""
    found = matching(figures, match)
    return found[-1] if found else None


def names(values, between: str = ", ") -> str:
    return between.join(dict.fromkeys(value for value in values if value))


def machine_name(machine) -> str:
    if isinstance(machine, str):
        return machine
    cpus = f", {machine['cpus']} CPUs" if "cpus" in machine else ""
    return machine["cpu"] + cpus


def commit_name(row: dict) -> str:
    return row["commit"] + (" with changes" if row.get("changed") else "")


def origin(rows: list[dict], flags_shown: bool) -> str:
    flags = [] if flags_shown else [f"flags: {names(row['flags'] for row in rows)}"]
    facts = [f"Commit {names(commit_name(row) for row in rows)}", names((machine_name(row["machine"]) for row in rows), " and "),
             names(sorted(row["date"][:10] for row in rows)), *flags]
    return "; ".join(facts) + "."


def spread_note(rows: list[dict]) -> str:
    several = "the median, with min–max of n runs"
    if all(row["n"] > 1 for row in rows):
        return several.capitalize() + "."
    return "“Once” is one run, not repeated" + (f"; else {several}." if any(row["n"] > 1 for row in rows) else ".")


def peer_note(rows: list[dict], place: str) -> str:
    peers = [row["peer"] for row in rows]
    programs = names(f"{peer['program']} ({peer['commit']})" for peer in peers)
    if len({row["one_run"] for row in rows}) > 1:
        raise Fault(f"{place}: a table of comparisons of one run and of several; make it two tables")
    alike = names(row.get("flags_alike") for row in rows)
    same = "same lengths and flags" + (f" ({alike})" if alike else "")
    if rows[0]["one_run"]:
        return f"Beside {programs}, {same}, both sides taking turns in one run."
    there = f"{names(machine_name(peer['machine']) for peer in peers)}, {names(sorted(peer['date'][:10] for peer in peers))}"
    variants = names(peer.get("variant") for peer in peers)
    return f"Beside {programs}, {same}, **not in one run** ({there}{': ' + variants if variants else ''})."


def caption(used: list[Figure], flags_shown: bool) -> str:
    """What the table is of, from the rows that it shows."""
    rows = [figure.row for figure in used]
    compared = [row for row in rows if "peer" in row]
    parts = [origin(rows, flags_shown), spread_note(rows + [row["peer"] for row in compared])]
    if compared:
        parts.append(peer_note(compared, used[0].place))
    return " ".join(parts)


def make_cell(definition: dict, row: dict, column: dict, figures: list[Figure]) -> tuple[str, Figure | None]:
    match = {**definition.get("match", {}), **row.get("match", {}), **column.get("match", {})}
    figure = select(figures, match)
    if figure is not None:
        return cell_text(figure, column.get("show", "ours")), figure
    absent = row.get("absent", definition.get("absent"))
    if absent is None:
        raise Fault(f"table {definition['name']}, {row['label']}, {column['head']}: no figure matches {match}")
    return absent, None


def wrapped(text: str) -> str:
    return "\n".join(textwrap.wrap(text, 120, break_long_words=False, break_on_hyphens=False))


def mean_of(found: list[Figure], show: str, what: str) -> str:
    missing = [figure.place for figure in found if not isinstance(figure.field(show), (int, float))]
    if missing or not found:
        raise Fault(f"{what}: {f'no {show} in {names(missing)}' if missing else 'no row matches'}")
    return number(statistics.fmean(figure.field(show) for figure in found))


def make_plain_table(definition: dict, rows: list[Figure]) -> str:
    """Of rows that are no figures."""
    columns, used, lines = definition["columns"], [], []
    rows = [figure for figure in rows if figure.place.startswith(definition["rows_of"] + ":")]
    for row in definition["rows"]:
        cells = []
        for column in columns:
            found = matching(rows, {**definition.get("match", {}), **row.get("match", {}), **column.get("match", {})})
            if not found and "absent" in column:
                cells.append(column["absent"])
                continue
            cells.append(mean_of(found, column["show"], f"table {definition['name']}, {row['label']}, {column['head']}"))
            used += found
        lines.append("| " + " | ".join([row["label"], *cells]) + " |")
    for figure in used:
        if missing := [name for name in ("commit", "machine") if not figure.field(name)]:
            raise Fault(f"{figure.place}: no {', '.join(missing)}")
    heads = [definition.get("title", ""), *(column["head"] for column in columns)]
    facts = [f"Commit {names(figure.row['commit'] for figure in used)}", names((machine_name(figure.row["machine"]) for figure in used), " and "),
             names(sorted(figure.row["date"][:10] for figure in used if "date" in figure.row))]  # fmt: skip
    said = "; ".join(fact for fact in facts if fact) + f". Means of the rows of `bench/results/{definition['rows_of']}`."
    return "\n".join(["| " + " | ".join(heads) + " |", "|---|" + "---:|" * len(columns), *lines]) + "\n\n" + wrapped(said) + "\n"


def make_table(definition: dict, figures: list[Figure]) -> str:
    columns, rows = definition["columns"], definition["rows"]
    cells = [[make_cell(definition, row, column, figures) for column in columns] for row in rows]
    used = [[figure for _, figure in line if figure] for line in cells]
    every = [figure for line in used for figure in line]
    show_flags = len({figure.row["flags"] for figure in every}) > 1
    heads = [definition.get("title", ""), "lengths", *(["flags"] if show_flags else []), *(column["head"] for column in columns)]
    lines = ["| " + " | ".join(heads) + " |", "|---|---|" + ("---|" if show_flags else "") + "---:|" * len(columns)]
    for row, line, shown in zip(rows, cells, used):
        facts = [names(figure.row[name] for figure in shown) for name in ("lengths", "flags")]
        texts = [row["label"], *facts[: 2 if show_flags else 1], *(text for text, _ in line)]
        lines.append("| " + " | ".join(texts) + " |")
    return "\n".join(lines) + "\n\n" + wrapped(caption(every, show_flags)) + "\n"


def regions_made(text: str, file: str, definitions: dict, rows: list[Figure], seen: set) -> str:
    figures = figures_of(rows)
    if text.count("<!-- table:") != len(REGION.findall(text)):
        raise Fault(f"{file}: a region `<!-- table: ... -->` has no end")

    def made(found: re.Match) -> str:
        name = found.group(1)
        if name not in definitions:
            raise Fault(f"{file}: table {name} is not in bench/tables.toml")
        seen.add(name)
        definition = definitions[name]
        table = make_plain_table(definition, rows) if "rows_of" in definition else make_table(definition, figures)
        return f"<!-- table: {name} -->\n{table}<!-- end -->"

    return REGION.sub(made, text)


def make_files(root: pathlib.Path) -> dict[pathlib.Path, tuple[str, str]]:
    """{file: (as it is, as the rows make it)}"""
    rows = read_rows(root / "bench/results")
    tables = tomllib.loads((root / "bench/tables.toml").read_text(encoding="utf-8"))["table"]
    definitions, seen, files = {table["name"]: table for table in tables}, set(), {}
    for path in [root / "README.md", *sorted((root / "docs").rglob("*.md"))]:
        text = path.read_text(encoding="utf-8")
        if "<!-- table:" in text:
            files[path] = (text, regions_made(text, path.name, definitions, rows, seen))
    if unused := set(definitions) - seen:
        raise Fault(f"bench/tables.toml: no file has a region for {', '.join(sorted(unused))}")
    return files


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--check", action="store_true", help="change nothing; fail where something would change")
    parser.add_argument("--root", type=pathlib.Path, default=ROOT, help="another tree, for tests")
    arguments = parser.parse_args()
    try:
        files = make_files(arguments.root)
        if arguments.check:
            check_commits(read_rows(arguments.root / "bench/results"), arguments.root)
    except Fault as fault:
        print(f"tables.py: {fault}", file=sys.stderr)
        return 1
    changed = {path: texts for path, texts in files.items() if texts[0] != texts[1]}
    for path, (old, new) in changed.items():
        if arguments.check:
            name = str(path.relative_to(arguments.root))
            sys.stdout.writelines(difflib.unified_diff(
                old.splitlines(True), new.splitlines(True), name, f"{name} as the rows make it"))
        else:
            path.write_text(new, encoding="utf-8")
    if changed and arguments.check:
        print("tables.py: tables differ from bench/results: run bench/tables.py", file=sys.stderr)
    return 1 if changed and arguments.check else 0


if __name__ == "__main__":
    sys.exit(main())
