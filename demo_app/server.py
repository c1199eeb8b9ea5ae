"""The web server of one run: a listening socket, gunicorn on it, and a clean end."""

from __future__ import annotations

import http.client
import signal
import socket
import subprocess
import sys
import time
from typing import TYPE_CHECKING, Final

from demo_app.settings import FACTORY

if TYPE_CHECKING:
    from types import FrameType

    from demo_app.settings import Settings

_BACKLOG: Final = 1024
_START_S: Final = 30.0
_END_S: Final = 10.0


class StartError(Exception):
    """The demo can't start; the message is one line for the person who started it."""


def listen(host: str, port: int) -> socket.socket:
    """
    Take the address before anything else is started; port 0 takes a free one.

    Raises:
        StartError: The address is taken, or none of this machine's.
    """
    try:
        family, *_, address = socket.getaddrinfo(
            host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE
        )[0]
        return socket.create_server((host, address[1]), family=family, backlog=_BACKLOG)
    except OSError as error:
        reason = str(error.strerror).partition(" (while")[0]  # the rest names the address again
        raise StartError(f"can't listen on {host} port {port}: {reason}") from error


def url_of(listener: socket.socket) -> str:
    """Where the listener is reached."""
    host, port = listener.getsockname()[:2]
    return f"http://[{host}]:{port}" if ":" in host else f"http://{host}:{port}"


class WebServer:
    """
    Gunicorn on a socket that is open already; ends when a signal asks this process to end.

    It is a process of its own rather than forked from this one: a fork would inherit the embedded
    Valkey and the temporary database, and clear them away when a worker ends.
    """

    def __init__(self) -> None:
        self._process: subprocess.Popen[bytes] | None = None
        self.stopping = False
        for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
            signal.signal(number, self._stop)

    def _stop(self, _number: int, _frame: FrameType | None) -> None:
        self.stopping = True
        if self._process is not None:
            self._process.terminate()

    def start(self, listener: socket.socket, settings: Settings) -> None:
        """
        Start the workers and wait until one of them answers.

        Raises:
            StartError: No worker came up.
        """
        number = listener.fileno()
        command = [
            *(sys.executable, "-m", "gunicorn", FACTORY),
            *("--config", "python:demo_app.gunicorn_config", "--bind", f"fd://{number}"),
        ]
        # In a session of its own: a terminal's Ctrl-C is for us, who pass one signal on.
        self._process = subprocess.Popen(
            command,
            env=settings.environment(),
            pass_fds=(number,),
            stdin=subprocess.DEVNULL,
            start_new_session=True,
        )
        if self.stopping:  # the signal came between the two lines above
            self._process.terminate()
        host, port = listener.getsockname()[:2]
        give_up = time.monotonic() + _START_S
        while not _answers(host, port):
            ended = self._process.poll() is not None
            if self.stopping:  # asked last: a signal may have ended it just now
                return
            if ended or time.monotonic() > give_up:
                raise StartError("the web server did not come up")
            time.sleep(0.05)

    def wait(self) -> int:
        """Wait until the server has ended; 0 if it was asked to."""
        if self._process is None:
            return 0
        status = self._process.wait()
        return 0 if self.stopping else status or 1

    def close(self) -> None:
        """End the workers, whatever brought us here."""
        if self._process is None or self._process.poll() is not None:
            return
        self._process.terminate()
        try:
            self._process.wait(timeout=_END_S)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()


def _answers(host: str, port: int) -> bool:
    """Whether somebody answers; an answer that is an error ends the start at once."""
    connection = http.client.HTTPConnection(host, port, timeout=1)
    try:
        connection.request("GET", "/")
        status = connection.getresponse().status
    except (OSError, http.client.HTTPException):
        return False
    finally:
        connection.close()
    if status != http.HTTPStatus.OK:
        raise StartError(f"the home page answers {status}")
    return True
