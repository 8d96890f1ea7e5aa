"""The look at the store once a second: what cannot be read is told once, not at every look."""

import asyncio
import logging
from pathlib import Path

import pytest

from producers.clock import system_clock
from producers.survey.folder import SurveyFolder
from streams.exporter import watcher
from streams.exporter.reader import Reader, Snapshot
from streams.exporter.views import Views
from tests.support.memory_store import MemoryStore


class Unreadable(Reader):
    """A reader that meets what nobody thought of."""

    def snapshot(self) -> Snapshot:
        raise ZeroDivisionError("no such number")


def test_an_error_that_lasts_is_logged_once(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(watcher, "LOOK_SECONDS", 0.001)
    reader = Unreadable(MemoryStore(), SurveyFolder(tmp_path, system_clock()))

    async def look() -> watcher.Seen:
        looking = watcher.Watcher(reader, Views(reader))
        task = asyncio.create_task(looking.run())
        seen = await looking.after(5)
        task.cancel()
        looking.close()
        return seen

    with caplog.at_level(logging.INFO):
        seen = asyncio.run(look())
    assert "no such number" in seen.error
    assert len([record for record in caplog.records if record.exc_info]) == 1
    assert len(caplog.records) == 2
