"""The agent on a device: turns a value into a chain of increasingly sharp answers, exactly one per rung.

Order of effects, each safe to repeat after a crash:

1. `observe` draws the whole chain from the top with secure bits and commits it, the charge for the first rung and the
   encoded report in one transaction, for all windows that take the value or for none. Nothing has been sent yet, and
   the value itself is never written.
2. `tick` commits, per chain, the next open rung: marked, charged and encoded in one transaction.
3. Only then are reports handed to the transport, and only after its acknowledgement are they deleted from the outbox.

Which rung is released depends on the schedule, the person's own cap and the budget, never on value or answers. Where
the survey relies on rungs that do not depend on the person either (`rungs = "independent"`), a device whose cap or
budget ends below the top rung does not answer at all.
"""

from __future__ import annotations

import hashlib
import hmac
import logging
import math
import secrets
import struct
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import msgspec
import numpy as np

from estimators.exact.randomness import SecureBits, below
from estimators.mechanisms.registry import randomizer_of
from producers.clock import Clock, system_clock
from producers.device.budget import UNBOUNDED, BudgetError, Odometer, as_epsilon, cost_units
from producers.device.ledger import Ledger, StoredChain
from producers.device.outbox import LIMIT, Outbox, OutgoingReport
from producers.survey.file import PERSON_LIFETIME_EPSILON
from producers.survey.survey import Survey
from producers.wire.frames import Reports, encode
from producers.wire.layout import TOKEN_BYTES
from producers.wire.shards import partition_of, shards_of
from producers.wire.transport import Message, Transport, TransportError, answer_bytes

log = logging.getLogger(__name__)

SEND_AT_ONCE = 500
"""Reports handed to the transport in one go. Smaller costs round trips; larger resends more after a crash."""
BACKOFF_FIRST_MS = 1_000
BACKOFF_LAST_MS = 60_000
"""How long a device waits after the transport failed: doubled each time, so that a fleet does not overload a broker."""

_TOKEN_INPUT = struct.Struct("<8sqI")


class ValueFixedError(RuntimeError):
    """The window already has a chain for another value, or its chain was erased. Nothing was released.

    Another value is noticed only by the process that drew the chain, since the value is not stored. After a restart the
    stored chain is returned: the first value stands.
    """


@dataclass(frozen=True)
class Tick:
    """What one tick did: reports released, acknowledged and still waiting, and what was refused and why."""

    released: int
    sent: int
    waiting: int
    refused: tuple[str, ...]


class Device:
    """One device. Use it from one thread.

    Args:
        ledger: path of its SQLite file; created on first use, readable by its owner only.
        surveys: the surveys it answers.
        transport: sends its reports.
        caps: per survey name, the highest epsilon that the person allows per window; rungs above it are never released.
        lifetime_epsilon: the person's own bound on everything, beside the surveys' own; PERSON_LIFETIME_EPSILON if it
            is not given. Surveys whose answers have no finite cost need math.inf here.
        outbox_limit: reports kept while the broker cannot be reached.
        clock: the time, where it is not passed to a call.
    """

    def __init__(
        self,
        ledger: str | Path,
        surveys: Iterable[Survey],
        transport: Transport,
        *,
        caps: Mapping[str, float] | None = None,
        lifetime_epsilon: float | None = None,
        outbox_limit: int = LIMIT,
        clock: Clock = system_clock,
    ) -> None:
        self.surveys = {survey.id: survey for survey in surveys}
        self.caps = dict(caps or {})
        self.lifetime_epsilon = PERSON_LIFETIME_EPSILON if lifetime_epsilon is None else lifetime_epsilon
        if lifetime_epsilon is None:
            log.info(
                "no lifetime budget of the person was given: this device spends at most %g over all surveys; pass "
                "lifetime_epsilon to change it",
                PERSON_LIFETIME_EPSILON,
            )
        self._transport, self._clock = transport, clock
        self._bits = SecureBits()
        self._ledger = Ledger(ledger)
        self._outbox = Outbox(self._ledger, outbox_limit)
        self._backoff_ms = 0
        self._retry_ms: int | None = None
        self._ticked_ms: int | None = None
        self._warned: set[str] = set()
        self._values: dict[tuple[str, int], bytes] = {}

    def close(self) -> None:
        """Close the ledger; what is in the outbox is sent after the next start."""
        self._ledger.close()

    def __enter__(self) -> Device:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    @property
    def odometer(self) -> Odometer:
        """What this device has spent in its life, over all surveys."""
        return self._ledger.odometer()

    def left(self, survey: Survey | str) -> float:
        """Return the epsilon that a survey may still spend on this device."""
        return self.odometer.left(self._lifetime(self._known(survey)))

    def observe(self, survey: Survey | str, value: Any, now_ms: int | None = None) -> tuple[StoredChain, ...]:
        """Answer a survey for the windows that contain now_ms; returns their chains, oldest window first.

        The first value of a window stands: the same value again returns the stored chain. Overlapping windows may hold
        different values; a value that no window takes any more raises ValueFixedError. Either all windows without a
        chain get one or none does: BudgetError if their first rungs cannot be paid, ParameterError if the survey does
        not know the value. Returns nothing where the person's cap keeps this device out of the survey (see the log),
        and after the survey's end.
        """
        survey = self._known(survey)
        now_ms = self._clock() if now_ms is None else now_ms
        # Also where every window has its chain: a value that the survey does not know is always refused.
        randomizer_of(survey.mechanism).encode([value], self._bits)
        if not self._takes_part(survey):
            return ()
        starts = [start for start in survey.windows.starts(now_ms) if survey.asks(start)]
        if not starts:
            return ()
        plain = msgspec.json.encode(value)
        try:
            with self._ledger.transaction():
                known = {start: self._ledger.chain(survey.id, start) is not None for start in starts}
                chains = [self._chain_for(survey, start, value, now_ms) for start in starts]
        except BudgetError as error:
            if len(starts) == 1:
                raise
            raise BudgetError(
                f"{error}; the value belongs to {len(starts)} windows, which are answered all or none: nothing was "
                "released for any of them"
            ) from None
        # Only for the windows that are open now: the value is forgotten with them.
        self._values = {key: held for key, held in self._values.items() if key[0] != survey.id or key[1] in starts}
        for start in starts:
            if not known[start]:
                self._values[survey.id, start] = plain
        if all(chain.answers is None for chain in chains):
            raise ValueFixedError(f"{survey.id}: the window of {now_ms} has expired and its chain was erased")
        if not any(self._values.get((survey.id, start), plain) == plain for start in starts):
            raise ValueFixedError(
                f"{survey.id}: this window already has a chain for another value; the value of a chain is fixed, since "
                "a sharper answer about a changed value would cost more than it says; wait for the next window"
            )
        return tuple(chains)

    def tick(self, now_ms: int | None = None) -> Tick:
        """Release what the schedule has opened, send what is due, erase what has expired.

        Call it regularly (`next_ms` returns when); a late call only delays reports. An exhausted budget or an
        unreachable broker does not raise: the log and the result show it.
        """
        now_ms = self._clock() if now_ms is None else now_ms
        self._ticked_ms = now_ms
        released, refused = 0, []
        for chain in self._ledger.kept():
            survey = self.surveys.get(chain.survey_id)
            if survey is None or now_ms > chain.expires_ms:
                continue
            try:
                with self._ledger.transaction():
                    released += self._release_open(survey, chain.window_ms, now_ms)
            except BudgetError as error:
                refused.append(str(error))
                self._warn_once(str(error))
        sent = self._flush(now_ms)
        self._ledger.erase_expired(now_ms)
        return Tick(released, sent, len(self._outbox), tuple(refused))

    def next_ms(self) -> int | None:
        """Return when tick has something to do next, None if nothing is foreseen."""
        moments = [] if self._retry_ms is None else [self._retry_ms]
        ready_ms = self._outbox.next_ready_ms()
        if ready_ms is not None and self._retry_ms is None:
            moments.append(ready_ms)
        for chain in self._ledger.kept():
            survey = self.surveys.get(chain.survey_id)
            if survey is None:
                continue
            rungs = range(chain.highest + 1, self._cap(survey, chain.epsilons) + 1)
            moments.extend(self._opening_ms(survey, chain, rung) for rung in rungs)
        # What was open at the last tick and not released was refused; an immediate retry would only spin.
        return min((moment for moment in moments if self._ticked_ms is None or moment > self._ticked_ms), default=None)

    def _known(self, survey: Survey | str) -> Survey:
        wanted = survey.id if isinstance(survey, Survey) else survey
        for known in self.surveys.values():
            if wanted in (known.id, known.name):
                return known
        raise KeyError(f"this device does not take part in {wanted!r}; pass the survey to Device(surveys=...)")

    def _lifetime(self, survey: Survey) -> float:
        return min(survey.lifetime_epsilon, self.lifetime_epsilon)

    def _cap(self, survey: Survey, epsilons: tuple[float, ...]) -> int:
        """Return the highest rung that the person allows, -1 if none."""
        cap = self.caps.get(survey.name, math.inf)
        return sum(epsilon <= cap for epsilon in epsilons) - 1

    def _opening_ms(self, survey: Survey, chain: StoredChain, rung: int) -> int:
        return chain.drawn_ms if rung == 0 else survey.opening_ms(chain.window_ms, rung)

    def _takes_part(self, survey: Survey) -> bool:
        """Tell whether the person's cap lets this device answer; says so once in the log where it does not."""
        if survey.rungs == "any":
            return True
        cap, top = self.caps.get(survey.name, math.inf), survey.mechanism.epsilons[-1]
        if top > cap:
            self._warn_once(
                f"{survey.id} is not answered: the person allows {cap:.6g} per window and the top rung costs {top:.6g};"
                " this survey counts only devices that may release every rung; raise the cap to take part"
            )
        return top <= cap

    def _chain_for(self, survey: Survey, window_ms: int, value: Any, now_ms: int) -> StoredChain:
        """Return the chain of a window, drawing it if there is none, inside the caller's transaction."""
        stored = self._ledger.chain(survey.id, window_ms)
        if stored is not None:
            return stored
        if self._cap(survey, survey.mechanism.epsilons) < 0:
            raise BudgetError(
                f"{survey.id}: the first rung costs {survey.mechanism.epsilons[0]:.6g} per window and the person "
                f"allows {self.caps[survey.name]:.6g}; nothing was released; raise the cap or remove the survey"
            )
        chain = self._draw(survey, window_ms, value, now_ms)
        self._ledger.add(chain)
        self._release(survey, chain, 0, now_ms)
        return self._ledger.chain(survey.id, window_ms) or chain

    def _draw(self, survey: Survey, window_ms: int, value: Any, now_ms: int) -> StoredChain:
        mechanism = survey.mechanism
        randomizer = randomizer_of(mechanism)
        inputs = randomizer.encode([value], self._bits)
        drawn = randomizer.draw(np.repeat(inputs, mechanism.copies, axis=0), self._bits)
        answers = b"".join(answer_bytes(rung, mechanism.answer.width).tobytes() for rung in drawn.answers)
        jitters = below(survey.jitter_ms + 1, mechanism.rungs * mechanism.copies, self._bits)
        jitters_ms = jitters.astype(np.int64).reshape(mechanism.rungs, mechanism.copies)
        return StoredChain(
            survey_id=survey.id,
            window_ms=window_ms,
            answers=answers,
            groups=tuple(drawn.groups.tolist()),
            epsilons=mechanism.epsilons,
            jitters_ms=tuple(tuple(row) for row in jitters_ms.tolist()),
            drawn_ms=now_ms,
            released=(),
            charged_units=0,
            expires_ms=survey.expiry_ms(window_ms),
        )

    def _release_open(self, survey: Survey, window_ms: int, now_ms: int) -> int:
        """Release the highest rung that is open and allowed; rungs below it that were never sent are skipped."""
        # Read again inside the transaction: another process of this device may have released it.
        chain = self._ledger.chain(survey.id, window_ms)
        if chain is None or chain.answers is None:
            return 0
        highest = chain.highest
        for rung in range(self._cap(survey, chain.epsilons), highest, -1):
            if self._opening_ms(survey, chain, rung) > now_ms:
                continue
            try:
                return self._release(survey, chain, rung, now_ms)
            except BudgetError:
                if rung == highest + 1:
                    raise
        return 0

    def _release(self, survey: Survey, chain: StoredChain, rung: int, now_ms: int) -> int:
        """Charge for a rung and fill the outbox, inside the caller's transaction; returns the number of reports."""
        if not self._outbox.has_room(chain.copies):
            self._warn_once(
                f"the outbox is full ({self._outbox.limit} reports); new rungs wait until the broker acknowledges again"
            )
            return 0
        cost = cost_units(self._price(survey, chain, rung))
        unbounded = cost == UNBOUNDED and not any(
            math.isinf(self._price(survey, chain, before)) for before in chain.released
        )
        increment = UNBOUNDED if unbounded else max(cost - chain.charged_units, 0)
        odometer = self._ledger.odometer()
        # What was paid for before is released even if other surveys have used up the budget since.
        if increment != 0 and not odometer.affords(increment, self._lifetime(survey)):
            price = "cost without bound" if increment == UNBOUNDED else f"cost {as_epsilon(increment):.6g} more"
            if survey.rungs == "independent":
                price += " with all rungs above it, which this survey needs"
            raise BudgetError(
                f"{survey.id}, window {chain.window_ms}: rung {rung} would {price}, and "
                f"{odometer.left(self._lifetime(survey)):.6g} of {self._lifetime(survey):.6g} is left on this device "
                f"({odometer.epsilon:.6g} spent on all surveys); it is not released"
            )
        self._ledger.release(chain, rung, max(increment, 0), unbounded=unbounded)
        self._outbox.put(self._encoded(survey, chain, rung, now_ms))
        return chain.copies

    def _price(self, survey: Survey, chain: StoredChain, rung: int) -> float:
        """Return what a device must have paid to release a rung.

        Where the survey relies on rungs that depend on nothing but the schedule, the first answer pays for all: a later
        expense cannot stop the device at a lower rung.
        """
        return chain.epsilons[-1 if survey.rungs == "independent" else rung]

    def _encoded(self, survey: Survey, chain: StoredChain, rung: int, now_ms: int) -> list[OutgoingReport]:
        """Encode the reports of a rung, each as a frame of its own: nothing on the wire links two of them."""
        layout, outgoing = survey.layout, []
        # Not the time of this device: the error of its clock would identify it in every window.
        public_ms = chain.window_ms if rung == 0 else survey.opening_ms(chain.window_ms, rung)
        for copy, group in enumerate(chain.groups):
            token = np.frombuffer(self._token(survey, chain.window_ms, copy), dtype=np.uint8).reshape(1, TOKEN_BYTES)
            reports = Reports(
                tokens=token,
                answers=np.frombuffer(chain.answer(rung, copy), dtype=np.uint8).reshape(1, layout.width),
                rungs=np.array([rung], dtype=np.uint8),
                groups=np.array([group], dtype=np.uint16) if layout.grouped else None,
            )
            shard = int(shards_of(token, survey.shards)[0])
            frame = encode(survey.digest, chain.window_ms, public_ms, shard, reports, layout)
            # From now, not from the opening: a late device must not send the reports of several windows together.
            ready_ms = min(now_ms + chain.jitters_ms[rung][copy], max(now_ms, chain.expires_ms))
            outgoing.append(OutgoingReport(survey.id, chain.window_ms, rung, copy, shard, ready_ms, frame))
        return outgoing

    def _token(self, survey: Survey, window_ms: int, copy: int) -> bytes:
        """Return the token of a chain; only this device can link it to its other chains."""
        named = _TOKEN_INPUT.pack(survey.digest, window_ms, copy)
        return hmac.digest(self._ledger.secret, named, hashlib.sha256)[:TOKEN_BYTES]

    def _flush(self, now_ms: int) -> int:
        """Send what is due and delete what was acknowledged; returns the number of acknowledged reports."""
        # The upper bound: a clock that was set back must not stop the device from sending.
        if self._retry_ms is not None and 0 < self._retry_ms - now_ms <= BACKOFF_LAST_MS:
            return 0
        sent = 0
        while ready := self._outbox.ready(now_ms, SEND_AT_ONCE):
            secrets.SystemRandom().shuffle(ready)
            try:
                partitions = self._transport.partitions
                self._transport.send(
                    [Message(partition_of(report.shard, partitions), report.frame) for _, report in ready]
                )
            except TransportError as error:
                self._backoff_ms = min(max(2 * self._backoff_ms, BACKOFF_FIRST_MS), BACKOFF_LAST_MS)
                if self._retry_ms is None:
                    log.warning("reports wait in the outbox: %s; sending again within a minute", error)
                self._retry_ms = now_ms + self._backoff_ms
                return sent
            if self._retry_ms is not None:
                log.info("the broker acknowledges again; sending the outbox")
            self._backoff_ms, self._retry_ms = 0, None
            with self._ledger.transaction():
                self._outbox.remove(number for number, _ in ready)
            sent += len(ready)
        return sent

    def _warn_once(self, message: str) -> None:
        if message not in self._warned:
            self._warned = {message} if len(self._warned) >= 1000 else self._warned | {message}
            log.warning("%s", message)
