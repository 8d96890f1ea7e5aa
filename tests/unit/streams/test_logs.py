"""Logs: one line per state, no floods, JSON where no human looks."""

import io
import json
import logging
from collections.abc import Iterator

import pytest

from streams import logs
from tests.support.clock import ManualClock


@pytest.fixture
def root() -> Iterator[logging.Logger]:
    logger = logging.getLogger()
    handlers, level = logger.handlers[:], logger.level
    levels = {name: logging.getLogger(name).level for name in logs.CHATTY}
    yield logger
    logger.handlers[:] = handlers
    logger.setLevel(level)
    for name, was in levels.items():
        logging.getLogger(name).setLevel(was)


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def test_lines_are_json_unless_a_human_looks(root: logging.Logger) -> None:
    stream = io.StringIO()
    logs.configure(stream=stream)
    try:
        raise ValueError("boom")
    except ValueError:
        logging.getLogger("streams.test").exception("could not %s", "do it")
    line = json.loads(stream.getvalue())
    assert (line["level"], line["logger"], line["message"]) == ("error", "streams.test", "could not do it")
    assert "ValueError: boom" in line["traceback"]
    terminal = Terminal()
    logs.configure(stream=terminal)
    logging.getLogger("streams.test").info("hello")
    assert terminal.getvalue().endswith(" INFO    hello\n")


def test_libraries_that_repeat_themselves_are_held_back_and_others_are_not(root: logging.Logger) -> None:
    stream = io.StringIO()
    logs.configure(stream=stream)
    for number in range(5):
        logging.getLogger("aiokafka.consumer").error("broker %d is away", number)
        logging.getLogger("aiokafka.consumer").info("a step of a rebalance")
        logging.getLogger("streams.worker.driver").info("ours %d", number)
    messages = [json.loads(line)["message"] for line in stream.getvalue().splitlines()]
    assert messages == ["broker 0 is away", *(f"ours {number}" for number in range(5))]


def test_what_was_held_back_is_counted() -> None:
    clock = ManualClock()
    limit = logs.RateLimit(10, clock=clock)

    def passes() -> str | None:
        record = logging.LogRecord("aiokafka", logging.ERROR, "", 1, "away: %s", ("node",), None)
        return record.getMessage() if limit.filter(record) else None

    assert passes() == "away: node"
    assert passes() is None
    clock.advance(9_999)
    assert passes() is None
    clock.advance(1)
    assert passes() == "away: node (2 similar lines suppressed)"
    assert passes() is None


def test_a_state_is_told_when_it_changes_and_now_and_then(caplog: pytest.LogCaptureFixture) -> None:
    clock = ManualClock()
    state = logs.StateLog(logging.getLogger("streams.test"), "Redis", clock=clock, repeat_seconds=30)
    state.up()
    for _ in range(61):
        state.down("refused")
        clock.advance(1_000)
    state.up()
    state.up()
    assert [record.getMessage() for record in caplog.records] == [
        "Redis is down: refused; retrying",
        "Redis is still down after 30 s: refused",
        "Redis is still down after 60 s: refused",
        "Redis is up again",
    ]


def test_another_reason_is_told_soon_and_another_number_is_none(caplog: pytest.LogCaptureFixture) -> None:
    clock = ManualClock()
    state = logs.StateLog(logging.getLogger("streams.test"), "Redis", clock=clock, repeat_seconds=30)
    for second in range(20):
        state.down(f"{second} of 9 calls without an answer" if second < 3 else "out of memory")
        clock.advance(1_000)
    assert [record.getMessage() for record in caplog.records] == [
        "Redis is down: 0 of 9 calls without an answer; retrying",
        "Redis is still down after 5 s: out of memory",
    ]


@pytest.mark.parametrize("form", ["json", "human"])
def test_no_line_has_a_password_or_fails_at_the_name_of_a_file(root: logging.Logger, form: logs.Format) -> None:
    stream = io.StringIO()
    logs.configure(format=form, stream=stream)
    try:
        raise ValueError("redis://u:hunter2@h/0 is wrong")
    except ValueError:
        logging.getLogger("streams.test").exception("cannot read %s for %s", "/tmp/\udcff", "http://u:hunter2@h")
    assert "hunter2" not in stream.getvalue()
    assert "udcff" in stream.getvalue()
    assert "http://u:********@h" in stream.getvalue()
