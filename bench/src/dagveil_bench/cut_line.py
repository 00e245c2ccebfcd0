"""A TCP line on loopback that can be cut: a proxy that resets its connections, or swallows what they send."""

from __future__ import annotations

import contextlib
import socket
import struct
import threading
import time
from types import TracebackType

CHUNK = 65_536


class CutLine:
    """Forwards connections to a port on loopback until it is told not to."""

    def __init__(self, target: int) -> None:
        self._target = target
        self._listener = socket.create_server(("127.0.0.1", 0), backlog=128)
        self.port: int = self._listener.getsockname()[1]
        self._sockets: set[socket.socket] = set()
        self._guard = threading.Lock()
        self._flowing = threading.Event()
        self._flowing.set()
        self._down = False
        threading.Thread(target=self._accept, daemon=True).start()

    def __enter__(self) -> CutLine:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._down = True
        self._flowing.set()
        with contextlib.suppress(OSError):
            self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()
        self._reset_all()

    def cut(self, seconds: float) -> None:
        """Reset every connection, and every new one for so long."""
        self._down = True
        self._reset_all()
        time.sleep(seconds)
        self._down = False

    def stall(self, seconds: float) -> None:
        """Forward nothing for so long, then reset every connection: what was on the way is lost."""
        self._flowing.clear()
        time.sleep(seconds)
        self._reset_all()
        self._flowing.set()

    def _accept(self) -> None:
        while True:
            try:
                client, _ = self._listener.accept()
            except OSError:
                return
            try:
                if self._down:
                    raise ConnectionResetError
                server = socket.create_connection(("127.0.0.1", self._target), timeout=10)
                server.settimeout(None)
            except OSError:
                _break(client)
                client.close()
                continue
            with self._guard:
                self._sockets |= {client, server}
            busy = threading.Semaphore(1)  # for all but the last of the two
            for source, goal in ((client, server), (server, client)):
                threading.Thread(target=self._pump, args=(source, goal, busy), daemon=True).start()

    def _pump(self, source: socket.socket, goal: socket.socket, busy: threading.Semaphore) -> None:
        try:
            while content := source.recv(CHUNK):
                if not self._flowing.is_set():
                    self._flowing.wait()
                    break  # swallowed
                goal.sendall(content)
        except OSError:
            pass
        for end in (source, goal):
            _break(end)  # wakes the other thread
        if busy.acquire(blocking=False):
            return
        # only now: the number of a closed socket goes to the next one, and the other thread would read from that
        with self._guard:
            self._sockets -= {source, goal}
        source.close()
        goal.close()

    def _reset_all(self) -> None:
        with self._guard:
            for end in self._sockets:
                _break(end)


def _break(end: socket.socket) -> None:
    """End the connection with a reset, as a line does that breaks."""
    with contextlib.suppress(OSError):
        end.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        end.shutdown(socket.SHUT_RDWR)
