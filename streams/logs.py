"""Logs on stderr: human on a terminal, one JSON object per line otherwise; repeated lines are suppressed."""

from __future__ import annotations

import logging
import re
import sys
import threading
from typing import Literal, TextIO

import msgspec

from producers.clock import Clock, system_clock
from streams.urls import without_secrets

Format = Literal["auto", "human", "json"]

# aiokafka writes thousands of lines a minute while a broker is down. Shorter: the lines fill the disk. Longer: an
# operator who has just opened the log does not see that the broker is still down.
QUIET_SECONDS = 30.0
_OTHER_REASON_MS = 5_000
"""Shorter: two reasons that take turns fill the log. Longer: what is wrong now is told later."""
CHATTY = ("aiokafka", "kafka", "faust", "mode", "opentelemetry")
"""Loggers of libraries whose lines may repeat without end."""


class JsonFormatter(logging.Formatter):
    """One JSON object per record: time in milliseconds, level, logger, message, and a traceback if there is one."""

    def format(self, record: logging.LogRecord) -> str:
        """Return the line."""
        line: dict[str, object] = {
            "time_ms": int(record.created * 1_000),
            "level": record.levelname.lower(),
            "logger": record.name,
            "message": _printable(record.getMessage()),
        }
        if record.exc_info:
            line["traceback"] = _printable(self.formatException(record.exc_info))
        return msgspec.json.encode(line).decode()


class HumanFormatter(logging.Formatter):
    """One line per record, and a traceback if there is one."""

    def __init__(self) -> None:
        super().__init__("%(asctime)s %(levelname)-7s %(message)s", "%H:%M:%S")

    def format(self, record: logging.LogRecord) -> str:
        """Return the line."""
        return _printable(super().format(record))


def _printable(text: str) -> str:
    """Return a text without secrets, and without signs that no encoding has: names of files may hold any byte."""
    return without_secrets(text).encode(errors="backslashreplace").decode()


class RateLimit(logging.Filter):
    """Let one line per logger, level and template pass in `seconds`; the next one has the number suppressed."""

    def __init__(self, seconds: float = QUIET_SECONDS, *, clock: Clock = system_clock) -> None:
        super().__init__()
        self._interval_ms = round(seconds * 1_000)
        self._clock = clock
        self._lock = threading.Lock()
        self._seen: dict[tuple[str, int, str], tuple[int, int]] = {}

    def filter(self, record: logging.LogRecord) -> bool:
        """Tell whether the record passes."""
        # Templates of other libraries may contain numbers; their first 40 characters are the key.
        key = (record.name, record.levelno, str(record.msg)[:40])
        now_ms = self._clock()
        with self._lock:
            since_ms, held = self._seen.get(key, (None, 0))
            if since_ms is not None and 0 <= now_ms - since_ms < self._interval_ms:
                self._seen[key] = (since_ms, held + 1)
                return False
            if len(self._seen) > 1_000:
                self._seen.clear()
            self._seen[key] = (now_ms, 0)
        if held:
            record.msg, record.args = f"{record.getMessage()} ({held} similar lines suppressed)", ()
        return True


class Repeats:
    """Counts what happens again and again, so that it is logged at once and then at intervals.

    >>> bad = Repeats(30, clock=lambda: 0)
    >>> bad.count("frame", 3), bad.count("frame", 2), bad.count("batch", 1)
    (3, None, 1)
    """

    def __init__(self, seconds: float = QUIET_SECONDS, *, clock: Clock = system_clock) -> None:
        self._interval_ms = round(seconds * 1_000)
        self._clock = clock
        self._seen: dict[str, tuple[int, int]] = {}

    def count(self, kind: str, number: int) -> int | None:
        """Return how many there were since the last time that this kind was logged, or None if it is not time yet."""
        now_ms = self._clock()
        since_ms, held = self._seen.get(kind, (None, 0))
        if since_ms is not None and 0 <= now_ms - since_ms < self._interval_ms:
            self._seen[kind] = (since_ms, held + number)
            return None
        self._seen[kind] = (now_ms, 0)
        return held + number


class StateLog:
    """Logs once that a service is down, repeats it at intervals, and logs once that it is up again.

    Another reason is told soon: a service that hung may be full when it answers. Reasons that differ in numbers alone
    are the same.

    >>> import io
    >>> stream = io.StringIO()
    >>> logger = logging.Logger("doctest"); logger.addHandler(logging.StreamHandler(stream))
    >>> redis = StateLog(logger, "Redis")
    >>> redis.down("refused"); redis.down("refused"); redis.up(); redis.up()
    >>> print(stream.getvalue().strip())
    Redis is down: refused; retrying
    Redis is up again
    """

    def __init__(
        self, logger: logging.Logger, what: str, *, clock: Clock = system_clock, repeat_seconds: float = 30.0
    ) -> None:
        self._logger, self._what = logger, what
        self._clock = clock
        self._repeat_ms = round(repeat_seconds * 1_000)
        self._down_ms: int | None = None
        self._said_ms, self._said = 0, ""

    def down(self, why: object) -> None:
        """Record that it does not answer."""
        now_ms, reason = self._clock(), re.sub(r"\d+", "", str(why))
        quiet_ms = self._repeat_ms if reason == self._said else min(_OTHER_REASON_MS, self._repeat_ms)
        if self._down_ms is None:
            self._down_ms = self._said_ms = now_ms
            self._said = reason
            self._logger.warning("%s is down: %s; retrying", self._what, why)
        elif now_ms - self._said_ms >= quiet_ms:
            self._said_ms, self._said = now_ms, reason
            self._logger.warning("%s is still down after %d s: %s", self._what, (now_ms - self._down_ms) // 1_000, why)

    def up(self) -> None:
        """Record that it answers."""
        if self._down_ms is not None:
            self._down_ms = None
            self._logger.warning("%s is up again", self._what)


class FailureLog:
    """Logs errors that nobody expected, of work that goes on after them: each with its traceback, one kind once.

    >>> import io
    >>> stream = io.StringIO()
    >>> logger = logging.Logger("doctest"); logger.addHandler(logging.StreamHandler(stream))
    >>> audit = FailureLog(logger, "the audit")
    >>> audit.met(KeyError("a")); audit.met(KeyError("b"))
    >>> print(stream.getvalue().strip())
    the audit met an error that nobody expected, and goes on
    KeyError: 'a'
    """

    def __init__(self, logger: logging.Logger, what: str) -> None:
        self._logger, self._what = logger, what
        self._told: set[type[Exception]] = set()

    def met(self, error: Exception) -> None:
        """Record an error."""
        if type(error) not in self._told:
            self._told.add(type(error))
            self._logger.error("%s met an error that nobody expected, and goes on", self._what, exc_info=error)


def configure(level: str = "info", format: Format = "auto", *, stream: TextIO | None = None) -> None:  # noqa: A002
    """Send all logs of this process to stderr, and rate-limit libraries that repeat their lines."""
    target = stream or sys.stderr
    handler = logging.StreamHandler(target)
    if format == "json" or (format == "auto" and not target.isatty()):
        handler.setFormatter(JsonFormatter())
    else:
        handler.setFormatter(HumanFormatter())
    limit = RateLimit()
    handler.addFilter(lambda record: not record.name.startswith(CHATTY) or limit.filter(record))
    root = logging.getLogger()
    root.handlers[:] = [handler]
    root.setLevel(level.upper())
    for name in CHATTY:
        # Their info lines describe every step of every rebalance; `debug` shows them.
        quiet = logging.WARNING if level.lower() != "debug" else logging.INFO
        logging.getLogger(name).setLevel(max(quiet, root.level))
