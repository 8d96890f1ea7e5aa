"""Who may spend how much of a person's budget: unlocking over time, reserves, and fair shares between surveys.

A release of a survey is paid if all of these hold:

1. what the device has spent on all surveys stays within the survey's lifetime, or what it has spent on this survey
   within the survey's reserve;
2. what it has spent on this survey stays within what has unlocked for it;
3. it stays within the survey's share of what the person's own budget has unlocked. Shares are fair: no survey gets
   less because another one asks more often.

All of them depend on the schedule, on settings and on earlier spending, never on a value or an answer.
"""

from __future__ import annotations

import datetime
import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction

from producers.device.budget import UNBOUNDED, as_epsilon, limit_units
from producers.survey.survey import Survey
from producers.survey.unlocking import Unlock


@dataclass(frozen=True)
class Account:
    """What one survey has spent on this device, and when it first asked."""

    spent_units: int = 0
    first_ms: int | None = None


@dataclass(frozen=True)
class Claim:
    """A survey that shares a budget: it has spent `low`, never needs more than `high`, and counts with its weight."""

    low: int
    high: int
    weight: Fraction


@dataclass(frozen=True)
class Allowance:
    """What a survey may still spend: units, None if there is no bound; and the sentence about the rule that decides."""

    units: int | None
    because: str

    def covers(self, increment: int) -> bool:
        """Tell whether so many more units may be spent."""
        return self.units is None or (increment != UNBOUNDED and increment <= self.units)


def fair_shares(pot: int, claims: Sequence[Claim]) -> list[int]:
    """Divide a budget: everybody gets the same per weight, but no less than was spent and no more than is needed.

    What one does not need goes to the others (max-min fairness). Shares never add up to more than the pot, unless more
    was spent already: then nobody gets anything more.

    >>> fair_shares(90, [Claim(0, 10, Fraction(1)), Claim(0, 99, Fraction(1)), Claim(50, 99, Fraction(1))])
    [10, 30, 50]
    """

    def at(level: int) -> list[int]:
        return [max(claim.low, min(claim.high, math.floor(level * claim.weight))) for claim in claims]

    lowest, highest = 0, max((math.ceil(claim.high / claim.weight) for claim in claims if claim.weight), default=0)
    if sum(at(highest)) <= pot:
        return at(highest)
    while highest - lowest > 1:
        level = (lowest + highest) // 2
        lowest, highest = (level, highest) if sum(at(level)) <= pot else (lowest, level)
    return at(lowest)


class Budget:
    """The person's budget and the surveys that share it.

    Args:
        lifetime_epsilon: the person's own bound on everything.
        unlock: how much of it may be spent over time; None: all of it at once.
        shares: per survey name how much it counts when the budget is divided; 1 where nothing is given.
    """

    def __init__(
        self, surveys: Iterable[Survey], lifetime_epsilon: float, unlock: Unlock | None, shares: Mapping[str, float]
    ) -> None:
        self.surveys = tuple(surveys)
        self.lifetime_epsilon, self.unlock = lifetime_epsilon, unlock
        if bad := {name: share for name, share in shares.items() if not 0.0 <= share < math.inf}:
            raise ValueError(f"a share is a number, not negative; got {bad}")
        self._shares = {name: Fraction(share) for name, share in shares.items()}

    def unlocks(self, survey: Survey) -> bool:
        """Tell whether what a survey may spend depends on the time."""
        return self.unlock is not None or survey.unlock is not None

    def allowance(self, survey: Survey, spent_units: int, accounts: Mapping[str, Account], now_ms: int) -> Allowance:
        """Return what a survey may still spend, by the strictest rule."""
        own = accounts.get(survey.name, Account())
        rules = [self._lifetime(survey, spent_units, own)]
        if survey.unlock is not None:
            rules.append(_unlocked(survey.unlock, own, now_ms))
        rules += self._share(survey, spent_units, accounts, now_ms)
        return min(rules, key=lambda rule: math.inf if rule.units is None else rule.units)

    def next_unlock_ms(self, survey: Survey, accounts: Mapping[str, Account], now_ms: int) -> int | None:
        """Return when more unlocks for a survey; None if nothing does."""
        own, moments = accounts.get(survey.name, Account()).first_ms, []
        if survey.unlock is not None and own is not None:
            moments.append(survey.unlock.next_ms(own, now_ms))
        began_ms = _began_ms(accounts)
        if self.unlock is not None and began_ms is not None:
            moments.append(self.unlock.next_ms(began_ms, now_ms))
        return min(moments, default=None)

    def _lifetime(self, survey: Survey, spent_units: int, own: Account) -> Allowance:
        limit = limit_units(survey.lifetime_epsilon)
        if limit is None:
            return Allowance(None, "")
        left, reserved = limit - spent_units, (limit_units(survey.reserve_epsilon) or 0) - own.spent_units
        if survey.reserve_epsilon and reserved > left:
            return _bounded(reserved, f"of {survey.reserve_epsilon:.6g} that is reserved for this survey is left")
        return _bounded(left, f"of {survey.lifetime_epsilon:.6g} is left on this device")

    def _share(
        self, survey: Survey, spent_units: int, accounts: Mapping[str, Account], now_ms: int
    ) -> tuple[Allowance, ...]:
        limit = limit_units(self.lifetime_epsilon)
        pot, about = limit, f"{self.lifetime_epsilon:.6g}"
        if self.unlock is not None:
            periods = self.unlock.periods(_began_ms(accounts), now_ms)
            unlocked = (limit_units(self.unlock.epsilon) or 0) * periods
            if limit is None or unlocked < limit:
                pot, about = unlocked, f"{as_epsilon(unlocked):.6g} that the person's budget has unlocked"
        if pot is None:
            return ()
        names = sorted({known.name for known in self.surveys})
        gone = spent_units - sum(accounts.get(name, Account()).spent_units for name in names)
        claims = [self._claim(name, pot, accounts.get(name, Account()), now_ms) for name in names]
        shares = dict(zip(names, fair_shares(pot - gone, claims), strict=True))
        own = accounts.get(survey.name, Account())
        left = min(shares[survey.name] - own.spent_units, pot - spent_units)
        if len(names) == 1:
            return (_bounded(left, f"of {about} is left on this device"),)
        share = f"of this survey's share of {as_epsilon(shares[survey.name]):.6g} is left on this device"
        return (_bounded(left, f"{share}, which {len(names)} surveys share in {about}"),)

    def _claim(self, name: str, pot: int, own: Account, now_ms: int) -> Claim:
        """Return what a survey may need at most: nothing more once it is over and its last window has expired."""
        needs = 0
        for known in self.surveys:
            ended_ms = None if known.end_ms is None else known.end_ms + known.windows.size_ms + known.retention_ms
            if known.name == name and (ended_ms is None or now_ms <= ended_ms):
                limit = limit_units(known.lifetime_epsilon)
                needs = max(needs, pot if limit is None else min(limit, pot))
        return Claim(own.spent_units, max(own.spent_units, needs), self._shares.get(name, Fraction(1)))


def _unlocked(unlock: Unlock, own: Account, now_ms: int) -> Allowance:
    unlocked = (limit_units(unlock.epsilon) or 0) * unlock.periods(own.first_ms, now_ms)
    more = ""
    if own.first_ms is not None:
        moment = datetime.datetime.fromtimestamp(unlock.next_ms(own.first_ms, now_ms) / 1_000, datetime.UTC)
        more = f", {unlock.epsilon:.6g} more unlocks at {moment:%Y-%m-%d %H:%M:%S} UTC"
    return _bounded(
        unlocked - own.spent_units, f"of {as_epsilon(unlocked):.6g} that has unlocked for this survey is left{more}"
    )


def _began_ms(accounts: Mapping[str, Account]) -> int | None:
    return min((account.first_ms for account in accounts.values() if account.first_ms is not None), default=None)


def _bounded(left: int, because: str) -> Allowance:
    left = max(0, left)
    return Allowance(left, f"{as_epsilon(left):.6g} {because}")
