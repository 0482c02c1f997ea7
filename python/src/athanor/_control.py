"""The control socket of one connection: newline-delimited JSON, read without ever waiting for more than asked."""

from __future__ import annotations

import json
import select
import socket
from typing import Any

from .errors import AthanorError, from_record

_LINE_LIMIT = 1 << 24


class Gone(Exception):
    """The agent closed the connection or died."""


class Control:
    """Newline-delimited JSON over the control socket."""

    def __init__(self, peer: socket.socket) -> None:
        peer.setblocking(False)
        self.socket = peer
        self._buffer = b""
        self._ended = False
        self._poll = select.poll()
        self._poll.register(peer, select.POLLIN)

    def send(self, message: dict[str, Any]) -> None:
        data = json.dumps(message, separators=(",", ":")).encode() + b"\n"
        try:
            self.socket.settimeout(30.0)  # lines are short; an agent that takes none for 30 s is lost
            self.socket.sendall(data)
        except OSError as error:
            # What it said before it closed is worth more than "broken pipe".
            self._raise_error_in(self.read_available())
            raise Gone(str(error)) from error
        finally:
            self.socket.setblocking(False)

    def read_available(self) -> list[dict[str, Any]]:
        """Whole lines that are here now; raises Gone when there are none and the agent has closed."""
        while not self._ended:
            try:
                data = self.socket.recv(1 << 16)
            except BlockingIOError:
                break
            except OSError:
                data = b""
            if not data:
                self._ended = True
                break
            self._buffer += data
        *whole, self._buffer = self._buffer.split(b"\n")
        if len(self._buffer) > _LINE_LIMIT:
            raise garbage(f"a line of more than {_LINE_LIMIT} bytes")
        messages = [self._parse(line) for line in whole if line.strip()]
        if self._ended and not messages:
            raise Gone("the agent closed the connection")
        return messages

    def receive(self, timeout: float) -> list[dict[str, Any]] | None:
        """Lines within `timeout` seconds, or None."""
        if self._poll.poll(timeout * 1000.0):
            return self.read_available()
        return None

    def close(self) -> None:
        self.socket.close()

    @staticmethod
    def _parse(line: bytes) -> dict[str, Any]:
        try:
            message = json.loads(line)
        except ValueError:
            raise garbage(repr(line[:80])) from None
        if not isinstance(message, dict) or not isinstance(message.get("type"), str):
            raise garbage(repr(line[:80]))
        return message

    @staticmethod
    def _raise_error_in(messages: list[dict[str, Any]]) -> None:
        for message in messages:
            if message["type"] == "error":
                raise from_record(message.get("error") or {})


def garbage(what: str) -> AthanorError:
    return AthanorError(
        "ATH_PROTOCOL",
        f"the agent broke the protocol: {what}",
        remedy="end the agent and start again; if it comes back it is a defect of Athanor: report it with agent.log",
    )
