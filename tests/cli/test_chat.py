"""`headrace chat`, piped and on a terminal."""

import json
import os

import pytest

from pseudo_terminal import Terminal


def test_piped_lines_are_answered_in_turn(program, model):
    text = program.text(
        "chat", "-m", model, "--temperature", "0", "-n", "32",
        stdin="What is the capital of France?\n/stats\n",
    )
    assert "Paris" in text
    assert "1 answers" in text


def test_commands(program, model, tmp_path):
    saved = tmp_path / "chat.json"
    text = program.text(
        "chat", "-m", model, "--temperature", "0", "-n", "8",
        stdin="/system Be brief.\nHello\\\nthere\n/set temperature 0.5\n/set temperature hot\n"
        f"/save {saved}\n/clear\n/regen\n/load {saved}\n/regen\n/nonsense\n/exit\nnot read\n",
    )
    assert "(temperature = 0.5)" in text
    assert "temperature must be a number" in text
    assert "no message to answer" in text
    assert "(2 messages loaded)" in text
    assert "/nonsense is no command" in text
    messages = json.loads(saved.read_text())
    assert [message["role"] for message in messages] == ["system", "user", "assistant"]
    assert messages[1]["content"] == "Hello\nthere"


def test_block_of_lines(program, model, tmp_path):
    saved = tmp_path / "chat.json"
    program.text("chat", "-m", model, "-n", "4", stdin=f'"""one\ntwo\nthree"""\n/save {saved}\n')
    assert json.loads(saved.read_text())[0]["content"] == "one\ntwo\nthree"


def test_a_long_conversation_drops_its_oldest_turns(program, model):
    lines = "".join(f"Remember number {i}: {'word ' * 40}\n" for i in range(6))
    text = program.text("chat", "-m", model, "-n", "8", "--max-model-len", "256", stdin=lines)
    assert "oldest turns were dropped" in text


@pytest.fixture
def terminal(program, model):
    opened = Terminal(program, "chat", "-m", model, "--temperature", "0")
    yield opened
    opened.close()


@pytest.mark.timing
def test_interrupt_stops_the_answer_and_ctrl_d_leaves(terminal):
    terminal.wait_for("> ")
    terminal.type("/set max_tokens 4000\r")
    terminal.wait_for(r"max_tokens = 4000\)")
    terminal.wait_for("> ")
    terminal.type("Write a very long story about a whale.\r")
    terminal.wait_for(r"whale\.\s+\S+ \S+ ")
    terminal.type("\x03")
    terminal.wait_for(r"tok/s", seconds=10)
    terminal.wait_for("> ")
    terminal.type("half a line\x03")
    terminal.wait_for(r"\^C\s+> ")
    terminal.type("/stats\r")
    terminal.wait_for("1 answers")
    terminal.wait_for("> ")
    terminal.type("\x04")
    assert terminal.exit_code() == 0


def test_what_is_pasted_is_one_input(terminal, tmp_path):
    terminal.wait_for("> ")
    terminal.type("/set max_tokens 1\r")
    terminal.wait_for(r"max_tokens = 1\)")
    terminal.wait_for("> ")
    terminal.type("Why? \x1b[200~first line\nsecond 日本\rthird\x1b[201~\r")
    terminal.wait_for(r"tok/s")
    terminal.wait_for("> ")
    terminal.type(f"/save {tmp_path}/chat.json\r")
    terminal.wait_for(r"saved to")
    messages = json.loads((tmp_path / "chat.json").read_text())
    assert messages[0]["content"] == "Why? first line\nsecond 日本\nthird"


def test_a_line_is_drawn_anew_when_the_window_changes(terminal):
    terminal.resize(40)
    terminal.wait_for("> ")
    word = "/" + "x" * 49
    terminal.type(word)
    terminal.wait_for("(x[ \\b\\r\\n]*){49}")
    terminal.resize(20)
    # The terminal shows 52 columns in three rows now: two up, away with them, and again.
    terminal.wait_for("\r\x1b\\[2A\x1b\\[J> /x{17}[ \r]*x{20}[ \r]*x{12}")
    terminal.type("yz\r")
    terminal.wait_for(f"{word}yz is no command")
    terminal.wait_for("> ")
    terminal.type("\x04")
    assert terminal.exit_code() == 0


def test_history_is_kept(program, model, terminal):
    terminal.wait_for("> ")
    terminal.type("/set seed 41\r")
    terminal.wait_for(r"seed = 41\)")
    terminal.wait_for("> ")
    terminal.type("\x1b[A\x7f2\r")  # the line above, its last digit changed
    terminal.wait_for(r"seed = 42\)")
    terminal.wait_for("> ")
    terminal.type("/exit\r")
    assert terminal.exit_code() == 0
    history = os.path.join(program.environment["HOME"], ".local/state/headrace/chat_history")
    assert os.stat(history).st_mode & 0o077 == 0
    again = Terminal(program, "chat", "-m", model)
    again.wait_for("> ")
    again.type("\x1b[A\x1b[A\r")  # /exit, and before it /set seed 42
    again.wait_for(r"seed = 42\)")
    again.wait_for("> ")
    again.type("\x04")
    assert again.exit_code() == 0


@pytest.mark.timing
def test_interrupt_stops_an_answer_to_what_was_typed_ahead(terminal):
    terminal.wait_for("> ")
    terminal.type("/set max_tokens 40\r")
    terminal.wait_for("40\\)\\s+> ")
    terminal.type("Write a very long story about a whale.\r")
    terminal.wait_for(r"whale\.\s+\S+ \S+ ")
    terminal.type("/set max_tokens 4000\rNow a very long story about a ship.\r")
    terminal.wait_for(r"tok/s")  # the end of the first answer
    terminal.wait_for(r"ship\.\s+\S+ \S+ ")
    terminal.type("\x03")
    terminal.wait_for(r"tok/s", seconds=10)
    terminal.wait_for("> ")
    terminal.type("\x04")
    assert terminal.exit_code() == 0
