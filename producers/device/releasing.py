"""Releasing rungs of stored chains: what is open, allowed and paid for, each in the transaction of its caller."""

from __future__ import annotations

import logging
import math
from collections.abc import Mapping, Sequence

from estimators.exact.randomness import SecureBits
from producers.device.accounts import Budget
from producers.device.budget import UNBOUNDED, BudgetError, cost_units
from producers.device.bulletins import Bulletins
from producers.device.continuing import continued_chain, ends_early
from producers.device.encoding import encoded, token_of
from producers.device.ledger import Ledger, StoredChain
from producers.device.outbox import Outbox, OutgoingReport
from producers.device.refusal import beyond_cap, check_budget
from producers.device.sealing import Seal
from producers.device.waking import opening_ms
from producers.survey.survey import Survey

log = logging.getLogger(__name__)


class Releasing:
    """The part of a device that releases what was drawn: marked, charged and encoded at once."""

    def __init__(
        self,
        surveys: Mapping[str, Survey],
        caps: Mapping[str, float],
        ledger: Ledger,
        outbox: Outbox,
        budget: Budget,
        bulletins: Bulletins,
        bits: SecureBits,
        seal: Seal | None,
    ) -> None:
        self.surveys, self.caps, self.bulletins = dict(surveys), dict(caps), bulletins
        self._ledger, self._outbox, self._budget = ledger, outbox, budget
        self._bits, self._seal = bits, seal
        self._warned: set[str] = set()

    def _cap(self, survey: Survey, epsilons: tuple[float, ...]) -> int:
        """Return the highest rung that the person allows, -1 if none."""
        cap = self.caps.get(survey.name, math.inf)
        return sum(epsilon <= cap for epsilon in epsilons[: survey.mechanism.rungs]) - 1

    def _whole(self, survey: Survey, chain: StoredChain) -> StoredChain:
        """Return a chain with the levels that its survey has by now, inside the caller's transaction."""
        if len(chain.epsilons) < survey.mechanism.rungs:
            chain = continued_chain(self._ledger, self._seal, survey, chain, self._bits)
            if reason := ends_early(survey, chain):
                self._warn_once(reason)
        return chain

    def _has_room(self, reports: int) -> bool:
        if self._outbox.has_room(reports):
            return True
        self._warn_once(
            f"the outbox is full ({self._outbox.limit} reports); new rungs wait until the broker acknowledges again"
        )
        return False

    def _release_together(self, chains: Sequence[StoredChain], now_ms: int) -> tuple[int, list[str]]:
        """Release what is open of chains that are answered all or none, or of a single one; see `drawn_together`.

        Returns the number of reports, and why wishes were refused.
        """
        together = len(chains) > 1
        if together and not self._has_room(sum(chain.copies for chain in chains)):
            return 0, []
        done = [
            self._release_open(self.surveys[chain.survey_id], chain.window_ms, now_ms, together) for chain in chains
        ]
        return sum(reports for reports, _ in done), [reason for _, reason in done if reason]

    def _release_open(self, survey: Survey, window_ms: int, now_ms: int, room: bool) -> tuple[int, str]:
        """Release the highest rung that is open and allowed; rungs below it that were never sent are skipped."""
        # Read again inside the transaction: another process of this device may have released it.
        chain = self._ledger.chain(survey.id, window_ms)
        if chain is None or chain.answers is None:
            return 0, ""
        chain = self._whole(survey, chain)
        if survey.on_demand and chain.wished is not None:
            return self._grant(survey, chain, chain.wished, now_ms)
        highest = chain.highest
        for rung in range(self._cap(survey, chain.epsilons), highest, -1):
            opens_ms = opening_ms(survey, chain, rung, self.bulletins.rung)
            if opens_ms is None or opens_ms > now_ms:
                continue
            if not room and not self._has_room(chain.copies):
                return 0, ""
            try:
                return self._release(survey, chain, rung, now_ms), ""
            except BudgetError:
                if rung == highest + 1:
                    raise
        return 0, ""

    def _grant(self, survey: Survey, chain: StoredChain, rung: int, now_ms: int) -> tuple[int, str]:
        """Release a rung that was asked for from outside, or say why not; either way the wish is gone.

        It stays until the rung opens, and while the outbox is full. Inside the caller's transaction.
        """
        if rung >= survey.mechanism.rungs:
            # The chain has levels of a newer file of the survey than the one that is answered now.
            return 0, ""
        if rung > self._cap(survey, chain.epsilons):
            reason = beyond_cap(survey, chain, rung, self.caps[survey.name])
        elif now_ms < survey.opening_ms(chain.window_ms, rung) or not self._has_room(chain.copies):
            return 0, ""
        else:
            try:
                return self._release(survey, chain, rung, now_ms), ""
            except BudgetError as error:
                # It comes before any change.
                reason = str(error)
        self._ledger.wish(chain, None)
        return 0, reason

    def _release(self, survey: Survey, chain: StoredChain, rung: int, now_ms: int) -> int:
        """Charge for a rung and fill the outbox, inside the caller's transaction; returns the number of reports."""
        cost = cost_units(self._price(survey, chain, rung))
        unbounded = cost == UNBOUNDED and not any(
            math.isinf(self._price(survey, chain, before)) for before in chain.released
        )
        increment = UNBOUNDED if unbounded else max(cost - self._ledger.paid_units(chain), 0)
        # What was paid for before is released even if other surveys have used up the budget since.
        if increment != 0:
            check_budget(self._ledger, self._budget, survey, chain, rung, increment, now_ms)
        self._ledger.release(chain, rung, max(increment, 0), unbounded=unbounded, now_ms=now_ms)
        self._outbox.put(self._encoded(survey, chain, rung, now_ms))
        return chain.copies

    def _price(self, survey: Survey, chain: StoredChain, rung: int) -> float:
        """Return what a device must have paid to release a rung.

        Where the survey relies on rungs that depend on nothing but the schedule, the first answer pays for all: a later
        expense cannot stop the device at a lower rung.
        """
        return chain.epsilons[-1 if survey.rungs == "independent" else rung]

    def _encoded(self, survey: Survey, chain: StoredChain, rung: int, now_ms: int) -> list[OutgoingReport]:
        return encoded(survey, chain, rung, now_ms, self._tokens(survey, chain))

    def _tokens(self, survey: Survey, chain: StoredChain) -> list[bytes]:
        return [self._token(survey, chain.window_ms, copy) for copy in range(chain.copies)]

    def _token(self, survey: Survey, window_ms: int, copy: int) -> bytes:
        return token_of(self._ledger.secret, survey, window_ms, copy)

    def _warn_once(self, message: str) -> None:
        if message not in self._warned:
            self._warned = {message} if len(self._warned) >= 1000 else self._warned | {message}
            log.warning("%s", message)
