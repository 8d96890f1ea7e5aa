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

import logging
import math
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from estimators.exact.randomness import SecureBits
from estimators.mechanisms.registry import randomizer_of
from producers.clock import Clock, system_clock
from producers.device.accounts import Budget
from producers.device.budget import BudgetError, Odometer, as_epsilon
from producers.device.bulletins import Bulletins, Verifier
from producers.device.drawing import drawn_chain
from producers.device.encoding import withdrawals
from producers.device.ledger import Ledger, StoredChain
from producers.device.noted import noted
from producers.device.outbox import LIMIT, Outbox
from producers.device.refusal import by_clock, kept_out, of_all_windows
from producers.device.releasing import Releasing
from producers.device.results import ReleaseError, Tick, ValueFixedError
from producers.device.sealing import Seal
from producers.device.sending import Sender
from producers.device.standing import standing_chain
from producers.device.stored import drawn_together
from producers.device.values import OpenValues, same_bytes
from producers.device.waking import wakes_ms
from producers.survey.editions import newest
from producers.survey.file import PERSON_LIFETIME_EPSILON
from producers.survey.survey import Survey
from producers.survey.unlocking import parse_unlock
from producers.wire.transport import Transport

__all__ = ["Device", "ReleaseError", "Tick", "ValueFixedError"]

log = logging.getLogger(__name__)


class Device(Releasing):
    """One device. Use it from one thread.

    Args:
        ledger: path of its SQLite file; created on first use, readable by its owner only.
        surveys: the surveys it answers.
        transport: sends its reports.
        caps: per survey name, the highest epsilon that the person allows per window; rungs above it are never released.
        lifetime_epsilon: the person's own bound on everything, beside the surveys' own; PERSON_LIFETIME_EPSILON if it
            is not given. Surveys whose answers have no finite cost need math.inf here.
        unlock: how much of that may be spent over time, such as "1 per day"; all of it at once if it is not given.
        shares: per survey name how much it counts when the person's budget is divided between surveys; 1 each if it is
            not given, so that no survey gets less because another one asks more often.
        outbox_limit: reports kept while the broker cannot be reached.
        verifier: checks bulletins, `producers.survey.signing.verifier`; `bulletins.take` takes them.
        value_key: 32 random bytes or more, not kept beside the ledger, always the same: with it levels that a survey
            adds later are released as well; what they are drawn from is kept sealed until the window expires.
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
        unlock: str | None = None,
        shares: Mapping[str, float] | None = None,
        outbox_limit: int = LIMIT,
        verifier: Verifier | None = None,
        value_key: bytes | None = None,
        clock: Clock = system_clock,
    ) -> None:
        known = newest(surveys)
        self.lifetime_epsilon = PERSON_LIFETIME_EPSILON if lifetime_epsilon is None else lifetime_epsilon
        if lifetime_epsilon is None:
            without = "no lifetime budget of the person was given: this device spends at most %g over all surveys; "
            log.info(f"{without}pass lifetime_epsilon to change it", PERSON_LIFETIME_EPSILON)
        unlocks = None if unlock is None else parse_unlock(unlock)
        budget = Budget(known.values(), self.lifetime_epsilon, unlocks, shares or {})
        seal = None if value_key is None else Seal(value_key)
        stored = Ledger(ledger)
        outbox, bulletins = Outbox(stored, outbox_limit), Bulletins(stored, verifier)
        super().__init__(known, caps or {}, stored, outbox, budget, bulletins, SecureBits(), seal)
        self._transport, self._clock = transport, clock
        self._sender = Sender(stored, outbox, transport)
        stored.note(map(noted, known.values()), self.lifetime_epsilon, unlock)
        self._ticked_ms: int | None = None
        self._values = OpenValues()

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

    def left(self, survey: Survey | str, now_ms: int | None = None) -> float:
        """Return the epsilon that a survey may still spend on this device."""
        now_ms = self._clock() if now_ms is None else now_ms
        spent_units, accounts = self.odometer.spent_units, self._ledger.accounts()
        units = self._budget.allowance(self._known(survey), spent_units, accounts, now_ms).units
        return math.inf if units is None else as_epsilon(units)

    def observe(self, survey: Survey | str, value: Any, now_ms: int | None = None) -> tuple[StoredChain, ...]:
        """Answer a survey for the windows that contain now_ms; returns their chains, oldest window first.

        The first value of a window stands: the same value again returns the stored chain. Overlapping windows may hold
        different values; a value that no window takes any more raises ValueFixedError. Either all windows without a
        chain get one or none does: BudgetError if their first rungs cannot be paid, ParameterError if the survey does
        not know the value. Returns nothing if the person's cap forbids it, without consent, and after the survey's end.
        """
        survey = self._known(survey)
        now_ms = self._clock() if now_ms is None else now_ms
        # Also where every window has its chain: a value that the survey does not know is always refused.
        randomizer_of(survey.mechanism).encode([value], self._bits)
        if not self._takes_part(survey):
            return ()
        starts = [start for start in survey.windows.starts(now_ms) if survey.asks(start, now_ms)]
        plain = same_bytes(value)
        if self._budget.unlocks(survey):
            self._ledger.begin(survey.id, now_ms)
        try:
            with self._ledger.transaction():
                starts = self._agreed(survey, starts)
                if not starts:
                    return ()
                known = {start: self._ledger.chain(survey.id, start) is not None for start in starts}
                new = sum(not is_known for is_known in known.values())
                room = new == 0 or self._has_room(new * survey.mechanism.copies)
                chains = [self._chain_for(survey, start, value, now_ms, room) for start in starts]
        except BudgetError as error:
            raise of_all_windows(error, known) from None
        self._values.note(survey.id, known, plain)
        if all(chain.answers is None for chain in chains):
            raise ValueFixedError(f"{survey.id}: {now_ms} has expired or was taken back; its chain was erased")
        self._values.check(survey.id, starts, plain)
        return tuple(chains)

    def consent(self, given: bool, now_ms: int | None = None) -> None:
        """Switch this device on or off. Off: nothing more is drawn or sent, and the ledger keeps only what was spent.

        What has left of open windows is withdrawn where its survey allows it: `tick` sends the withdrawals, each after
        a jitter of its own. Other answers stay counted. Switched on again, the device answers the windows that follow.
        """
        if given:
            self._ledger.allow()
        else:
            self._ledger.wipe(self._clock() if now_ms is None else now_ms)
            self._values = OpenValues()

    def withdraw(self, survey: Survey | str, *, window_ms: int | None = None, now_ms: int | None = None) -> int:
        """Take back what was answered for a survey: for the window that starts at window_ms, or for all open ones.

        Returns in how many windows an answer was released; `tick` sends their withdrawals, each after a jitter of its
        own. No window is answered again, what they cost stays spent. ReleaseError if the survey's cannot be withdrawn.
        """
        asked = self._known(survey)
        if not asked.withdrawable:
            raise ReleaseError(f"{asked.id}: its answers cannot be withdrawn; only withdrawable = true allows it")
        now_ms = self._clock() if now_ms is None else now_ms
        kept = [chain.window_ms for chain in self._ledger.kept() if chain.survey_id == asked.id]
        wanted = [start_ms for start_ms in kept if window_ms in (None, start_ms)]
        return sum(self._ledger.withdraw(asked.id, start_ms, now_ms) for start_ms in wanted)

    def tick(self, now_ms: int | None = None) -> Tick:
        """Release what the schedule has opened, send what is due, erase what has expired.

        Call it regularly (`next_ms` returns when); a late call only delays reports. An exhausted budget or an
        unreachable broker does not raise: the log and the result show it.
        """
        now_ms = self._clock() if now_ms is None else now_ms
        self._ticked_ms, released, refused = now_ms, 0, list[str]()
        running = self.surveys.keys() - self._outbox.without_expired(self.surveys.values(), now_ms)
        kept = [chain for chain in self._ledger.kept() if chain.survey_id in running]
        for chains in drawn_together(chain for chain in kept if now_ms <= chain.expires_ms):
            try:
                with self._ledger.transaction():
                    reports, reasons = self._release_together(chains, now_ms)
            except BudgetError as error:
                reports, reasons = 0, [str(error)]
            released += reports
            refused += reasons
            for reason in reasons:
                self._warn_once(reason)
        sent = self._flush(now_ms)
        self._ledger.erase_expired(now_ms)
        self._values.keep(self.surveys, now_ms)
        return Tick(released, sent, len(self._outbox), tuple(refused))

    def release_next(
        self, survey: Survey | str, *, window_ms: int | None = None, now_ms: int | None = None
    ) -> StoredChain | None:
        """Release one level more of a survey whose levels are released on demand, because the person says so.

        It concerns the newest window with a level left, or the one that starts at window_ms, and is sent by `tick`.
        Returns the chain, None if no level is left that the person allows. Decide by anything but the answers:
        they are not shown for that reason, and estimates would be biased.

        Raises:
            ReleaseError: the survey's levels open by the clock, or the window has not come so far.
            BudgetError: it cannot be paid; nothing was released.
        """
        asked = self._known(survey)
        now_ms = self._clock() if now_ms is None else now_ms
        if not asked.on_demand:
            raise ReleaseError(by_clock(asked.id))
        with self._ledger.transaction():
            chains = [chain for chain in self._ledger.kept() if chain.survey_id == asked.id and now_ms < asked.stops_ms]
            chains = [chain for chain in chains if window_ms in (None, chain.window_ms) and now_ms <= chain.expires_ms]
            chains = [self._whole(asked, chain) for chain in chains]
            chains = [chain for chain in chains if chain.highest < self._cap(asked, chain.epsilons)]
            if not chains:
                return None
            chain = chains[-1]
            opens_ms = chain.drawn_ms if chain.highest < 0 else asked.opening_ms(chain.window_ms, chain.highest + 1)
            if now_ms < opens_ms:
                raise ReleaseError(f"{asked.id}, window {chain.window_ms}: no level is released before {opens_ms}")
            if self._has_room(chain.copies):
                self._release(asked, chain, chain.highest + 1, now_ms)
            return self._ledger.chain(asked.id, chain.window_ms)

    def next_ms(self) -> int | None:
        """Return when tick has something to do next, None if nothing is foreseen."""
        retry_ms = self._sender.retry_ms
        ready_ms = self._outbox.next_ready_ms() if retry_ms is None else retry_ms
        kept = [(self.surveys.get(chain.survey_id), chain) for chain in self._ledger.kept()]
        chains = [(known, chain, self._cap(known, chain.epsilons)) for known, chain in kept if known is not None]
        accounts = self._ledger.accounts()
        unlocks_ms = lambda survey, now_ms: self._budget.next_unlock_ms(survey, accounts, now_ms)  # noqa: E731
        return wakes_ms(chains, ready_ms, self._ticked_ms, unlocks_ms, self.bulletins.rung)

    def _known(self, survey: Survey | str) -> Survey:
        wanted = survey.id if isinstance(survey, Survey) else survey
        for known in self.surveys.values():
            if wanted in (*known.ids, known.name):
                return known
        raise KeyError(f"this device does not take part in {wanted!r}; pass the survey to Device(surveys=...)")

    def _takes_part(self, survey: Survey) -> bool:
        """Tell whether the person's cap lets this device answer; says so once in the log where it does not."""
        if reason := kept_out(survey, self.caps.get(survey.name, math.inf)):
            self._warn_once(reason)
        return not reason

    def _agreed(self, survey: Survey, starts: Sequence[int]) -> list[int]:
        """Return the windows that may be answered: none without consent, none that was answered before it ended."""
        if not self._ledger.consent:
            self._warn_once("nothing is answered: the person's consent is withdrawn")
            return []
        wiped_ms = self._ledger.wiped_ms(survey.id)
        return [start for start in starts if wiped_ms is None or start > wiped_ms]

    def _chain_for(self, survey: Survey, window_ms: int, value: Any, now_ms: int, room: bool) -> StoredChain:
        """Return the chain of a window, drawing it if there is none, inside the caller's transaction.

        Without `room` in the outbox its first answer is released later, by `tick`.
        """
        stored = self._ledger.chain(survey.id, window_ms)
        if stored is not None:
            return stored
        if self._cap(survey, survey.mechanism.epsilons) < 0:
            raise BudgetError(
                f"{survey.id}: the first rung costs {survey.mechanism.epsilons[0]:.6g} per window and the person "
                f"allows {self.caps[survey.name]:.6g}; nothing was released; raise the cap or remove the survey"
            )
        chain = (
            standing_chain(self._ledger, survey, window_ms, value, now_ms, self._draw)
            if survey.standing
            else self._draw(survey, window_ms, value, now_ms)
        )
        self._ledger.add(chain)
        if survey.withdrawable:
            self._ledger.keep_withdrawals(withdrawals(survey, chain, self._tokens(survey, chain), self._bits))
        if room:
            self._release(survey, chain, 0, now_ms)
        return self._ledger.chain(survey.id, window_ms) or chain

    def _draw(self, survey: Survey, window_ms: int, value: Any, now_ms: int) -> StoredChain:
        return drawn_chain(survey, window_ms, value, now_ms, self._bits, self._seal)

    def _flush(self, now_ms: int) -> int:
        return self._sender.flush(now_ms)
