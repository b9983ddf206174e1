"""The site as it was built: whole, and asking no other site for anything."""

import os
import pathlib
import re
import urllib.parse

import pytest

from conftest import ROOT

SITE = pathlib.Path(os.environ.get("HEADRACE_SITE", ROOT / "build/site"))
LOADED = re.compile(r"<(?:script|img|source|iframe|link)\b[^>]*?\b(?:src|href)=[\"']?([^\"' >]+)[^>]*>")
NAMED_ONLY = re.compile(r"rel=[\"']?(?:canonical|next|prev|author)\b")


@pytest.fixture(scope="module")
def pages():
    found = {path: path.read_text(encoding="utf-8") for path in SITE.rglob("*.html")}
    if not found:
        pytest.skip(f"no site at {SITE}: mkdocs build")
    return found


def test_pages_ask_no_other_site(pages):
    for path, text in pages.items():
        loaded = [match[1] for match in LOADED.finditer(text) if not NAMED_ONLY.search(match[0])]
        assert [link for link in loaded if re.match(r"(?:https?:)?//", link)] == [], path
    for path in SITE.rglob("*.css"):
        assert re.findall(r"url\([\"']?https?:[^)]*\)|@import[^;]*https?:", path.read_text(encoding="utf-8")) == [], path


def dead_link(path, link, ids):
    """What is wrong with a link of a page; None: nothing, or it leads to another site."""
    url = urllib.parse.urlsplit(link.replace("&amp;", "&"))
    if url.scheme or url.netloc or link.startswith("/"):
        return None
    target = (path.parent / urllib.parse.unquote(url.path)).resolve() if url.path else path
    target = target / "index.html" if target.is_dir() else target
    if not target.exists():
        return "no such file"
    anchor = urllib.parse.unquote(url.fragment)
    known = not anchor or anchor.startswith("__") or target not in ids or anchor in ids[target]  # __: the theme's own
    return None if known else "no such anchor"


def test_every_link_of_the_site_leads_somewhere(pages):
    ids = {path: set(re.findall(r"\bid=[\"']?([^\"' >]+)", text)) for path, text in pages.items()}
    links = {(path, link) for path, text in pages.items() if path.name != "404.html" for link in re.findall(r"<a\b[^>]*?\bhref=[\"']?([^\"' >]+)", text)}
    assert len(links) > 1000
    wrong = [f"{path.relative_to(SITE)}: {link}: {dead_link(path, link, ids)}" for path, link in links if dead_link(path, link, ids)]
    assert wrong == []


def test_every_page_of_the_folder_is_in_the_site(pages):
    names = {str(path.relative_to(SITE).with_suffix("")) for path in pages}
    docs = {str(path.relative_to(ROOT / "docs").with_suffix("")).replace("README", "index") for path in (ROOT / "docs").rglob("*.md")}
    assert docs - names == set()
    assert "source/SECURITY" in names and "source/deploy/kubernetes/headrace.yaml" in names
