"""scripts/check_docs.py finds what it is for."""

import pytest

import check_docs


def problems(monkeypatch, tmp_path, text, **others):
    """What is said of a page with this text, beside others."""
    monkeypatch.setattr(check_docs, "ROOT", tmp_path)
    check_docs.anchors_of.cache_clear()
    for name, content in {"page": text, **others}.items():
        (tmp_path / f"{name}.md").write_text(content)
    path = tmp_path / "page.md"
    return check_docs.links(path, text) + check_docs.blocks(path, text)


@pytest.mark.parametrize(
    "text, said",
    [
        ("[a](none.md)", "page.md:1: none.md: there is no such file"),
        ("# A\n\n[a](#b)", "page.md:3: #b: no heading of page.md has this anchor"),
        ("[a](other.md#c)", "page.md:1: other.md#c: no heading of other.md has this anchor"),
        ("![a](img/none.svg)", "there is no such file"),
        ("[a](/etc)", "page.md:1: /etc leads out of the repository"),
        ("```\nls\n```\n", "page.md:1: a block without a language"),
        ("<!-- not run: because -->\n\n```sh\nls\n```\n", "page.md:1: a mark is the line"),
        ("<!-- not run -->\n```sh\nls\n```\n", "page.md:1: a mark is the line"),
        ("<!-- not run: because -->\n```text\nls\n```\n", "a mark in front of a block that is none of commands"),
    ],
)
def test_what_is_wrong_is_named(monkeypatch, tmp_path, text, said):
    found = problems(monkeypatch, tmp_path, text, other="# Two words, *one* dash-ed\n")
    assert len(found) == 1 and said in found[0], found


def test_what_is_right_passes(monkeypatch, tmp_path):
    text = (
        "# A `b` [c](other.md)\n\n[a](#a-b-c) [b](other.md#two-words-one-dash-ed) [c](other.md#again-1) [d](https://example.com/x)\n"
        "`[no](link.md)`\n\n<!-- not run: needs a GPU -->\n```sh\nls\n```\n\n```text\n[no](link.md)\n```\n"
    )
    assert problems(monkeypatch, tmp_path, text, other="# Two words, *one* dash-ed\n## Again\n## Again\n") == []


def test_blocks_have_lines_languages_and_reasons():
    blocks = check_docs.blocks_of("a\n```sh\nls\n```\n<!-- not run: x y -->\n```python\n1\n2\n```\n````text\n```\n````\n")
    assert [(block.line, block.language, block.text, block.reason) for block in blocks] == [
        (3, "sh", "ls\n", None), (7, "python", "1\n2\n", "x y"), (11, "text", "```\n", None)]  # fmt: skip
