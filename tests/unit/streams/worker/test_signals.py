"""A worker that is told to stop stops, also in the moments in which nobody looks."""

from __future__ import annotations

import signal
import threading

import pytest

from streams.worker import driver as app


class LeftError(Exception):
    """Stands for the end of the process."""


@pytest.mark.parametrize("told", [True, False])
def test_a_signal_between_the_last_look_and_fausts_own_handlers_is_not_forgotten(
    told: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    installed = []

    def leave(reason: object) -> None:
        assert "while starting" in str(reason)
        raise LeftError

    monkeypatch.setattr(app, "leave", leave)
    monkeypatch.setattr(signal, "signal", lambda number, _: installed.append(number))
    process = object.__new__(app._Process)
    process._told_to_stop = threading.Event()
    if told:
        process._told_to_stop.set()
        with pytest.raises(LeftError):
            process.install_signal_handlers()
    else:
        process.install_signal_handlers()
    # First the handlers, then the look: the other way round would leave a moment in between again.
    assert installed == [signal.SIGTERM, signal.SIGINT]
