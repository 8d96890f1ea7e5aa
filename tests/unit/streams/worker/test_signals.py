"""A worker that is asked to stop stops, also while it starts."""

from __future__ import annotations

import signal
import threading

import pytest

from streams.worker import faust_driver


class ExitedError(Exception):
    """Stands for the end of the process."""


@pytest.mark.parametrize("stopped", [True, False])
def test_a_signal_between_the_last_check_and_fausts_own_handlers_is_not_forgotten(
    stopped: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    installed = []

    def exit_now(reason: object) -> None:
        assert "while starting" in str(reason)
        raise ExitedError

    monkeypatch.setattr(faust_driver, "exit_now", exit_now)
    monkeypatch.setattr(signal, "signal", lambda number, _: installed.append(number))
    process = object.__new__(faust_driver.FaustProcess)
    process._asked_to_stop = threading.Event()
    if stopped:
        process._asked_to_stop.set()
        with pytest.raises(ExitedError):
            process.install_signal_handlers()
    else:
        process.install_signal_handlers()
    # First the handlers, then the check: the other way round would leave a moment in between again.
    assert installed == [signal.SIGTERM, signal.SIGINT]
