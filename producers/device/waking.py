"""When a device has something to do next: a rung opens, a report may leave, more of a budget unlocks."""

from __future__ import annotations

from collections.abc import Callable, Iterable

from producers.device.ledger import StoredChain
from producers.survey.survey import Survey

Opened = Callable[[str, int], int]
"""The highest rung of a survey's window that a bulletin has opened."""


def opening_ms(survey: Survey, chain: StoredChain, rung: int, opened: Opened) -> int | None:
    """Return when a rung opens; None if it waits for its person, who has not wished it, or for a bulletin."""
    if rung == 0:
        return chain.drawn_ms
    if survey.on_demand and rung != chain.wished:
        return None
    if survey.stop is not None and rung > opened(survey.id, chain.window_ms):
        return None
    return survey.opening_ms(chain.window_ms, rung)


def wakes_ms(
    chains: Iterable[tuple[Survey, StoredChain, int]],
    ready_ms: int | None,
    ticked_ms: int | None,
    unlocks_ms: Callable[[Survey, int], int | None],
    opened: Opened,
) -> int | None:
    """Return when there is something to do next, None if nothing is foreseen.

    Args:
        chains: what can be released, each with its survey and the highest rung that its person allows.
        ready_ms: when the first outgoing report may leave, if there is one.
        ticked_ms: the last tick: what was open then and is not released was refused, for the outbox or for the budget.
        unlocks_ms: when more of a survey's budget unlocks, after a moment.
        opened: what bulletins have opened.
    """
    moments = [] if ready_ms is None else [ready_ms]
    for survey, chain, cap in chains:
        rungs = range(chain.highest + 1, cap + 1)
        opens_ms = [opens for rung in rungs if (opens := opening_ms(survey, chain, rung, opened)) is not None]
        moments += opens_ms
        if ticked_ms is not None and any(opens <= ticked_ms for opens in opens_ms):
            unlocked_ms = unlocks_ms(survey, ticked_ms)
            moments += [] if unlocked_ms is None else [unlocked_ms]
    # An immediate retry would only spin.
    return min((moment for moment in moments if ticked_ms is None or moment > ticked_ms), default=None)
