"""The person's side: a record goes in, a randomised one comes out, and nothing else does."""

import contextlib
import http.client
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, Final
from urllib.parse import urlsplit
from uuid import UUID, uuid4

import msgspec
import numpy as np
import pyarrow as pa

from dagveil.data.cells import to_arrow
from dagveil.data.encoding import encode
from dagveil.errors import DataError
from dagveil.local.channel import Integers
from dagveil.local.protocol import Protocol, protocol_from_json
from dagveil.privacy.noise.kind import NoiseKind, noise_source
from dagveil.privacy.noise.source import NoiseSource
from dagveil.privacy.receipt import SEEDED

# name of a field that seeded records carry, so that nobody takes them for protected ones
NOT_PRIVATE: Final = f"({SEEDED})"
MOST_TRIES: Final = 8  # of one batch, before giving up
# seconds between two tries; the first wait is a tenth of a second, and each is twice the last
LONGEST_WAIT: Final = 5.0
SECONDS: Final = 30.0  # for connecting, and for an answer
LARGEST_ANSWER: Final = 64 * 2**20
_LATER: Final = frozenset({408, 429, 500, 502, 503, 504})


class Device:
    """Randomises records as a protocol says.

    A column that a record lacks counts as missing, and every value goes where the schema says, as in all of dagveil.

    - `noise`: where randomness comes from; the system's secure generator unless given
    """

    def __init__(self, protocol: Protocol, noise: NoiseSource | None = None) -> None:
        self.protocol = protocol
        self._noise = noise_source(NoiseKind.EXACT) if noise is None else noise
        self._labels = [column.labels for column in protocol.columns]

    def __repr__(self) -> str:
        return f"Device({self.protocol.schema.dataset!r})"

    @property
    def private(self) -> bool:
        """Whether the noise is secret: not if it comes from a seed."""
        return self._noise.private

    def randomise(self, record: Mapping[str, Any]) -> dict[str, str]:
        """Return the record's report, by labels. Every call spends the protocol's ε of this person again."""
        return self.label(self.report([record])[0])

    def report(self, records: Sequence[Mapping[str, Any]]) -> Integers:
        """Return the reports of some records as codes, in the shape (records, columns)."""
        cells = {name: to_arrow([_plain(record.get(name)) for record in records]) for name in self.protocol.names}
        encoded = encode(pa.table(cells), self.protocol.schema)
        codes = np.stack([encoded.codes[name].astype(np.int64) for name in self.protocol.names], axis=1)
        return self.protocol.channel.report(codes, self._noise)

    def label(self, codes: Iterable[int]) -> dict[str, str]:
        """Return a report by labels; one that was drawn from a seed is marked."""
        columns = zip(self.protocol.names, self._labels, codes, strict=True)
        named = {name: labels[code] for name, labels, code in columns}
        return named if self.private else {**named, NOT_PRIVATE: "true"}


def _plain(value: Any) -> Any:
    """Return a cell as it is, or the text of its kind if it is no single value: that is no level."""
    return f"a {type(value).__name__}" if isinstance(value, list | dict | tuple | set) else value


class Sender:
    """Sends batches of reports to one collector.

    A batch keeps its id over all tries, so the collector stores it once however often it arrives.

    - `tries`: of one batch, before giving up
    - `wait`: called with the seconds to wait between tries
    """

    def __init__(self, url: str, tries: int = MOST_TRIES, wait: Callable[[float], None] = time.sleep) -> None:
        try:
            parts = urlsplit(url if "://" in url else f"http://{url}")
            self._port = parts.port
        except ValueError:
            raise DataError("the collector's address cannot be read; write one such as http://127.0.0.1:8765") from None
        if parts.scheme not in ("http", "https") or not parts.hostname:
            raise DataError("the collector's address must be a http:// or https:// address with a host")
        self._host, self._path, self._secure = parts.hostname, parts.path.rstrip("/"), parts.scheme == "https"
        self._tries, self._wait = tries, wait
        self._connection: http.client.HTTPConnection | None = None

    def fetch_protocol(self) -> Protocol:
        """Ask the collector for its protocol."""
        return protocol_from_json(self._ask("GET", "/protocol", None))

    def send(self, codes: Integers | list[list[int]], digest: str, batch: UUID | None = None) -> UUID:
        """Send one batch and return its id once it is acknowledged."""
        batch = batch or uuid4()
        reports = codes.tolist() if isinstance(codes, np.ndarray) else codes
        body = msgspec.json.encode({"batch": str(batch), "protocol": digest, "reports": reports})
        answer = _decode(self._ask("POST", "/reports", body))
        if answer.get("batch") != str(batch) or answer.get("reports") != len(reports):
            raise DataError("the answer is not that of a collector; check the address")
        return batch

    def close(self) -> None:
        """Close the connection."""
        if self._connection is not None:
            self._connection.close()
            self._connection = None

    def _ask(self, method: str, path: str, body: bytes | None) -> bytes:
        reason = ""
        for attempt in range(self._tries):
            if attempt:
                self._wait(min(0.1 * 2 ** (attempt - 1), LONGEST_WAIT))
            try:
                status, content = self._exchange(method, self._path + path, body)
            except (OSError, http.client.HTTPException) as error:
                self.close()
                reason = f"no answer ({type(error).__name__})"
                continue
            if status == 200:
                return content
            told = _decode(content)
            what, detail = str(told.get("error", "no reason"))[:80], str(told.get("detail", ""))[:300]
            reason = f"status {status}, {what}: {detail}"
            if status not in _LATER:
                raise DataError(f"the collector refused: {reason}")
        raise DataError(
            f"the collector did not acknowledge after {self._tries} tries: {reason}; check that it runs, and send again"
        )

    def _exchange(self, method: str, path: str, body: bytes | None) -> tuple[int, bytes]:
        if self._connection is None:
            kind = http.client.HTTPSConnection if self._secure else http.client.HTTPConnection
            self._connection = kind(self._host, self._port, timeout=SECONDS)
        headers = {} if body is None else {"Content-Type": "application/json"}
        self._connection.request(method, path, body, headers)
        response = self._connection.getresponse()
        content = response.read(LARGEST_ANSWER)
        if response.length:
            # the collector ended while it answered: with a size, `read` does not tell
            raise http.client.IncompleteRead(content, response.length)
        if response.will_close or not response.isclosed():
            self.close()
        return response.status, content


def _decode(content: bytes) -> dict[str, Any]:
    with contextlib.suppress(msgspec.DecodeError, UnicodeError, RecursionError):
        found = msgspec.json.decode(content)
        if isinstance(found, dict):
            return found
    return {}
