"""`headrace serve` as a child process, for the scripts of this folder."""
import re
import subprocess


class Server:
    """On a free port, ready once it is made; ended by stop(), or behind a `with`."""

    def __init__(self, program, model, *flags):
        self.process = subprocess.Popen([program, "serve", "-m", model, "--port", "0", *flags],
                                        stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True)
        for line in self.process.stdout:
            if match := re.search(r"listening on http://\S+:(\d+)", line):
                self.port = match.group(1)
            if line.startswith("ready"):
                return
        raise SystemExit("the server did not start: run `headrace serve` with these flags to see why")

    def stop(self):
        self.process.terminate()
        self.process.wait()

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.stop()
