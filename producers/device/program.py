"""`thaw device run`: a device as a program that fetches its surveys, asks a command for values, and sends what is due.

It survives everything but the loss of its ledger: after a crash, a power cut or a month offline the next start goes on.
"""

from __future__ import annotations

import json
import logging
import random
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from estimators.mechanism import ParameterError
from producers.clock import Clock, system_clock
from producers.device.agent import Device
from producers.device.budget import BudgetError
from producers.device.bulletins import Verifier
from producers.device.results import ValueFixedError
from producers.device.troubles import VALUES, Troubles
from producers.survey.bulletin import BulletinError
from producers.survey.document import DocumentError, NotValidNowError, Verify, opened
from producers.survey.messages import SurveyError
from producers.survey.survey import Survey
from producers.wire.transport import Transport

log = logging.getLogger(__name__)

REFRESH_MS: Final = 6 * 3_600_000
"""Time between two fetches of a survey, half as much again at random. Longer: a withdrawn survey is answered longer."""
AGAIN_MS: Final = 60_000
"""Time until what failed (a fetch, a command) is tried again."""
BULLETIN_MS: Final = 3_600_000
"""Longest time between two fetches of a bulletin, half as much again at random; shorter where windows are. Longer: a
level that was opened is released later; shorter: requests that find nothing new."""
LONGEST_MS: Final = 60_000
"""The longest sleep: the clock of the machine may be set meanwhile."""

Fetch = Callable[[str], bytes]
"""Returns what an address serves; OSError if it cannot be had."""
Ask = Callable[[Survey], str]
"""Returns what the command for a survey printed; OSError if it failed."""


@dataclass
class Source:
    """A survey that the program answers: its address, and who has its values (None: the program's own troubles)."""

    url: str
    ask: Ask | None
    survey: Survey | None = None
    raw: bytes = b""
    """The envelope it came in."""
    fetch_ms: int = 0
    ask_ms: int = 0
    bulletin_ms: int = 0
    answered: int | None = None
    """The newest window for which a value was had, or known not to be."""


class Program:
    """The loop. Everything outside is given: how to fetch, to ask, to verify and to send, and the time.

    Args:
        sources: the surveys.
        folder: where the envelopes that were fetched last are kept, beside the ledger, for times without a network.
        ledger: path of the ledger.
        transport: sends reports, and counts troubles.
        troubles: what it counted.
        fetch: fetches an envelope.
        verify: checks signatures; None takes unsigned surveys.
        verifier: makes the check of bulletins, where a survey has some.
        wishes: of the person: `caps`, `lifetime_epsilon`, `unlock`, `value_key`, as `Device` takes them.
        clock: the time.
    """

    def __init__(
        self,
        sources: Sequence[Source],
        *,
        folder: Path,
        ledger: Path,
        transport: Transport,
        troubles: Troubles,
        fetch: Fetch,
        verify: Verify | None,
        verifier: Verifier | None = None,
        wishes: Mapping[str, Any],
        clock: Clock = system_clock,
    ) -> None:
        self._sources, self._folder, self._ledger = sources, folder, ledger
        self._transport, self._troubles, self._fetch, self._verify = transport, troubles, fetch, verify
        self._wishes, self._clock = {**wishes, "verifier": verifier}, clock
        self._device: Device | None = None
        self._said: dict[str, str] = {}
        self._waited = False

    def close(self) -> None:
        """Close the ledger."""
        if self._device is not None:
            self._device.close()

    def step(self) -> int:
        """Do what is due, and return for how many ms nothing is."""
        now_ms = self._clock()
        for source in self._sources:
            self._refresh(source, now_ms)
        known = {source.survey.id: source.survey for source in self._sources if source.survey is not None}
        if self._device is None or self._device.surveys != known:
            self.close()
            self._device = Device(self._ledger, known.values(), self._transport, clock=self._clock, **self._wishes)
        for source in self._sources:
            self._open(self._device, source, now_ms)
            self._answer(self._device, source, now_ms)
        tick = self._device.tick(now_ms)
        if self._waited and not tick.waiting:
            log.info("all reports are confirmed")
        self._waited = tick.waiting > 0 and tick.sent == 0
        due = [source.fetch_ms for source in self._sources]
        due += [source.ask_ms for source in self._sources if source.survey]
        due += [source.bulletin_ms for source in self._sources if source.survey and source.survey.stop]
        next_ms = self._device.next_ms()
        due += [] if next_ms is None else [next_ms]
        return min(max(min(due) - now_ms, 0), LONGEST_MS)

    # Surveys.

    def _refresh(self, source: Source, now_ms: int) -> None:
        """Fetch a survey when its time has come; what was fetched before is used until it expires."""
        if source.survey is not None and now_ms >= source.survey.stops_ms:
            self._say(source.url, f"{source.survey.id} has expired; nothing is answered")
        if now_ms < source.fetch_ms:
            return
        cached = self._folder / f"{re.sub(r'[^a-z0-9_.-]+', '_', source.url.lower())[-100:]}.json"
        found: Survey | None = None
        try:
            raw = self._fetch(source.url)
            found = self._opened(source, raw, now_ms)
            _replace(cached, raw)
            source.fetch_ms = now_ms + REFRESH_MS + random.SystemRandom().randrange(REFRESH_MS // 2)
            self._say(source.url, _why_not(source, found) or f"{found.id} is answered")
        except (OSError, DocumentError, SurveyError) as error:
            text = f"{source.url} cannot be had ({error}); trying again"
            self._say(source.url, text, same="not valid now" if isinstance(error, NotValidNowError) else None)
            self._troubles.documents += not isinstance(error, OSError)
            source.fetch_ms = now_ms + AGAIN_MS
            found = self._kept(cached, source, now_ms)
        source.survey = None if found is None or _why_not(source, found) else found

    def _kept(self, cached: Path, source: Source, now_ms: int) -> Survey | None:
        try:
            return self._opened(source, cached.read_bytes(), now_ms)
        except (OSError, DocumentError, SurveyError):
            # It was checked when it came; a document that has expired since is as good as none.
            return None

    def _opened(self, source: Source, raw: bytes, now_ms: int) -> Survey:
        """Return the survey of an envelope, the same object while the envelope is the same."""
        found, _ = opened(raw, source.url, now_ms, self._verify)
        if raw == source.raw and source.survey is not None:
            return source.survey
        source.raw = raw
        return found

    def _open(self, device: Device, source: Source, now_ms: int) -> None:
        """Fetch what the collector has opened of a survey with such a rule; what a bulletin opened before stays."""
        survey = source.survey
        if survey is None or survey.stop is None or now_ms < source.bulletin_ms:
            return
        url = f"{source.url}/bulletin"
        every_ms = min(max(survey.windows.step_ms, AGAIN_MS), BULLETIN_MS)
        source.bulletin_ms = now_ms + every_ms + random.SystemRandom().randrange(every_ms // 2)
        try:
            found = device.bulletins.take(survey, self._fetch(url))
            self._say(url, f"bulletin {found.number} of {survey.id} is followed")
        except (OSError, BulletinError) as error:
            self._say(url, f"no bulletin of {survey.id} is taken ({error}); its levels stay as they are")
            self._troubles.documents += isinstance(error, BulletinError)

    # Values.

    def _answer(self, device: Device, source: Source, now_ms: int) -> None:
        """Answer the windows of this moment, once; their reports leave after random delays of their own."""
        survey = source.survey
        if survey is None:
            return
        window_ms = survey.windows.latest(now_ms)
        if source.answered == window_ms or not survey.asks(window_ms, now_ms):
            source.ask_ms = window_ms + survey.windows.step_ms
            return
        if now_ms < source.ask_ms:
            return
        try:
            value = self._troubles.value() if source.ask is None else source.ask(survey).strip()
            if value:
                observe(device, survey, value, now_ms)
            if source.ask is None:
                self._troubles.forget()
            source.answered = window_ms
            source.ask_ms = window_ms + survey.windows.step_ms
        except (BudgetError, ValueFixedError) as error:
            self._say(survey.id, str(error))
            source.answered = window_ms
        except (OSError, ParameterError) as error:
            # The value is not in the message of an error of the command; of a wrong value its own is not repeated.
            why = "its value is not one of the survey's" if isinstance(error, ParameterError) else str(error)
            self._say(survey.id, f"{survey.id} is not answered now: {why}; trying again")
            source.ask_ms = now_ms + AGAIN_MS

    def _say(self, about: str, text: str, *, same: str | None = None) -> None:
        """Log what is new about a survey; the same again is not repeated. `same` decides that in place of the text."""
        if self._said.get(about) != (same or text):
            self._said[about] = same or text
            log.info("%s", text)


def _why_not(source: Source, survey: Survey) -> str:
    """Say why this program does not answer a survey; empty if it does."""
    if survey.mechanism.cards:
        return (
            f"{survey.id} is not answered: each answer needs a card of a dealer, and this program asks for none; "
            "answer it from an application with producers.device.cards"
        )
    if source.ask is None and not set(VALUES) <= set(survey.mechanism.labels):
        return f"{survey.id} is no survey of client reports: it needs the values {', '.join(VALUES)}"
    return ""


def observe(device: Device, survey: Survey, text: str, now_ms: int) -> None:
    """Give a device what a command printed: a label, or JSON where the survey asks for numbers or several values."""
    try:
        device.observe(survey, text, now_ms)
    except ParameterError:
        try:
            value = json.loads(text)
        except ValueError:
            value = text
        if isinstance(value, str):
            raise
        device.observe(survey, value, now_ms)


def _replace(path: Path, raw: bytes) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    draft = path.with_suffix(".draft")
    draft.write_bytes(raw)
    draft.replace(path)
