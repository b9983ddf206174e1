"""What the page makes of a model's text: markdown, code, maths, thoughts, calls; and of text that means harm."""

import json
import time

import pytest

BLOCKS = [
    ("plain", "<p>plain</p>"),
    ("two\nlines", "<p>two<br>lines</p>"),
    ("one\n\ntwo", "<p>one</p><p>two</p>"),
    ("# One\n### Three ###", '<h3 class="h1">One</h3><h5 class="h3">Three</h5>'),
    ("#hashtag", "<p>#hashtag</p>"),
    ("# a # b#  \n# ##\n#", '<h3 class="h1">a # b#</h3><h3 class="h1"></h3><h3 class="h1"></h3>'),
    ("# a\r\n\r\nb\rc\u2028d", '<h3 class="h1">a</h3><p>b<br>c d</p>'),
    ("---", "<hr>"),
    ("**b** *i* ***bi*** _i_ __b__ ~~s~~", "<p><strong>b</strong> <em>i</em> <em><strong>bi</strong></em> <em>i</em> <strong>b</strong> <del>s</del></p>"),
    ("snake_case_name 2*3*4 ** a", "<p>snake_case_name 2<em>3</em>4 ** a</p>"),
    ("**a *b* c** *a **b** c*", "<p><strong>a <em>b</em> c</strong> <em>a <strong>b</strong> c</em></p>"),
    ("*open **never", "<p>*open **never</p>"),
    ("`a *b*` ``c ` d`` `open", "<p><code>a *b*</code> <code>c ` d</code> `open</p>"),
    (r"\*not\* \# a\\b", r"<p>*not* # a\b</p>"),
    ("&lt;b&gt; &amp; &copy; &#65; &nope;", "<p>&lt;b&gt; &amp; © A &amp;nope;</p>"),
    ("- a\n- b", "<ul><li>a</li><li>b</li></ul>"),
    ("* a\n  * b\n    * c\n* d", "<ul><li>a<ul><li>b<ul><li>c</li></ul></li></ul></li><li>d</li></ul>"),
    ("3. a\n4. b", '<ol start="3"><li>a</li><li>b</li></ol>'),
    ("1. a\n\n   more\n2. b", "<ol><li><p>a</p><p>more</p></li><li><p>b</p></li></ol>"),
    ("> quoted\n> **more**", "<blockquote><p>quoted<br><strong>more</strong></p></blockquote>"),
    ("text\n- item", "<p>text</p><ul><li>item</li></ul>"),
    ("[a](https://x.org/?q=1&r) <https://y.org> https://z.org/a_(b).",
     '<p><a href="https://x.org/?q=1&amp;r" title="https://x.org/?q=1&amp;r" target="_blank" rel="noopener noreferrer nofollow">a</a> '
     '<a href="https://y.org/" title="https://y.org/" target="_blank" rel="noopener noreferrer nofollow">https://y.org</a> '
     '<a href="https://z.org/a_(b)" title="https://z.org/a_(b)" target="_blank" rel="noopener noreferrer nofollow">https://z.org/a_(b)</a>.</p>'),
    ("a [b] c [d](e", "<p>a [b] c [d](e</p>"),
    (r"\(open \[open http://a.b: (http://c.d) http://% h", '<p>(open [open <a href="http://a.b/" title="http://a.b/" target="_blank" rel="noopener noreferrer nofollow">http://a.b</a>: '
     '(<a href="http://c.d/" title="http://c.d/" target="_blank" rel="noopener noreferrer nofollow">http://c.d</a>) http://% h</p>'),
    ("costs $5 and $10", "<p>costs $5 and $10</p>"),
]

HOSTILE = [
    "<script>window.hurt = 1</script>",
    "<img src=x onerror='window.hurt = 1'>",
    "<svg onload=window.hurt=1>",
    "<iframe src='javascript:parent.hurt=1'></iframe>",
    "<a href='javascript:window.hurt=1'>a</a>",
    "[a](javascript:window.hurt=1)",
    "[a](JaVaScRiPt:window.hurt=1)",
    "[a](java\tscript:window.hurt=1)",
    "[a](<javascript:window.hurt=1>)",
    "[a](data:text/html,<script>window.hurt=1</script>)",
    "[a](vbscript:x)",
    "<javascript:window.hurt=1>",
    "![a](javascript:window.hurt=1)",
    "![pixel](https://evil.example/pixel.png)",
    '[a](https://ok.example/"onmouseover="window.hurt=1)',
    '[a](https://ok.example "x\\" onclick=window.hurt=1")',
    "```html\n<script>window.hurt = 1</script>\n```",
    '```"><img src=x onerror=window.hurt=1>\nx\n```',
    "`<img src=x onerror=window.hurt=1>`",
    "| a |\n|---|\n| <img src=x onerror=window.hurt=1> |",
    "$\\text{<img src=x onerror=window.hurt=1>}$",
    "$$\\href{javascript:window.hurt=1}{x}$$",
    "\\(\\style{x}{<script>window.hurt=1</script>}\\)",
    "# <style>*{display:none}</style>",
    "<form action=https://evil.example><input name=key></form>",
    "<meta http-equiv=refresh content='0;url=https://evil.example'>",
    "<base href=https://evil.example/>",
    "&#60;script&#62;window.hurt=1&#60;/script&#62;",
    "<<script>script>window.hurt=1<</script>/script>",
    "\u202e[txt](https://ok.example)\u202c",
]

SLOW = {
    "brackets": "[" * 60000,
    "stars": "*a " * 20000,
    "mixed marks": "*_" * 20000,
    "quotes": ">" * 20000,
    "ticks": "".join("`" * (i % 40 + 1) + "a" for i in range(4000)),
    "dollars": "$a " * 20000,
    "links": "[a](" * 15000,
    "lists": "\n".join("  " * i + "- a" for i in range(400)),
    "tables": "|" * 20000 + "\n" + "|-" * 10000,
    "braces": "$$" + "{" * 3000 + "$$",
    "fractions": "$$" + "\\frac{" * 500 + "$$",
    "entities": "&#x" * 20000,
    "heading's blanks": "# " + " " * 3000 + "a" + " " * 3000 + "\ra",
    "heading's blanks, more": "# a" + (" " * 50000 + "a") * 2,
    "heading's marks": "# " + "#" * 50000 + "a" + "#" * 50000,
    "line ends": "# " + " \r" * 25000 + "\u2028 " * 25000,
    "fence's blanks": "```" + " " * 100000 + "`",
    "fence's marks": "~" * 100000 + "`",
    "words of a style sheet": "```css\n" + "a-" * 50000 + "\n```",
    "colons of a style sheet": "```css\n" + "a:" * 50000 + "\n```",
    "blanks of a style sheet": "```css\n" + "a " * 25000 + " " * 50000 + "\n```",
    "table's blanks": "a|b\n-|-" + " " * 100000 + "a",
    "short rows of a wide table": "a|" * 64 + "\n" + "-|" * 64 + "\na|" * 10000,
    "blank lines": "- a" + "\n" * 100000 + "  b",
    "maths that opens": "a" + r"\(" * 50000,
    "maths that closes far away": "a" + r"\(" * 50000 + r"\)",
    "display maths that opens": "a" + r"\[" * 50000,
    "dollars behind backslashes": r"\\$$a" * 20000,
    "dollars that close far away": r"\\$a" * 25000 + "x$",
    "links in a bracket": "[" + "http://a" * 12500,
    "links in a bracket, apart": "[" + "http://a/" * 11000,
    "links that are none": "http://%" * 12500,
    "a link's end": "http://a" + "." * 100000 + "a",
    "a target's blanks": "[a](" + " " * 100000 + "b c",
    "code's blanks": "` " + "a" * 100000 + "`",
    "marks in brackets": "[" * 25000 + "*a* " * 18000,
    "one long line of maths": "$$" + "x^2" * 33000 + "$$",
    "one long line of roots": "$$" + "\\sqrt" * 20000 + "$$",
    "roots": "$$" + "\\sqrt" * 700 + " x$$",
    "negations": "$$" + "\\not" * 900 + " x$$",
}

SHOW = """async (m, [text]) => { const view = new m.MarkdownView(); view.update(text); return view.node.innerHTML; }"""


@pytest.fixture
def idle_page(page, scripted_url):
    """A page whose modules are called by hand."""
    return page.open(scripted_url("ok"))


def test_markdown(idle_page):
    wrong = [(text, shown, wanted) for text, wanted in BLOCKS if (shown := idle_page.call("markdown.js", SHOW, text)) != wanted]
    assert wrong == []


def test_tables(idle_page):
    shown = idle_page.call("markdown.js", SHOW, "| a | b |\n|:--|--:|\n| `x|y` | 2 |\n| only |\n\nafter")
    assert shown.count("<tr>") == 3 and "<code>x|y</code>" in shown and '<td class="align-end">2</td>' in shown and shown.endswith("<p>after</p>")
    assert '<td class="align-start">only</td><td colspan="1"></td>' in shown


def test_a_text_that_grows_is_shown_as_the_whole_would_be(idle_page):
    text = "\n\n".join(text for text, _ in BLOCKS) + "\n\n```python\ndef f(x):\n    '''doc\n    more'''\n    return x  # why\n```\n\n| a | b |\n|--|--|\n| 1 | 2 |\n\n$$\nx^2\n$$\n\nend"
    script = """async (m, [text, step]) => {
      const whole = new m.MarkdownView(); whole.update(text);
      const grown = new m.MarkdownView();
      for (let i = step; i < text.length; i += step) grown.update(text.slice(0, i));
      grown.update(text);
      return [whole.node.innerHTML, grown.node.innerHTML]; }"""
    for step in (1, 3, 17):
        whole, grown = idle_page.call("markdown.js", script, text, step)
        assert grown == whole


def test_long_code_that_grows_is_coloured_as_the_whole_would_be(idle_page):
    doc = ["'''doc\n" + "line\n" * (i % 90) + "'''\n" for i in range(0, 900, 60)]
    code = "".join(f"x{i} = 'a' # c\n" * (i % 70) + doc[i % len(doc)] for i in range(40))
    script = """async (m, [text, language]) => {
      const whole = new m.CodeView(language); whole.update(text);
      const grown = new m.CodeView(language);
      for (let i = 7; i < text.length; i += 7) grown.update(text.slice(0, i));
      grown.update(text);
      const colours = (view) => [...view.node.querySelectorAll('span:not(.lines)')].map((node) => node.className + node.textContent).join();
      return [whole.node.textContent === text, grown.node.textContent === text, colours(whole) === colours(grown), whole.node.querySelectorAll('.lines').length > 10]; }"""
    for language in ("python", "none"):
        assert idle_page.call("highlight.js", script, code, language) == [True] * 4, language


def test_what_is_shown_changes_with_a_text_that_does_not_grow(idle_page):
    script = """async (m) => { const view = new m.MarkdownView(); view.update('# a\\n\\nb\\n\\nc'); view.update('x'); return view.node.innerHTML; }"""
    assert idle_page.call("markdown.js", script) == "<p>x</p>"


def test_hostile_text_stays_text(idle_page):
    script = """async (m, texts) => texts.map((text) => {
      const view = new m.MarkdownView(); view.update(text); document.body.append(view.node);
      const bad = [...view.node.querySelectorAll('*')].filter((node) => ['SCRIPT', 'IMG', 'IFRAME', 'OBJECT', 'EMBED', 'STYLE', 'LINK', 'META', 'BASE', 'FORM', 'INPUT', 'VIDEO', 'AUDIO'].includes(node.tagName.toUpperCase())
        || [...node.attributes].some((each) => /^on/i.test(each.name) || each.name === 'style' || each.name === 'src')
        || (node.hasAttribute('href') && !/^(https?|mailto):/.test(node.href)));
      for (const link of view.node.querySelectorAll('a')) link.dispatchEvent(new MouseEvent('mouseover', {bubbles: true}));
      return bad.map((node) => node.outerHTML); })"""
    assert [bad for bad in idle_page.call("markdown.js", script, *HOSTILE) if bad] == []
    time.sleep(0.3)
    assert idle_page.run("return window.hurt ?? null") is None


def test_hostile_answers_of_a_model_do_nothing(page, scripted_url):
    page.open(scripted_url("\n\n".join(HOSTILE), tools="none", reasoning="none")).ask("Hi")
    assert "<script>window.hurt = 1</script>" in page.answers()[0]
    time.sleep(0.3)
    assert page.run("return window.hurt ?? null") is None
    assert page.run("return document.querySelectorAll('.message img, .message iframe, .message form.x').length") == 0
    # Behind the test: no error in the console, and no site but this was asked.


def test_the_page_takes_no_markup_and_no_code_from_texts(idle_page):
    """The policy of the server holds even where the page's own code would err."""
    idle_page.expected_errors = ("Content Security Policy", "Trusted", "Refused to", "violates")
    for attempt in ("document.body.innerHTML = '<img src=x>'", "new Function('1')()", "const s = document.createElement('script'); s.textContent = '1'"):
        assert idle_page.call("dom.js", f"async () => {{ try {{ {attempt}; return 'done'; }} catch (error) {{ return 'refused'; }} }}") == "refused"
    assert idle_page.call("dom.js", "async () => fetch('https://example.org/').then(() => 'done', () => 'refused')") == "refused"
    idle_page.asked = []
    idle_page.driver.get_log("performance")


@pytest.mark.timing
@pytest.mark.parametrize("name", SLOW)
def test_no_text_takes_long(idle_page, name):
    script = """async (m, [text]) => {
      let least = Infinity;  // of three: other things run beside a test
      for (let i = 0; i < 3; ++i) {
        const view = new m.MarkdownView();
        const began = performance.now();
        view.update(text);
        least = Math.min(least, performance.now() - began);
      }
      return least; }"""
    took = idle_page.call("markdown.js", script, SLOW[name])
    print(f"{name}: {len(SLOW[name])} characters in {took:.0f} ms")
    assert took < 200 * max(1, len(SLOW[name]) / 100_000)


def test_code_is_coloured_in_many_languages(idle_page):
    script = """async (m, [language, text]) => m.tokensOf(text, language).map(([kind, a, b]) => `${kind}:${text.slice(a, b)}`)"""
    cases = {
        "python": ("def f(x): # c\n    return 'a' + 1.5", ["keyword:def", "call:f", "comment:# c", "keyword:return", "string:'a'", "number:1.5"]),
        "cpp": ('#include <a>\nint x = 0x1F; /* c\nd */ f("s\\"");', ["special:#include <a>", "keyword:int", "number:0x1F", "comment:/* c\nd */", "call:f", 'string:"s\\""']),
        "js": ("const a = `t ${b}`; // c", ["keyword:const", "string:`t ${b}`", "comment:// c"]),
        "rust": ("fn f<'a>(x: &'a str) -> Vec<u8> {}", ["keyword:fn", "keyword:str", "keyword:Vec", "keyword:u8"]),
        "json": ('{"a": [1, true, "b"]}', ['name:"a"', "number:1", "keyword:true", 'string:"b"']),
        "bash": ("if [ $X ]; then echo \"a\"; fi # c", ["keyword:if", "special:$X", "keyword:then", "keyword:echo", 'string:"a"', "keyword:fi", "comment:# c"]),
        "sql": ("SELECT a FROM t WHERE b = 'x' -- c", ["keyword:SELECT", "keyword:FROM", "keyword:WHERE", "string:'x'", "comment:-- c"]),
        "html": ("<p class=\"a\">t</p><!-- c -->", ["keyword:<p", "name:class", 'string:"a"', "keyword:>", "keyword:</p", "keyword:>", "comment:<!-- c -->"]),
        "css": (".a-b { line-height : 2; color:red }", ["special:line-height", "number:2", "special:color"]),
        "diff": ("@@ -1 +1 @@\n-a\n+b", ["special:@@ -1 +1 @@", "removed:-a", "added:+b"]),
        "yaml": ("a: true # c\nb: 'x'", ["special:a", "keyword:true", "comment:# c", "special:b", "string:'x'"]),
        "klingon": ("if 1", []),
    }
    for language, (text, wanted) in cases.items():
        assert idle_page.call("highlight.js", script, language, text) == wanted, language


def test_maths(idle_page):
    script = """async (m, [text]) => m.mathNode(text, false).textContent"""
    structure = """async (m, [text, display]) => { const node = m.mathNode(text, display); return [...node.querySelectorAll('*')].map((each) => each.localName).join(' '); }"""
    assert idle_page.call("maths.js", script, r"\alpha \le \frac{1}{2} \text{ if } x\in\mathbb{R}") == "α≤12\u00a0if\u00a0x∈ℝ"
    assert idle_page.call("maths.js", structure, "x_i^2", False) == "msubsup mi mi mn"
    assert idle_page.call("maths.js", structure, "x^10", False) == "msup mi mn mn"
    assert idle_page.call("maths.js", structure, r"\sum_{i=1}^n i", True).startswith("math munderover mo")
    assert idle_page.call("maths.js", structure, r"\sqrt[3]{x}", False) == "mroot mi mn"
    assert idle_page.call("maths.js", structure, r"\begin{pmatrix}1&2\\3&4\end{pmatrix}", False) == "mrow mo mtable mtr mtd mn mtd mn mtr mtd mn mtd mn mo"
    assert idle_page.call("maths.js", structure, r"\left( \frac ab \right]", False) == "mrow mo mfrac mi mi mo"
    assert idle_page.call("maths.js", script, r"\unknowncommand x") == r"\unknowncommandx"
    for broken in (r"\frac{1}", "{", "}", r"\begin{matrix}", r"\left(", "x^", r"\end{x}"):
        assert idle_page.call("maths.js", script, broken) == f"${broken}$", broken
    for command in ("sqrt", "not", "hat", "boxed", "mathbf"):
        nested = f"\\{command}" * 90 + " x"
        assert "\\" not in idle_page.call("maths.js", script, nested), command
        assert idle_page.call("maths.js", script, f"\\{command}" * 500 + " x") == "$" + f"\\{command}" * 500 + " x$", command


def test_thoughts_are_folded(page, scripted_url):
    page.open(scripted_url("<think>\nLet me **think**.\n</think>\n\nDone.")).ask("Hi")
    thoughts = page.wait(".thinking")
    assert thoughts.get_attribute("open") is None
    assert thoughts.text.startswith("Thought")
    assert page.all(".message.assistant .markdown")[-1].text == "Done."
    page.click(".thinking summary")
    assert page.all(".thinking strong")[0].text == "think"


CALL = '<tool_call>\n{"name": "weather", "arguments": {"place": "Paris"}}\n</tool_call>'


def test_calls_of_tools_are_shown_and_answered(page, scripted_url):
    page.open(scripted_url(CALL, "It is 17 degrees."))
    page.set("tools", '[{"name": "weather", "parameters": {"type": "object"}}]')
    page.ask("The weather?")
    assert page.last_body()["tools"] == [{"type": "function", "function": {"name": "weather", "parameters": {"type": "object"}}}]
    card = page.wait(".call")
    assert "weather" in card.text and '"place": "Paris"' in card.text
    page.wait(".call-result textarea").send_keys('{"degrees": 17}')
    page.click(".call-result button")
    page.until(lambda: "It is 17 degrees." in page.answers())
    page.idle()
    messages = page.last_body()["messages"]
    assert [message["role"] for message in messages] == ["user", "assistant", "tool"]
    assert messages[2]["content"] == '{"degrees": 17}' and messages[2]["tool_call_id"] == messages[1]["tool_calls"][0]["id"]
    assert not page.all(".call-result")


def test_two_calls_want_two_results(page, scripted_url):
    page.open(scripted_url(f"{CALL}\n{CALL}", "Both."))
    page.set("tools", '[{"name": "weather"}]')
    page.ask("The weather?")
    for left in (2, 1):
        assert len(page.all(".call-result")) == left
        page.wait(".call-result textarea").send_keys("17")
        page.click(".call-result button")
        page.until(lambda: len(page.all(".call-result")) == left - 1)
    page.until(lambda: "Both." in page.answers())


def event(delta, finish=None):
    return "data: " + json.dumps({"choices": [{"index": 0, "delta": delta, "finish_reason": finish}]}) + "\n\n"


ANSWER = event({"role": "assistant", "content": "One, two,"}) + event({"content": " three"})


@pytest.mark.parametrize("end", ["", "data: {\"choices\"", "data: [DO"])
def test_an_answer_that_was_cut_off_is_told_and_kept(page, told_server, end):
    told_server.stream = (ANSWER + end).encode()
    page.open(told_server.url).ask("Count.")
    assert "The answer was cut off" in page.wait(".message .problem").text
    assert "One, two, three" in page.answers()[0]
    page.driver.refresh()
    assert "The answer was cut off" in page.wait(".message .problem").text
    told_server.stream = (event({"content": "One."}, "stop") + "data: [DONE]\n\n").encode()
    page.click(".problem button")
    page.until(lambda: page.answers() == ["One."], "the answer that is tried again")
    assert not page.all(".message .problem")


@pytest.mark.parametrize("end", ["data: [DONE]\n\n", "data: [DONE]", "data: [DONE]\r\n\r\n", event({}, "stop"), event({}, "length")])
def test_an_answer_that_says_its_end_is_whole(page, told_server, end):
    told_server.stream = (ANSWER + end).encode()
    page.open(told_server.url).ask("Count.")
    assert page.answers() == ["One, two, three"] and not page.all(".message .problem")
    assert ("cut by its length" in page.all(".message.assistant .stats")[0].text) == ("length" in end)


def test_only_conversations_are_read_from_files(idle_page):
    script = """async (m, [value]) => { try { return m.readConversation(value); } catch (error) { return error.message; } }"""
    good = {"id": "x", "title": "T", "messages": {"a": {"id": "a", "parent": "", "role": "user", "text": "Hi", "files": [{"name": "n", "text": "t", "more": 1}], "unknown": 1},
            "b": {"parent": "a", "role": "assistant", "text": "Yo", "tokens": [["Yo", 0.5, [["No", 0.25]]]], "stats": {"speed": 3, "odd": "x"}}},
            "chosen": {"": "a", "a": "b", "b": "nowhere"}, "settings": {"temperature": 1, "top_p": "x", "odd": 1}}
    read = idle_page.call("conversation.js", script, good)
    assert read["id"] != "x" and read["settings"] == {"temperature": 1} and read["chosen"] == {"": "a", "a": "b"}
    assert read["messages"]["a"]["files"] == [{"name": "n", "text": "t"}] and "unknown" not in read["messages"]["a"]
    assert read["messages"]["b"]["tokens"] == [["Yo", 0.5, [["No", 0.25]]]] and read["messages"]["b"]["stats"] == {"speed": 3}
    message = {"parent": "", "role": "user", "text": "Hi"}
    bad = [None, 1, {}, {"messages": []} | {"title": 1}, {"messages": {"a": None}}, {"messages": {"a": {**message, "role": "root"}}}, {"messages": {"a": {**message, "parent": "b"}}},
           {"messages": {"a": {**message, "text": 1}}}, {"messages": {"a": {**message, "files": {}}}}, {"messages": {"a": {**message, "calls": [{"arguments": {}}]}}},
           {"messages": {"a": {**message, "tokens": [["a", "b", []]]}}},
           {"messages": {"a": {**message, "parent": "a"}}}, {"messages": {"c": message, "a": {**message, "parent": "b"}, "b": {**message, "parent": "a"}}},
           {"messages": {"": message}}, {"messages": {"__proto__": message}}]
    for value in bad:
        assert "expected" in idle_page.call("conversation.js", script, value), value
    chosen = {"": "a", "a": "b", "b": "a"}
    assert idle_page.call("conversation.js", script, {**good, "chosen": chosen})["chosen"] == {"": "a", "a": "b"}
    long = {"messages": {str(i): {**message, "parent": str(i - 1) if i else ""} for i in range(20000)}}
    assert len(idle_page.call("conversation.js", script, long)["messages"]) == 20000


def test_a_cycle_of_messages_that_is_kept_already_ends(idle_page):
    script = """async (m) => { const c = m.newConversation({}); const a = m.addMessage(c, 'b', {text: 'a'}); c.messages.b = {id: 'b', parent: a.id, text: 'b'};
      return m.pathTo(c, 'b').map((each) => each.text).join(''); }"""
    assert idle_page.call("conversation.js", script) == "ab"


def test_times_that_no_date_can_hold_hide_no_conversation(page, scripted_url, tmp_path):
    """Of files that are read, and of records that are there already; nor does a record that is no conversation."""
    page.open(scripted_url("ok"))
    message = '{"a": {"parent": "", "role": "user", "text": "%s", "created": 1e999}}'
    times = {"endless": "1e999", "far": "1e18", "before": "-1e18", "text": '"x"', "none": "null"}
    (tmp_path / "all.json").write_text('{"conversations": [%s]}' % ", ".join(f'{{"updated": {time}, "messages": {message % name}}}' for name, time in times.items()))
    page.all(".side-foot input[type=file]")[0].send_keys(str(tmp_path / "all.json"))
    rows = lambda: sorted(row.text for row in page.all(".row a"))
    page.until(lambda: rows() == sorted(times), "what was imported")
    store = """async (m) => {
      const of = (id, updated) => ({id, title: id, updated, chosen: {}, settings: {}, messages: {a: {id: 'a', parent: '', role: 'user', text: id}}});
      for (const [id, updated] of [['kept endless', Infinity], ['kept far', 1e18], ['kept none', undefined]]) await m.saveConversation(of(id, updated));
      await m.saveConversation({id: 'broken', updated: 1}); }"""
    page.call("store.js", store)
    page.driver.refresh()
    page.until(lambda: rows() == sorted([*times, "kept endless", "kept far", "kept none"]), "what was kept")
    assert page.call("words.js", "async (m) => [NaN, Infinity, 1e18, -1e18].map(m.dayName)") == ["Today"] * 4


def test_a_conversation_is_a_tree_of_which_one_path_is_shown(idle_page):
    script = """async (m) => {
      const c = m.newConversation({system: 'S'}); const a = m.addMessage(c, '', {role: 'user', text: 'a'});
      const b = m.addMessage(c, a.id, {role: 'assistant', text: 'b'}); const d = m.addMessage(c, a.id, {role: 'assistant', text: 'd'});
      const texts = () => m.pathOf(c).map((each) => each.text).join('');
      const shown = [texts()]; c.chosen[a.id] = b.id; shown.push(texts()); m.removeMessage(c, b.id); shown.push(texts());
      return [shown, m.wireMessages(c, m.pathOf(c)), m.siblingsOf(c, d).length]; }"""
    shown, wire, count = idle_page.call("conversation.js", script)
    assert shown == ["ad", "ab", "ad"] and count == 1
    assert wire == [{"role": "system", "content": "S"}, {"role": "user", "content": "a"}, {"role": "assistant", "content": "d"}]


def test_figures_from_metrics(idle_page):
    text = """# HELP a x
a{model_name="m",le="1"} 2
a{model_name="n \\"q\\""} 3
h_bucket{le="0.1"} 5
h_bucket{le="0.2"} 15
h_bucket{le="1"} 20
h_bucket{le="+Inf"} 20
"""
    script = """async (m, [text]) => { const metrics = m.parseMetrics(text); const h = m.histogramOf(metrics, 'h');
      return [m.sumOf(metrics, 'a'), metrics.get('a')[1].labels.model_name, m.countOf(h), m.quantileOf(h, 0.5), m.quantileOf(h, 0.9), m.quantileOf(h, 1), m.quantileOf(m.histogramOf(metrics, 'none'), 0.5), m.countOf(m.histogramOf(metrics, 'h', metrics)), m.isInFirstBucket(h, 0.2), m.isInFirstBucket(h, 0.3)]; }"""
    total, name, count, p50, p90, p100, nothing, since, first, second = idle_page.call("metrics.js", script, text)
    assert (total, name, count, nothing, since, first, second) == (5, 'n "q"', 20, None, 0, True, False)
    assert (p50, p90, p100) == (pytest.approx(0.15), pytest.approx(0.68), pytest.approx(1))


@pytest.mark.timing
def test_a_long_answer_stays_smooth(page, scripted_url):
    """10,000 tokens of prose, lists and code: the longest tasks while it grows."""
    words = "".join(f"Word {i} of a **long** answer with `code` in it.\n{'' if i % 7 else chr(10)}" for i in range(700))
    code = "```python\n" + "".join(f"def f{i}(x):\n    return x + {i}  # why\n" for i in range(500)) + "```\n"
    page.open(scripted_url(words + "\n" + code + "\n" + words, tools="none", reasoning="none"))
    page.run("window.tasks = []; new PerformanceObserver((list) => window.tasks.push(...list.getEntries().map((each) => each.duration))).observe({entryTypes: ['longtask']})")
    page.send("Go").idle(120)
    tasks = sorted(page.run("return window.tasks"))
    print(f"long tasks: {len(tasks)}, longest {tasks[-1] if tasks else 0:.0f} ms")
    assert not tasks or tasks[-1] < 400  # on a machine that does nothing else: under 50


def test_a_long_answer_is_followed_to_its_end(page, told_server):
    """However fast it comes, and however little of it is laid out; and the way there and back."""
    told_server.stream = ("".join(event({"content": f"Paragraph {i} of the answer.\n\n"}) for i in range(300)) + event({}, "stop") + "data: [DONE]\n\n").encode()
    page.open(told_server.url).ask("Go")
    away = lambda: page.run("const node = document.querySelector('.scroller'); return node.scrollHeight - node.scrollTop - node.clientHeight")
    page.until(lambda: away() < 2, "the end")
    assert not page.all(".to-end")[0].is_displayed()
    assert page.answers()[0].count("Paragraph") == 300  # also of what is not laid out
    page.run("document.querySelector('.scroller').scrollTop = 0")
    page.wait(".to-end")
    assert away() > 5000
    page.click(".to-end")
    page.until(lambda: away() < 2, "the end again")
    page.driver.refresh()
    page.until(lambda: page.answers() and away() < 2, "the end of a conversation that is opened")
