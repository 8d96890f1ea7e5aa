"""The always-valid bounds that alert rules read: right at all looks at a window together, except with the rule's alpha.

Which construction serves a rule (docs/always-valid.md has both) follows from what the survey assumes about rungs:

* a single rung: the likelihood e-process, a function of the tally alone; nothing is stored.
* `any`, or the method `stratified`: checkpoints, whose state is replaced by compare-and-set, so that no two workers
  spend one alpha.
* `independent`: both, each with half of alpha. A rule reads the one that fits the estimate: the e-process, or the
  checkpoints where the estimate is stratified since the rungs disagree or cannot be compared yet. That choice depends
  on the answers, so it is only safe because both hold together, at all looks, except with alpha.
"""

from __future__ import annotations

import logging
import math
from collections.abc import Callable, Sequence
from functools import partial
from typing import cast

import msgspec
import numpy as np

from estimators.estimates import Population
from estimators.estimation.registry import estimator_of
from estimators.intervals.always_valid import YesNo, confidence_sequence
from estimators.intervals.checkpoints import Checkpoint, advance, bounds_now, checkpoint_alpha
from estimators.tally import Tally
from producers.survey.alert_ranges import bound_parts, value_ranges
from producers.survey.alerts import AlertRule
from producers.survey.survey import Survey
from streams.store.contract import SmallStates
from streams.store.shape import Shape
from streams.windows.record import AlertBound

logger = logging.getLogger(__name__)

STATE = "checkpoints"


class _Stored(msgspec.Struct, frozen=True, array_like=True):
    """The checkpoint of one rule; a rule that was changed in the survey file is another rule and starts again."""

    rule: tuple[str, str, float, float]
    number: int
    users: int
    information: float | None
    """None: without bound, as answers without noise are."""
    lower: float
    upper: float


def alert_bounds(
    survey: Survey, window_ms: int, tally: Tally, method: str, stored: SmallStates, *, share: float = 1.0
) -> list[AlertBound]:
    """Return the bound of every rule: a lower one for `above`, an upper one for `below`; None where there is none.

    Args:
        survey: its rules are asked.
        window_ms: start of the window.
        tally: its counts.
        method: how the estimate of this moment was made.
        stored: where checkpoints are kept.
        share: the part of the false alarms that bounds at every look may make, see `streams.windows.withdrawals`.

    Raises:
        StoreUnavailableError: the store did not answer.
    """
    rules = survey.alerts
    if not rules:
        return []
    ranges, questions = value_ranges(survey), estimator_of(survey.mechanism).yes_no(tally)
    if ranges is None or questions is None:
        return [_bound(rule, None) for rule in rules]
    parts = bound_parts(survey)
    checked: list[float] = []
    if parts.checkpoints:
        checked = _checkpoints(survey, window_ms, questions, ranges, parts.checkpoints, stored)
    stratified = checked and (method == "stratified" or not parts.e_process)
    # A checkpoint is one look, at answers of this moment; the e-process is a look at every moment.
    part = parts.e_process * share
    shares = checked if stratified else _e_process(survey, questions, part)
    bounds = []
    for rule, share in zip(rules, shares, strict=True):
        low, high = ranges[survey.mechanism.labels.index(rule.value)]
        bounds.append(_bound(rule, low + (high - low) * share))
    return bounds


def _bound(rule: AlertRule, bound: float | None) -> AlertBound:
    return AlertBound(rule.value, rule.side, rule.threshold, rule.alpha, bound)


def _e_process(survey: Survey, questions: YesNo, part: float) -> list[float]:
    found = np.empty(len(survey.alerts))
    kinds = sorted({(rule.side, rule.alpha) for rule in survey.alerts})
    for side, alpha in kinds:
        chosen = [i for i, rule in enumerate(survey.alerts) if (rule.side, rule.alpha) == (side, alpha)]
        places = np.array([survey.mechanism.labels.index(survey.alerts[i].value) for i in chosen])
        found[chosen] = confidence_sequence(questions.values_at(places), alpha * part, side=side)
    return [float(bound) for bound in found]


def _checkpoints(
    survey: Survey,
    window_ms: int,
    questions: YesNo,
    ranges: Sequence[tuple[float, float]],
    part: float,
    stored: SmallStates,
) -> list[float]:
    """Take the checkpoints that are due, store them, and return the bound of every rule at this moment."""
    raw = stored.get(survey.id, STATE, window_ms)
    states = _decode(raw, survey.alerts, part)
    tallies = [questions.values_at(np.array([survey.mechanism.labels.index(r.value)])) for r in survey.alerts]
    law = estimator_of(survey.mechanism).answer_law(cast(Population, survey.population))
    due = []
    for rule, state, tally in zip(survey.alerts, states, tallies, strict=True):
        low, high = ranges[survey.mechanism.labels.index(rule.value)]
        # The clock wants a share inside (0, 1); a threshold elsewhere can never be passed and gets the middle.
        threshold = (rule.threshold - low) / (high - low) if low < rule.threshold < high else 0.5
        spend = _spending(rule.alpha * part)
        due.append(advance(state, tally, threshold=threshold, alpha_at=spend, population=law))
    if any(new is not old for new, old in zip(due, states, strict=True)):
        new = _encode(due, survey.alerts, part)
        if stored.swap(survey.id, STATE, window_ms, raw, new, Shape.of(survey).expires_ms(window_ms)):
            states = due
        else:
            logger.info("%s, window %d: another worker stored this checkpoint; using that one", survey.id, window_ms)
            states = _decode(stored.get(survey.id, STATE, window_ms), survey.alerts, part)
    shares = []
    for rule, state, tally in zip(survey.alerts, states, tallies, strict=True):
        users = int(tally.users[tally.truth[:, 0] != tally.lie[:, 0], 0].sum())
        lower, upper = bounds_now(state, users)
        shares.append(float(lower[0] if rule.side == "above" else upper[0]))
    return shares


def _spending(alpha: float) -> Callable[[int], float]:
    return partial(checkpoint_alpha, alpha)


def _name(rule: AlertRule, part: float) -> tuple[str, str, float, float]:
    return rule.value, rule.side, rule.threshold, rule.alpha * part


def _encode(states: Sequence[Checkpoint], rules: Sequence[AlertRule], part: float) -> bytes:
    rows = [
        _Stored(
            _name(rule, part),
            state.number,
            state.users,
            state.information if math.isfinite(state.information) else None,
            state.lower[0],
            state.upper[0],
        )
        for state, rule in zip(states, rules, strict=True)
        if state.number
    ]
    return msgspec.json.encode(rows)


def _decode(raw: bytes, rules: Sequence[AlertRule], part: float) -> list[Checkpoint]:
    try:
        rows = {row.rule: row for row in msgspec.json.decode(raw, type=list[_Stored])} if raw else {}
    except msgspec.MsgspecError as error:
        logger.warning("stored checkpoints cannot be read and start again: %s", error)
        rows = {}
    return [_checkpoint(rows.get(_name(rule, part))) for rule in rules]


def _checkpoint(row: _Stored | None) -> Checkpoint:
    if row is None:
        return Checkpoint.beginning(1)
    information = math.inf if row.information is None else row.information
    return Checkpoint(row.number, row.users, information, (row.lower,), (row.upper,))
