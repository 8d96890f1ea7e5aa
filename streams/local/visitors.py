"""Visitors of a demo, who answer from their browsers: what the broker has beyond what the fleets noted."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

import numpy as np

from producers.survey.survey import Survey
from producers.wire.frames import FrameError, columns, headers
from streams.kafka.reader import TopicReader
from streams.local.demo_report import WindowJournal
from streams.settings import Settings

Seen = dict[tuple[str, int], dict[bytes, int]]
"""By survey id and window: tokens with their highest rung."""


def add_visitors(settings: Settings, surveys: Iterable[Survey], journals: list[WindowJournal]) -> int:
    """Read the topic, and note in the journals what is not the fleets'; return the number of answers.

    So what visitors sent is looked for like everything else: it must be counted, and once.
    """
    known = {survey.digest: survey for survey in surveys}
    by_window = {(journal.survey_id, journal.window_ms): journal for journal in journals}
    visitors = 0
    for window, tokens in _others(settings, known, by_window).items():
        journal = by_window.get(window)
        if journal is None:
            journal = WindowJournal(*window, settled=False)
            journals.append(journal)
        journal.tokens.append(np.frombuffer(b"".join(tokens), dtype=np.uint8).reshape(len(tokens), -1))
        journal.acked.append(np.array(list(tokens.values()), dtype=np.int8))
        visitors += len(tokens)
    return visitors


def _others(
    settings: Settings, surveys: Mapping[bytes, Survey], journals: Mapping[tuple[str, int], WindowJournal]
) -> Seen:
    """Return the tokens of the topic that no fleet noted."""
    fleets = {
        window: {token.tobytes() for tokens in journal.tokens for token in tokens}
        for window, journal in journals.items()
    }
    found: Seen = {}
    with TopicReader(settings, settings.reports_topic) as reader:
        for batches in reader.read():
            for value in (record.value for batch in batches for record in batch.records):
                for window, token, rung in _reports(value or b"", surveys):
                    if token not in fleets.get(window, ()):
                        tokens = found.setdefault(window, {})
                        tokens[token] = max(rung, tokens.get(token, -1))
    return found


def _reports(message: bytes, surveys: Mapping[bytes, Survey]) -> Iterable[tuple[tuple[str, int], bytes, int]]:
    for header in headers(message):
        survey = None if isinstance(header, FrameError) else surveys.get(header.digest)
        if survey is None or isinstance(header, FrameError):
            continue
        reports = columns(message, header, survey.layout)
        for token, rung in zip(reports.tokens, reports.rungs.tolist(), strict=True):
            yield (survey.id, header.window_ms), token.tobytes(), rung
