"""The waits of a worker's start share one time limit."""

import threading
from typing import NoReturn

import pytest

from streams.worker import process


class ExitedError(Exception):
    """The process would have ended here."""


@pytest.fixture(autouse=True)
def the_end_of_the_process_is_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    def end(reason: object) -> NoReturn:
        raise ExitedError(reason)

    monkeypatch.setattr(process, "exit_now", end)


def test_a_wait_gets_what_the_waits_before_have_left() -> None:
    patience = process.Patience(0.05, threading.Event())
    answers = iter(["starting", None])
    patience.wait_for("Redis", lambda: next(answers), errors=OSError)  # the pause between both takes it all
    asked = []

    def probe() -> str:
        asked.append("topic")
        return "no topic"

    with pytest.raises(ExitedError, match=r"Kafka was not ready within THAW_PATIENCE_SECONDS=0\.05: no topic"):
        patience.wait_for("Kafka", probe, errors=OSError)
    assert asked == ["topic"]


def test_a_worker_that_is_told_to_stop_waits_no_more() -> None:
    stopping = threading.Event()
    stopping.set()
    with pytest.raises(ExitedError, match="stopped while waiting for Redis"):
        process.Patience(60, stopping).wait_for("Redis", lambda: "never", errors=OSError)
