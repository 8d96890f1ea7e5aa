"""Threads of a worker. One that ends by an error ends the process: a worker without its estimates looks alive."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable

logger = logging.getLogger(__name__)


def start_thread(name: str, work: Callable[[], None], exit_now: Callable[[str], object]) -> threading.Thread:
    """Start a thread; if `work` raises, log it and call `exit_now` with the reason, so that a supervisor restarts."""

    def run() -> None:
        try:
            work()
        except Exception as error:
            logger.exception("the thread %s ended by an error", name)
            exit_now(f"the thread {name} ended by an error ({type(error).__name__}: {error})")

    thread = threading.Thread(target=run, name=name, daemon=True)
    thread.start()
    return thread
