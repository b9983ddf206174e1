"""scripts/check_source.py: each habit that it keeps, broken on purpose."""

import json
import sys

import pytest
from conftest import ROOT

sys.path.insert(0, str(ROOT / "scripts"))
import check_source

ARCHITECTURE = """
| folder | holds | may use |
|---|---|---|
| `base` | words | – |
| `ops` | kernels | base |
| `apps` | commands | everything |
"""


@pytest.fixture
def tree(tmp_path, monkeypatch):
    """A small project: write(name, text), and the sources that the script would look at."""
    monkeypatch.setattr(check_source, "ROOT", tmp_path)
    monkeypatch.setattr(check_source, "LIMITS", tmp_path / "limits.json")

    def write(name, text):
        path = tmp_path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)

    write("docs/architecture.md", ARCHITECTURE)
    write("src/base/word.h", "int word();\n")
    return write


def body(lines, name="f"):
    return f"int {name}() {{\n" + "  g();\n" * (lines - 2) + "}\n"


def test_a_long_function_is_found(tree):
    tree("src/base/a.cc", body(70))
    assert check_source.sizes_over(check_source.sources()) == []
    tree("src/base/a.cc", body(71))
    (found,) = check_source.sizes_over(check_source.sources())
    assert "src/base/a.cc: f: lines: 71, at most 70" in found


def test_what_is_no_function_is_not_counted(tree):
    tree("src/base/a.cc", "namespace x {\nconst int kTable[] = {\n" + "  1,\n" * 90 + "};\n}\n")
    tree("src/base/b.cc", "// {\n" * 90 + 'const char* text = "{";\nchar c = \'{\';\n' + body(5))
    tree("src/base/c.h", "class A {\n public:\n" + "  int x(int n) const { return n; }\n" * 30 + "};\n" * 1)
    assert check_source.sizes_over(check_source.sources()) == []


@pytest.mark.parametrize(
    "head",
    ["A::A(int a) : a_(a), b_{2} {", "template <class T>\nT f(T t) const noexcept {", "auto f() -> int {", "TEST(A, B) {"],
)
def test_heads_of_functions(tree, head):
    tree("src/base/a.cc", head + "\n" + "  g([] { return 1; });\n" * 90 + "}\n")
    assert any("at most 70" in each for each in check_source.sizes_over(check_source.sources()))


def test_a_large_class_is_found(tree):
    methods = "".join(f"  int m{i}(int n) const;\n" for i in range(41))
    members = "".join(f"  int a{i}_ = 0;\n" for i in range(31))
    tree("src/base/a.h", f"class Large {{\n public:\n{methods} private:\n{members}}};\n")
    found = check_source.sizes_over(check_source.sources())
    assert any("Large: methods: 41, at most 40" in each for each in found)
    assert any("Large: members: 31, at most 30" in each for each in found)


def test_a_limit_can_only_fall(tree, tmp_path):
    tree("src/base/a.cc", body(90))
    check_source.tighten(check_source.sources())
    assert json.loads((tmp_path / "limits.json").read_text()) == {"src/base/a.cc: f: lines": 90}
    assert check_source.sizes_over(check_source.sources()) == []
    tree("src/base/a.cc", body(80))
    (found,) = check_source.sizes_over(check_source.sources())
    assert "80 now, not 90" in found
    check_source.tighten(check_source.sources())
    tree("src/base/a.cc", body(81))
    assert check_source.sizes_over(check_source.sources())
    with pytest.raises(SystemExit, match="larger than before"):
        check_source.tighten(check_source.sources())


def test_includes_follow_the_map(tree):
    tree("src/ops/a.h", '#include "base/word.h"\n')
    tree("src/apps/a.cc", '#include "ops/a.h"\n')
    assert check_source.includes(check_source.sources()) == []
    tree("src/base/up.h", '#include "ops/a.h"\n')
    found = check_source.includes(check_source.sources())
    assert any("base may not include ops" in each for each in found)
    assert any("folders include each other: ops -> base -> ops" in each for each in found)


def test_an_include_that_is_gone(tree):
    tree("src/ops/a.h", '#include "base/gone.h"\n')
    assert check_source.includes(check_source.sources()) == ["src/ops/a.h: base/gone.h is not there"]


def test_two_classes_of_one_name(tree):
    tree("src/ops/a.h", "namespace x {\nstruct Word {\n  int a;\n};\n}\n")
    tree("src/ops/b.cc", "namespace x {\nnamespace {\nstruct Word {\n  int a;\n};\n}\n}\n")
    tree("src/ops/c.h", "namespace y {\nstruct Word {\n  int a;\n};\n}\n")
    assert check_source.names(check_source.sources()) == []
    tree("src/apps/d.h", "namespace x {\nclass Word final : Other {\n  int a;\n};\n}\n")
    assert check_source.names(check_source.sources()) == ["x::Word is a class in src/apps/d.h and in src/ops/a.h"]


def test_words(tree):
    tree("src/ops/a.h", "// Not measured in this run.\n")
    assert check_source.words(check_source.sources()) == []
    tree("src/ops/a.h", "// Not ridden yet.\n")
    (found,) = check_source.words(check_source.sources())
    assert found == "src/ops/a.h:1: ridden: say run, measured"


def test_layout(tree, tmp_path):
    tree(".clang-format", (ROOT / ".clang-format").read_text())
    tree("src/ops/a.h", "int f(int a);\n")
    assert check_source.layout(check_source.sources()) == []
    tree("src/ops/a.h", "int   f( int a ) ;\n")
    assert check_source.layout(check_source.sources()) == ["src/ops/a.h: clang-format would change it"]
