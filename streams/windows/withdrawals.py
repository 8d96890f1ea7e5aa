"""Withdrawn answers: they are on a rung of their own behind the last one, and nothing is estimated from them.

Bounds that hold at every look are made for windows that only gain answers. A withdrawal takes one out; between two of
them the bounds hold as ever, whatever the tally was at the first, if nobody withdraws because of a value or an answer.
So the errors that they may make are shared out to the stretches between withdrawals: see `false_alarm_share`.
"""

from __future__ import annotations

from typing import Final, NamedTuple

from estimators.tally import Tally
from producers.survey.survey import Survey

_WITHOUT: Final = 0.8
"""Share of the false alarms for windows from which nothing was withdrawn. More: narrower bounds there, and wider ones
after the first withdrawal."""


class Counted(NamedTuple):
    """The answers that count, and how many tokens have withdrawn theirs; None where a survey has no withdrawals."""

    tally: Tally
    withdrawn: int | None

    @property
    def note(self) -> tuple[str, ...]:
        """What is said beside an estimate."""
        if not self.withdrawn:
            return ()
        verbs = ("answer was", "is") if self.withdrawn == 1 else ("answers were", "are")
        text = f"{self.withdrawn:,} {verbs[0]} withdrawn and {verbs[1]} not counted"
        return (f"{text}; if who withdraws depends on the value, the estimate is biased, and nothing shows it",)


def counted(survey: Survey, stored: Tally) -> Counted:
    """Take the withdrawn ones out of a stored tally."""
    if not survey.withdrawable:
        return Counted(stored, None)
    rungs = survey.mechanism.rungs
    return Counted(Tally(stored.counts[:rungs], stored.users[:rungs]), int(stored.users[rungs].sum()))


def false_alarm_share(withdrawn: int | None) -> float:
    """Return the share of alpha for bounds after so many withdrawals; over all numbers the shares sum to 1.

    >>> false_alarm_share(None), false_alarm_share(0)
    (1.0, 0.8)
    >>> round(sum(map(false_alarm_share, range(100_000))), 4)
    1.0
    """
    if withdrawn is None:
        return 1.0
    return _WITHOUT if withdrawn == 0 else (1 - _WITHOUT) / (withdrawn * (withdrawn + 1))
