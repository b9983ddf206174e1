"""`headrace chat --url` on a terminal, beside a stand-in for a server: what is shown, typed, pasted, stopped and kept."""

import base64
import json
import os
import pathlib
import re
import signal
import stat
import subprocess
import time
import unicodedata
import urllib.error
import urllib.request

import pytest

from pseudo_terminal import STYLES, Terminal
from stand_in import MODELS, StandIn

RICH = """# A title

Some **bold**, *italic* and `code` words, and a [link](http://x.y/z).

- one
  - two
1. three

> quoted

| Place | Height |
|:------|-------:|
| Tower | 324 m |
| 凱旋門 | 50 m |

```python
def f(x):
    return x  # done
```
"""


@pytest.fixture
def server():
    running = StandIn()
    yield running
    running.close()


@pytest.fixture
def home(tmp_path):
    """Chats and history of one test alone."""
    return {"XDG_STATE_HOME": str(tmp_path / "state")}


@pytest.fixture
def chat(program, server, home):
    opened = []

    def open_chat(*arguments, columns=80, environment=None):
        terminal = Terminal(program, "chat", "--url", server.url, *arguments, columns=columns,
                            environment={**home, **(environment or {})})
        opened.append(terminal)
        terminal.wait_for("/help lists the commands")
        terminal.wait_for("> ")
        return terminal

    yield open_chat
    for terminal in opened:
        terminal.close()


def ask(terminal, text="Go.", until="tok/s"):
    """Asks, and gives the rows of the answer."""
    terminal.type(text + "\r")
    terminal.wait_for(re.escape(text[-3:]))
    rows = terminal.rows_until(until)
    return rows[1:-1]


def columns_of(row):
    wide = sum(unicodedata.east_asian_width(c) in "WF" for c in row)
    marks = sum(unicodedata.combining(c) != 0 or c == "\u200d" for c in row)
    return len(row) + wide - marks


# --- what is shown ---


def test_markdown_is_rendered(chat, server):
    server.pieces = re.findall(r"\s*\S+|\s+", RICH)
    terminal = chat()
    rows = ask(terminal)
    assert rows[0] == "A title" and rows[1] == ""
    assert rows[2] == "Some bold, italic and code words, and a link (http://x.y/z)."
    assert rows[4:7] == ["• one", "  • two", "1. three"]
    assert rows[8] == "│ quoted"
    assert rows[10:14] == ["Place  │ Height", "───────┼───────", "Tower  │  324 m", "凱旋門 │   50 m"]
    assert rows[16:18] == ["def f(x):", "    return x  # done"]
    # What comes in pieces has its style in each.
    styled = re.sub("\x1b\\[0m\x1b\\[90m", "", terminal.output)
    assert "\x1b[1mbold\x1b[0m" in terminal.output and "\x1b[36mcode\x1b[0m" in terminal.output
    assert "\x1b[35mreturn\x1b[0m" in terminal.output and "\x1b[90m# done" in styled


@pytest.mark.parametrize("size", [1, 2, 3, 7, 50])
def test_how_the_stream_was_cut_changes_nothing(chat, server, size):
    server.pieces = [RICH]
    whole = ask(chat())
    server.pieces = [RICH[i : i + size] for i in range(0, len(RICH), size)]
    assert ask(chat()) == whole


def test_nothing_shown_is_taken_back(chat, server):
    server.pieces = [RICH[i : i + 2] for i in range(0, len(RICH), 2)]
    terminal = chat()
    terminal.type("Go.\r")
    terminal.wait_for(r"Go\.")
    begin = terminal.seen
    terminal.wait_for("tok/s")
    answer = terminal.output[begin : terminal.output.rindex("[7 tokens")]
    # Styles and line ends are all that is told: nothing goes back, nothing is erased.
    assert not re.search("\x1b\\[[0-9;]*[^0-9;m]|\b|\r(?!\n)|\x1b[^\\[]", STYLES.sub("", answer).replace("\r\r\n", "\r\n"))


def test_thoughts_are_dim_and_no_part_of_the_chat(chat, server):
    server.pieces = [("I wonder", "thought"), (" about it.", "thought"), "\n\nYes."]
    terminal = chat()
    assert ask(terminal) == ["I wonder about it.", "", "Yes."]
    assert "\x1b[2mI wonder about it.\x1b[0m" in STYLES.sub(lambda m: m[0], terminal.output).replace("\x1b[0m\x1b[2m", "")
    ask(terminal, "Sure?")
    assert [message["content"] for message in server.bodies[1]["messages"]] == ["Go.", "\n\nYes.", "Sure?"]


def test_no_tools_are_offered(chat, server):
    ask(chat())
    assert "tools" not in server.bodies[0] and "tool_choice" not in server.bodies[0]


@pytest.mark.parametrize("columns", [24, 40, 80])
def test_wide_characters_wrap_at_the_edge(chat, server, columns):
    text = "日本語のテキストは空白なしで続きます。" * 4 + "\n" + "wörd 🎉 한국어 e\u0301te\u0301 " * 12
    server.pieces = list(text)
    rows = ask(chat(columns=columns))
    assert max(columns_of(row) for row in rows) <= columns
    assert max(columns_of(row) for row in rows) >= columns - 8  # and they are used
    assert "".join("".join(rows).split()) == "".join(text.split())


def test_long_words_and_hanging_rows(chat, server):
    server.pieces = ["- one two three four five six seven eight nine ten\n- " + "x" * 50]
    rows = ask(chat(columns=30))
    assert rows[:2] == ["• one two three four five six", "  seven eight nine ten"]
    assert rows[2:] == ["• " + "x" * 28, "  " + "x" * 22]


@pytest.mark.timing
def test_a_new_width_is_taken_while_an_answer_comes(chat, server):
    server.pieces = [f"word{i:02} " for i in range(60)]
    server.delay = 0.02
    terminal = chat(columns=80)
    terminal.type("Go.\r")
    terminal.wait_for("word15")
    terminal.resize(30)
    rows = terminal.rows_until("tok/s")[:-1]
    assert all(columns_of(row) <= 30 for row in rows[2:]), rows
    assert any(len(row) > 20 for row in rows[2:])
    assert "word59" in " ".join(rows)


def test_what_a_terminal_would_obey_is_not_told(chat, server):
    server.pieces = ["a\x1b[2Jb", "\x1b]52;c;aGk=\x07c", "\x9b31md\r\x08e"]
    terminal = chat()
    assert ask(terminal) == ["a[2Jb]52;c;aGk=c31mde"]
    assert "\x1b[2J" not in terminal.output and "\x1b]52" not in terminal.output


EVIL = "bad \x1b]52;c;aGk=\x07\x1b[31mred\u202e"
SAFE = r"bad \]52;c;aGk=\[31mred"


def event_stream(*events, head="Content-Type: text/event-stream"):
    """Bytes of an answer that goes on to the close."""
    data = "".join(f"data: {event if isinstance(event, str) else json.dumps(event)}\n\n" for event in events)
    return f"HTTP/1.1 200 OK\r\n{head}\r\n\r\n{data}".encode()


def delta(**content):
    return {"choices": [{"index": 0, "delta": content}]}


@pytest.mark.parametrize("status", [404, 503])
def test_a_refusal_is_shown_without_what_a_terminal_would_obey(chat, server, status):
    server.status, server.refusal = status, EVIL
    terminal = chat()
    terminal.type("Go.\r")
    terminal.wait_for(f"answered {status}: {SAFE}\r")
    assert "\x1b]52" not in terminal.output and "\x1b[31m" not in terminal.output


def test_an_error_in_the_stream_and_of_the_models_is_shown_so_too(program, chat, server):
    server.raw = event_stream({"error": {"message": EVIL}})
    terminal = chat()
    terminal.type("Go.\r")
    terminal.wait_for(f"broke off: {SAFE}\r")
    server.models = (500, f"raw {EVIL}")
    terminal.type("/model\r")
    terminal.wait_for(f"answered 500: raw {SAFE}\r")
    assert "\x1b]52" not in terminal.output and "\x1b[31m" not in terminal.output
    assert "\x1b" not in program.error("chat", "--url", server.url)
    server.models = (200, '{"a\\u001b[31m": 1, "a\\u001b[31m": 2}')  # a key twice, which the error names
    assert "a[31m" in program.error("chat", "--url", server.url)


@pytest.mark.parametrize("events, told", [
    (["[DONE]"], r"\(the answer has no text\)"),
    ([delta(content="Half")], r"Half\s+\(the server broke off\)"),
    ([delta(tool_calls=[{"index": 0}]), "[DONE]"], "calls a tool"),
    ([{"error": None, **delta(content="Fine.")}, "[DONE]"], r"Fine\.\s+\x1b\[2m\["),
    ([delta(content="Fine."), {"usage": {"prompt_tokens": -5, "completion_tokens": 2**63 - 1}}, "[DONE]"],
     r"Fine\.\s+\x1b\[2m\[1099511627776 tokens"),
])
def test_how_an_answer_ended_is_told(chat, server, events, told):
    server.raw = event_stream(*events)
    terminal = chat()
    terminal.type("Go.\r")
    terminal.wait_for(told, seconds=5)


# --- what is plain ---


def test_a_pipe_gets_the_text_as_it_is(program, server):
    server.pieces = [("Hm.", "thought"), RICH]
    text = program.text("chat", "--url", server.url, stdin="Go.\n")
    assert text == f"<think>\nHm.\n</think>\n\n{RICH}"


def test_a_pipe_whose_last_request_failed_says_so_to_the_shell(program, server):
    server.status = 503
    failed = program.run("chat", "--url", server.url, stdin="Go.\n", check=1)
    assert "answered 503" in failed.stderr.decode()
    server.status = 200
    program.run("chat", "--url", server.url, stdin="Go.\n", check=0)


@pytest.mark.parametrize("environment", [{"NO_COLOR": "1"}, {"TERM": "dumb"}])
def test_terminals_that_want_no_styles_get_none(chat, server, environment):
    server.pieces = ["**bold**\n"]
    terminal = chat(environment=environment)
    assert ask(terminal) == ["**bold**"]
    assert "\x1b[1m" not in terminal.output


@pytest.mark.parametrize("kind", ["dumb", ""])
def test_a_terminal_without_sequences_gets_none(chat, kind):
    terminal = chat(environment={"TERM": kind})
    ask(terminal)
    terminal.type("/copy\r")
    terminal.wait_for("no clipboard")
    terminal.resize(40)
    terminal.type("\x04")
    assert terminal.exit_code() == 0
    assert not terminal.sequences and "\x1b" not in terminal.output


def test_what_is_typed_during_an_answer_comes_after_it(chat, server):
    server.pieces, server.delay = ["one ", "two ", "three "], 0.3
    terminal = chat()
    terminal.type("Go.\r")
    terminal.wait_for("one")
    terminal.type("Agan\x7fin.\r\x04")
    terminal.wait_for("three")
    terminal.wait_for("one")
    terminal.wait_for("three")
    assert terminal.exit_code() == 0
    assert [body["messages"][-1]["content"] for body in server.bodies] == ["Go.", "Again."]


def test_plain_is_a_flag(chat, server):
    server.pieces = ["**bold**\n"]
    assert ask(chat("--plain")) == ["**bold**"]


# --- commands ---


def test_help_names_every_command(chat):
    terminal = chat()
    terminal.type("/help\r")
    rows = "\n".join(terminal.rows_until("Ctrl-C stops an answer"))
    for name in ("model", "system", "save", "load", "set", "retry", "edit", "copy", "tokens", "help", "clear", "exit"):
        assert f"/{name}" in rows


def test_what_is_set_is_sent_and_nothing_else(chat, server):
    terminal = chat("--system", "Be brief.", "--top-k", "40")
    ask(terminal)
    body = server.bodies[0]
    assert body["messages"] == [{"role": "system", "content": "Be brief."}, {"role": "user", "content": "Go."}]
    assert body["top_k"] == 40 and body["stream"] is True and "temperature" not in body
    terminal.type("/set temperature 0.7\r")
    terminal.wait_for(r"\(temperature = 0.7\)")
    terminal.type("/system Be verbose.\r")
    terminal.wait_for("system message set")
    ask(terminal, "More.")
    assert server.bodies[1]["temperature"] == 0.7
    assert server.bodies[1]["messages"][0]["content"] == "Be verbose."


def test_retry_asks_the_same_again(chat, server):
    terminal = chat()
    ask(terminal)
    terminal.type("/retry\r")
    terminal.wait_for("tok/s")
    assert server.bodies[0] == server.bodies[1]


def test_edit_gives_the_last_message_back_to_be_changed(chat, server):
    terminal = chat()
    ask(terminal, "What is 日本 for?")
    terminal.wait_for("> ")
    terminal.type("/edit\r")
    terminal.wait_for("for\\?")
    terminal.type("\x7f now?\r")
    terminal.wait_for("tok/s")
    assert [message["content"] for message in server.bodies[1]["messages"]] == ["What is 日本 for now?"]


def test_an_edit_keeps_line_ends_and_tabs(chat, server):
    terminal = chat()
    terminal.type("\x1b[200~if x:\n\treturn 日本\x1b[201~\r")
    terminal.wait_for("tok/s")
    terminal.wait_for("> ")
    terminal.type("/edit\r")
    terminal.wait_for("return 日本")
    terminal.type("!\r")
    terminal.wait_for("tok/s")
    assert [message["content"] for message in server.bodies[1]["messages"]] == ["if x:\n\treturn 日本!"]


def test_an_edit_that_is_given_up_changes_nothing(chat, server):
    terminal = chat()
    ask(terminal, "One.")
    terminal.wait_for("> ")
    terminal.type("/edit\r")
    terminal.wait_for("One")
    terminal.type("\x03")
    terminal.wait_for(r"\^C\s+> ")
    ask(terminal, "Two.")
    assert [message["content"] for message in server.bodies[1]["messages"]] == ["One.", "Hello.", "Two."]


def test_copy_goes_to_the_terminals_clipboard(chat, server):
    server.pieces = ["Look:\n```c\nint x = 1;\n```\n"]
    terminal = chat()
    ask(terminal)
    terminal.type("/copy code\r")
    found = terminal.wait_for("\x1b\\]52;c;([A-Za-z0-9+/=]+)\x1b\\\\")
    assert base64.b64decode(found[1]).decode() == "int x = 1;\n"
    terminal.type("/copy\r")
    found = terminal.wait_for("\x1b\\]52;c;([A-Za-z0-9+/=]+)\x1b\\\\")
    assert base64.b64decode(found[1]).decode() == "Look:\n```c\nint x = 1;\n```\n"


def test_chats_are_kept_by_name(chat, server, home):
    terminal = chat()
    ask(terminal, "Remember me.")
    terminal.type("/save first chat\r")
    terminal.wait_for("saved to")
    path = pathlib.Path(home["XDG_STATE_HOME"]) / "headrace/chats/first chat.json"
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert [message["role"] for message in json.loads(path.read_text())] == ["user", "assistant"]
    terminal.type("/exit\r")
    assert terminal.exit_code() == 0
    again = chat("--load", "first chat")
    ask(again, "And now?")
    assert [message["content"] for message in server.bodies[1]["messages"]] == ["Remember me.", "Hello.", "And now?"]
    again.type("/load\r")
    again.wait_for("  first chat")
    again.type("/load nothing\r")
    again.wait_for("'nothing' cannot be read")


def test_models_of_the_server_are_listed_and_chosen(chat, server):
    terminal = chat()
    terminal.type("/model\r")
    for name in MODELS:
        terminal.wait_for(f"  {name}")
    terminal.type("/model second-model\r")
    terminal.wait_for(r"\(second-model at http")
    ask(terminal)
    assert server.bodies[0]["model"] == "second-model"
    terminal.type("/model third\r")
    terminal.wait_for("the server has no 'third': it has first-model, second-model")


def test_tab_completes_commands(chat):
    terminal = chat()
    terminal.type("/sy\tBe brief.\r")
    terminal.wait_for("system message set")


def test_tokens_are_those_that_the_server_counts(chat):
    terminal = chat()
    ask(terminal)
    terminal.type("/tokens\r")
    terminal.wait_for("1 answers; prompts 11 tokens, .*; answers 7 tokens")


# --- what is typed, pasted and stopped ---


def test_a_paste_of_several_lines_is_one_message(chat, server):
    terminal = chat()
    terminal.type("Why? \x1b[200~first line\n\tsecond 日本 🎉\r\nthird\x1b[201~\r")
    terminal.wait_for("tok/s")
    assert server.bodies[0]["messages"][0]["content"].replace("\n\n", "\n") == "Why? first line\n\tsecond 日本 🎉\nthird"


def test_a_pasted_line_end_sends_nothing(chat, server):
    terminal = chat()
    terminal.type("\x1b[200~one\ntwo\n\x1b[201~")
    terminal.wait_for("two")
    assert server.bodies == []
    terminal.type("!\r")
    terminal.wait_for("tok/s")
    assert server.bodies[0]["messages"][0]["content"] == "one\ntwo\n!"


@pytest.mark.timing
def test_ctrl_c_stops_the_answer_and_not_the_program(chat, server):
    server.pieces = ["word "] * 2000
    server.delay = 0.01
    terminal = chat()
    terminal.type("Go.\r")
    terminal.wait_for("word word")
    terminal.type("\x03")
    terminal.wait_for("tok/s", seconds=5)
    assert server.gone.wait(5)  # the server is told
    server.pieces, server.delay = ["Fine."], 0
    assert ask(terminal, "Still there?") == ["Fine."]
    assert server.bodies[1]["messages"][1]["content"].startswith("word word")


@pytest.mark.timing
def test_ctrl_c_stops_a_server_that_says_nothing(chat, server):
    server.delay = 60
    server.pieces = ["", "never"]
    terminal = chat()
    terminal.type("Go.\r")
    terminal.wait_for("Go")
    while not server.bodies:
        terminal.read(0.05)
    terminal.type("\x03")
    terminal.wait_for("> ", seconds=5)


def test_ctrl_c_at_any_moment_leaves_the_chat_alone(chat, server):
    """As a signal, which it is while no line is read: in front of an answer, behind it, between."""
    terminal = chat()
    for _ in range(20):
        terminal.type("Go.\r")
        for _ in range(5):
            terminal.signal(signal.SIGINT)
            terminal.read(0.002)
    terminal.signal(signal.SIGINT)
    time.sleep(0.5)
    while terminal.read(0.2):
        pass
    terminal.seen = len(terminal.output)
    assert ask(terminal, "Still there?") == ["Hello."]


@pytest.mark.timing
def test_ctrl_c_stops_a_request_for_models(chat, server):
    terminal = chat()
    server.slow["/v1/models"] = 30
    terminal.type("/model\r")
    terminal.wait_for("now: ")
    time.sleep(0.3)
    terminal.type("\x03")
    terminal.wait_for("> ", seconds=5)
    assert ask(terminal) == ["Hello."]


@pytest.mark.timing
def test_what_a_fast_server_sends_is_neither_hoarded_nor_shown_after_ctrl_c(chat, server):
    server.pieces = ["word " * 2000] * 4000  # 40 MB
    terminal = chat()
    terminal.type("Go.\r")
    terminal.wait_for("word")
    time.sleep(2)  # nobody reads the terminal
    status = pathlib.Path(f"/proc/{terminal.pid}/status").read_text()
    assert int(re.search(r"VmRSS:\s+(\d+) kB", status)[1]) < 60_000
    terminal.type("\x03")
    begin = len(terminal.output)
    terminal.wait_for("tok/s", seconds=5)
    assert len(terminal.output) - begin < 200_000


def test_ctrl_c_twice_at_the_prompt_ends(chat):
    terminal = chat()
    terminal.type("\x03")
    terminal.wait_for("Ctrl-C again leaves")
    terminal.wait_for("> ")
    terminal.type("\x03")
    assert terminal.exit_code() == 0


def test_ctrl_c_between_inputs_does_not_count(chat, server):
    terminal = chat()
    terminal.type("\x03")
    terminal.wait_for("again leaves")
    ask(terminal)
    terminal.wait_for("> ")
    terminal.type("\x03")
    terminal.wait_for("again leaves")
    terminal.wait_for("> ")
    terminal.type("\x04")
    assert terminal.exit_code() == 0


def test_sigterm_gives_the_terminal_back(chat):
    terminal = chat()
    terminal.signal(signal.SIGTERM)
    assert terminal.exit_code() == 143
    assert terminal.output.endswith("\x1b[?2004l")


def test_lines_of_sessions_that_a_signal_ends_are_kept(chat, home):
    one, other = chat(), chat()
    ask(one, "First line.")
    ask(other, "Second \\ line.")
    for terminal in (one, other):
        terminal.signal(signal.SIGTERM)
        assert terminal.exit_code() == 143
    path = pathlib.Path(home["XDG_STATE_HOME"]) / "headrace/chat_history"
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    again = chat()
    again.type("\x1b[A")
    again.wait_for(r"Second \\ line\.")
    again.type("\x1b[A")
    again.wait_for("First")  # of a line that is drawn where the other was


def test_a_history_that_has_grown_is_cut_to_its_latest_lines(chat, home):
    path = pathlib.Path(home["XDG_STATE_HOME"]) / "headrace/chat_history"
    path.parent.mkdir(parents=True)
    path.write_text("_HiStOrY_V2_\n" + "".join(f"line{i}\n" for i in range(3000)))
    terminal = chat()
    ask(terminal, "Latest.")
    terminal.wait_for("> ")
    terminal.type("\x04")
    assert terminal.exit_code() == 0
    lines = path.read_text().splitlines()
    assert lines[0] == "_HiStOrY_V2_" and lines[-2:] == ["line2999", "Latest."] and 1000 <= len(lines) <= 1003


def test_state_is_its_owners_alone_and_no_relative_path(program, server, tmp_path):
    done = program.run("chat", "--url", server.url, stdin="Go.\n/save x\n",
                       environment={"XDG_STATE_HOME": str(tmp_path / "state")})
    assert b"saved to" in done.stdout
    for folder in ("state", "state/headrace", "state/headrace/chats"):
        assert stat.S_IMODE((tmp_path / folder).stat().st_mode) == 0o700
    done = program.run("chat", "--url", server.url, stdin="Go.\n/save y\n", environment={"XDG_STATE_HOME": "state"})
    assert f"saved to {program.environment['HOME']}/.local/state".encode() in done.stdout


# --- servers that do not do what they should ---


def test_a_key_comes_from_the_flag_or_the_environment(program, chat, server):
    server.key = "sesame"
    assert "401: wrong key" in program.error("chat", "--url", server.url)
    assert ask(chat(environment={"OPENAI_API_KEY": "sesame"})) == ["Hello."]
    assert ask(chat(environment={"OPENAI_API_KEY": "no", "HEADRACE_API_KEY": "sesame"})) == ["Hello."]
    assert ask(chat("--api-key", "sesame", environment={"HEADRACE_API_KEY": "no"})) == ["Hello."]


def test_a_refused_message_is_told_and_left_out(chat, server):
    terminal = chat()
    server.status = 503
    terminal.type("One.\r")
    terminal.wait_for("the server answered 503: not today")
    server.status = 200
    ask(terminal, "Two.")
    assert [message["content"] for message in server.bodies[-1]["messages"]] == ["Two."]


def test_an_answer_that_breaks_off_is_told_and_kept(chat, server):
    server.breaks_off = True
    terminal = chat()
    terminal.type("One.\r")
    terminal.wait_for("it closed the connection")
    server.breaks_off = False
    ask(terminal, "Two.")
    assert [message["content"] for message in server.bodies[-1]["messages"]] == ["One.", "Hello.", "Two."]


def test_where_nobody_answers_one_line_says_so(program):
    assert "connect to 127.0.0.1:1" in program.error("chat", "--url", "http://127.0.0.1:1")
    assert "must be http://HOST" in program.error("chat", "--url", "localhost:8000")
    assert "--api-key needs --url" in program.error("chat", "--api-key", "x")


def wait_until_ready(url):
    for _ in range(600):
        try:
            with urllib.request.urlopen(f"{url}/health") as answer:
                if answer.status == 200:
                    return
        except urllib.error.HTTPError:  # it loads
            time.sleep(0.1)
    raise AssertionError(f"{url} is not ready")


def test_our_own_server_answers(program, model, tmp_path, home):
    with program.start("serve", "-m", model, "--port", "0", stdout=subprocess.PIPE, stderr=subprocess.DEVNULL) as served:
        url = re.search(r"listening on (http://\S+:\d+)", served.stdout.readline().decode())[1]
        wait_until_ready(url)
        terminal = Terminal(program, "chat", "--url", url, "--temperature", "0", environment=home)
        try:
            terminal.wait_for("/help lists")
            terminal.wait_for("> ")
            rows = ask(terminal, "What is the capital of France?")
            assert "Paris" in " ".join(rows)
            terminal.type("/tokens\r")
            terminal.wait_for(r"prompts [1-9]\d+ tokens")
            terminal.type("\x04")
            assert terminal.exit_code() == 0
            frame = program.text("top", "--once", "--interval", "0.2", "--url", url)
            assert "1 done" in frame and "\x1b" not in frame
        finally:
            terminal.close()
            served.terminate()
            served.wait(30)


def test_thoughts_and_markdown_of_our_own_server(program, tmp_path, home):
    scripted = pathlib.Path(os.environ.get("HEADRACE_SCRIPTED_SERVER")
                            or pathlib.Path(program.binary).parent / "src/server/scripted_server")
    if not scripted.exists():
        pytest.skip("scripted_server is not built")
    script = tmp_path / "script"
    script.write_text("<think>\nNow I **know**.\n</think>\n\n18 degrees at `12:00` in **Köln**.")
    served = subprocess.Popen([scripted, script, "hermes", "qwen3"], stdout=subprocess.PIPE)
    terminal = None
    try:
        url = re.search(r"http://\S+", served.stdout.readline().decode())[0]
        terminal = Terminal(program, "chat", "--url", url, environment=home)
        terminal.wait_for("> ")
        assert ask(terminal) == ["Now I know.", "", "18 degrees at 12:00 in Köln."]
    finally:
        if terminal:
            terminal.close()
        served.kill()
        served.wait()
