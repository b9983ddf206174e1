"""What mkdocs does to the pages of docs/ besides building them (mkdocs.yml names this file among its hooks).

A folder in the navigation stands for its pages. Pages link to files of the repository that are not in docs/
(SECURITY.md, deploy/, bench/): what is linked comes along, below source/, so that the site is whole without
the repository and without a network."""

import functools
import pathlib
import posixpath
import re

from mkdocs.structure.files import File, InclusionLevel

ROOT = pathlib.Path(__file__).resolve().parent.parent
DOCS = "docs/"
LINK = re.compile(r"(\]\()([^)\s#]+)(#[^)\s]*)?(\))")
# Files that are shown as a page, by the ends of their names; others come as they are.
LANGUAGES = {"": "text", ".py": "python", ".yaml": "yaml", ".yml": "yaml", ".json": "json", ".service": "ini"}


def on_config(config):
    config["nav"] = expanded(config["nav"])
    return config


def expanded(entry):
    """The navigation with the pages of a folder where it says `folder/`."""
    if isinstance(entry, list):
        return [expanded(each) for each in entry]
    if isinstance(entry, dict):
        return {title: expanded(value) for title, value in entry.items()}
    if not entry.endswith("/"):
        return entry
    return sorted(str(path.relative_to(ROOT / DOCS)) for path in (ROOT / DOCS / entry).glob("*.md"))


def folder_of(page):
    return page if (ROOT / page).is_dir() else posixpath.dirname(page)


def target_of(link, page):
    """Where a link of a page (or of a folder's list) leads, as a path of the repository; None: out of it, or to nothing."""
    if re.match(r"[a-z]+:", link):
        return None
    path = posixpath.normpath(posixpath.join(folder_of(page), link))
    return path if not path.startswith("../") and (ROOT / path).exists() else None


def place_of(path):
    """A path of the repository -> the page or file of the site that shows it."""
    if (ROOT / path).is_dir():
        return posixpath.join(place_of_folder(path), "index.md")
    if path.startswith(DOCS):
        return path[len(DOCS):]
    suffix = pathlib.PurePath(path).suffix
    return f"source/{path}.md" if suffix in LANGUAGES else f"source/{path}"


def place_of_folder(path):
    return path[len(DOCS):] if path.startswith(DOCS) else f"source/{path}"


def rewritten(markdown, page):
    """The page's text with its links as they lie in the site."""
    here = posixpath.dirname(place_of(page))

    def replace(match):
        path = target_of(match[2], page)
        if path is None:
            return match[0]
        return match[1] + posixpath.relpath(place_of(path), here or ".") + (match[3] or "") + match[4]

    return LINK.sub(replace, markdown)


def content_of(path):
    """What the site shows of a path that is no page of docs/."""
    whole = ROOT / path
    if whole.is_dir():
        names = sorted(each.name + "/" * each.is_dir() for each in whole.iterdir() if not each.name.startswith((".", "__")))
        return f"# {path}\n\n" + "".join(f"- [{name}]({name})\n" for name in names if not name.endswith("/"))
    if path.endswith(".md"):
        return whole.read_text(encoding="utf-8")
    return f"# {path}\n\n````{LANGUAGES[whole.suffix]}\n{whole.read_text(encoding='utf-8')}\n````\n"


@functools.cache
def linked_from_docs():
    """Every path outside docs/ (and every folder) that a page leads to, and what those lead to in turn."""
    pages = [str(page.relative_to(ROOT)) for page in sorted((ROOT / DOCS).rglob("*.md"))]
    found, seen = [], set(pages)
    while pages:
        page = pages.pop()
        text = content_of(page) if (ROOT / page).is_dir() or page.endswith(".md") else ""
        for link in LINK.findall(text):
            path = target_of(link[1], page)
            if path is None or path in seen or path.startswith(DOCS) and (ROOT / path).is_file():
                continue
            seen.add(path)
            found.append(path)
            pages.append(path)
    return found


def on_files(files, config):
    for path in linked_from_docs():
        place = place_of(path)
        if files.get_file_from_path(place) is not None:
            continue
        if place.endswith(".md"):
            extra = File.generated(config, place, content=rewritten(content_of(path), path), inclusion=InclusionLevel.NOT_IN_NAV)
        else:
            extra = File.generated(config, place, abs_src_path=str(ROOT / path), inclusion=InclusionLevel.NOT_IN_NAV)
        files.append(extra)
    return files


def on_page_markdown(markdown, page, config, files):
    if page.file.generated_by is not None:
        return markdown
    return rewritten(markdown, DOCS + page.file.src_uri)
