"""Which driver reads Kafka."""

from __future__ import annotations

import threading

from streams.settings import Settings
from streams.worker.driver import Driver, Feed


def make_driver(settings: Settings, feed: Feed, stopping: threading.Event) -> Driver:
    """Return the driver that the settings name; a worker with the plain one loads nothing of Faust."""
    if settings.driver == "plain":
        from streams.worker.plain_driver import PlainDriver

        return PlainDriver(settings, feed, stopping)
    from streams.worker.faust_driver import FaustDriver

    return FaustDriver(settings, feed, stopping)
