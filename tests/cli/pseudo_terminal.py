"""The program on a pseudo-terminal: what a person types, and what the terminal is told to show."""

import fcntl
import os
import pty
import re
import select
import signal
import struct
import termios
import time

PASTE_MARKS = re.compile("\x1b\\[\\?2004[hl]")  # of a terminal that knows pastes, on and off
STYLES = re.compile("\x1b\\[[0-9;]*m")


class Terminal:
    def __init__(self, program, *arguments, environment=None, columns=80, rows=24):
        self.pid, self.file = pty.fork()
        if self.pid == 0:
            # Its own size before it looks.
            fcntl.ioctl(0, termios.TIOCSWINSZ, struct.pack("HHHH", rows, columns, 0, 0))
            os.execve(program.binary, [program.binary, *map(str, arguments)],
                      {**program.environment, **(environment or {})})
        self.rows = rows
        self.output = ""
        self.sequences = False  # an escape sequence came, be it a mark of pastes
        self.seen = 0
        self.bytes = b""  # of a character that has not come whole

    def type(self, text):
        os.write(self.file, text.encode())

    def read(self, seconds):
        """Adds what comes within that time to the output. False: nothing did."""
        ready, _, _ = select.select([self.file], [], [], max(0, seconds))
        if not ready:
            return False
        try:
            self.bytes += os.read(self.file, 65536)
        except OSError:  # the other side is closed: the program has ended
            return False
        text = self.bytes.decode(errors="ignore")
        self.bytes = self.bytes[len(text.encode()):]
        self.sequences |= "\x1b" in text
        self.output += text
        self.output = self.output[: self.seen] + PASTE_MARKS.sub("", self.output[self.seen:])
        return True

    def wait_for(self, pattern, seconds=30):
        """Reads until `pattern` is in what came since the last match."""
        end = time.monotonic() + seconds
        while True:
            found = re.search(pattern, self.output[self.seen:])
            if found:
                self.seen += found.end()
                return found
            assert self.read(end - time.monotonic()), f"no {pattern!r} in {self.output[self.seen:]!r}"

    def rows_until(self, pattern, seconds=30):
        """The rows that are shown until `pattern` is, without styles."""
        begin = self.seen
        self.wait_for(pattern, seconds)
        return STYLES.sub("", self.output[begin:self.seen]).replace("\r", "").split("\n")

    def resize(self, columns, rows=None):
        fcntl.ioctl(self.file, termios.TIOCSWINSZ, struct.pack("HHHH", rows or self.rows, columns, 0, 0))

    def exit_code(self, seconds=60):
        """Reads to the end first: a terminal that nobody reads holds the program up."""
        end = time.monotonic() + seconds
        try:
            while True:
                ready, _, _ = select.select([self.file], [], [], max(0, end - time.monotonic()))
                assert ready, f"the program has not ended within {seconds} s"
                data = os.read(self.file, 65536)
                if not data:
                    break
                self.output += data.decode(errors="replace")
        except OSError:  # the other side is closed
            pass
        return os.waitstatus_to_exitcode(os.waitpid(self.pid, 0)[1])

    def signal(self, number):
        os.kill(self.pid, number)

    def close(self):
        try:
            os.kill(self.pid, signal.SIGKILL)
        except ProcessLookupError:
            pass
        os.close(self.file)
