"""Release schedules: which levels a survey releases, and when each opens after the end of a window."""

from __future__ import annotations

import base64
import binascii
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import pairwise

from producers.survey.durations import parse_duration
from producers.survey.file import (
    MAX_LEVEL,
    MAX_RUNGS,
    Geometric,
    Linear,
    Listed,
    NoisySampling,
    OnDemand,
    Release,
    WhileWide,
)


class ScheduleError(ValueError):
    """An impossible schedule: `field` inside the table, its value, the remedy."""

    def __init__(self, field: str, value: object, remedy: str) -> None:
        super().__init__(f"{field}: {remedy}; got {value!r}")
        self.field, self.value, self.remedy = field, value, remedy


@dataclass(frozen=True)
class Stop:
    """A rule that opens the next level only while a band is wider than `width`; `key` signs what it has opened."""

    width: float
    key: str


@dataclass(frozen=True)
class Schedule:
    """Levels and their opening times in ms after the window's end; opens_ms[0] is 0: when the value is taken.

    jitter_ms is None where the file does not say it; the default depends on the window.
    """

    ladder: tuple[float, ...]
    opens_ms: tuple[int, ...]
    jitter_ms: int | None
    on_demand: bool = False
    stop: Stop | None = None


SampledLevels = Callable[[float, float, int], Sequence[float]]
"""The levels after 1, 2, ... noisy samples, from the levels of permanent answer and sample and the number of samples:
they depend on the mechanism."""


def schedule_of(release: Release, sampled_levels: SampledLevels) -> Schedule:
    """Turn the release table of a survey file into levels and opening times; ScheduleError names the wrong field."""
    jitter_ms = None if release.jitter is None else _duration("jitter", release.jitter)
    if isinstance(release, OnDemand):
        ladder, after_ms = _levels("ladder", release.ladder), _duration("after", release.after)
        if len(ladder) == 1:
            raise ScheduleError("ladder", release.ladder, "one level leaves nothing to release on demand; add another")
        return Schedule(ladder, (0, *(after_ms for _ in ladder[1:])), jitter_ms, on_demand=True)
    if isinstance(release, WhileWide):
        return Schedule(
            _levels("ladder", release.ladder),
            _listed_opens(release),
            jitter_ms,
            stop=Stop(_width(release), _key(release)),
        )
    if isinstance(release, Listed):
        return Schedule(_levels("ladder", release.ladder), _listed_opens(release), jitter_ms)
    steps = release.rounds + len(release.then) if isinstance(release, NoisySampling) else release.steps
    field = "rounds" if isinstance(release, NoisySampling) else "steps"
    if not 1 <= steps <= MAX_RUNGS:
        raise ScheduleError(field, steps, f"a ladder has 1 to {MAX_RUNGS} rungs; choose a number in that range")
    every_ms = _duration("every", release.every)
    if steps > 1 and every_ms == 0:
        raise ScheduleError("every", release.every, "rungs that open together are one rung; give a time above 0")
    if isinstance(release, NoisySampling):
        ladder = _noisy_ladder(release, sampled_levels)
    elif isinstance(release, Linear):
        ladder = _linear_ladder(release)
    else:
        ladder = _geometric_ladder(release)
    return Schedule(ladder, tuple(step * every_ms for step in range(steps)), jitter_ms)


def _width(release: WhileWide) -> float:
    if len(release.ladder) == 1:
        raise ScheduleError("ladder", release.ladder, "one level leaves nothing to open; add another, or use listed")
    if not 0.0 < release.width < math.inf:
        raise ScheduleError("width", release.width, "must be above 0: a band of shares, such as 0.04, or of a mean")
    return release.width


def _key(release: WhileWide) -> str:
    try:
        raw = base64.b64decode(release.key, validate=True)
    except binascii.Error:
        raw = b""
    if len(raw) != 32:
        raise ScheduleError(
            "key", release.key, "must be 32 bytes in base64, 44 signs; `thaw bulletin --key FILE` says it"
        )
    return release.key


def _listed_opens(release: Listed | WhileWide) -> tuple[int, ...]:
    if not release.opens and len(release.ladder) == 1:
        return (0,)
    if len(release.opens) != len(release.ladder):
        raise ScheduleError(
            "opens", release.opens, f"give one opening time per level, {len(release.ladder)} in all, the first 0s"
        )
    opens_ms = tuple(_duration(f"opens[{i}]", text) for i, text in enumerate(release.opens))
    if opens_ms[0] != 0:
        raise ScheduleError("opens[0]", release.opens[0], "the first rung opens when the value is taken; write 0s")
    for i, (before, after) in enumerate(pairwise(opens_ms), start=1):
        # Two rungs at one moment are allowed only at the window's end, since rung 0 opens before it.
        if after < before or (after == before and i > 1):
            raise ScheduleError(
                f"opens[{i}]", release.opens[i], "each rung opens later than the one before it; sort them or merge two"
            )
    return opens_ms


def _linear_ladder(release: Linear) -> tuple[float, ...]:
    _level("from", release.first)
    _level("to", release.to)
    if release.steps == 1:
        raise ScheduleError(
            "steps", 1, "a line from one level to another needs two rungs; for one, use kind = 'listed'"
        )
    if release.to <= release.first:
        raise ScheduleError("to", release.to, f"must be above `from` ({release.first:g}); exchange the two")
    width = release.to - release.first
    inner = [release.first + width * step / (release.steps - 1) for step in range(1, release.steps - 1)]
    return (release.first, *inner, release.to)


def _geometric_ladder(release: Geometric) -> tuple[float, ...]:
    _level("from", release.first)
    if (release.to is None) == (release.ratio is None):
        raise ScheduleError("to", release.to, "give either `to` or `ratio`, not both and not neither")
    if release.steps == 1:
        raise ScheduleError("steps", 1, "a geometric ladder needs two rungs; for one, use kind = 'listed'")
    if release.ratio is not None:
        if not 1.0 < release.ratio < math.inf:
            raise ScheduleError("ratio", release.ratio, "must be above 1; for instance 2 doubles every level")
        ladder = tuple(release.first * release.ratio**step for step in range(release.steps))
        if ladder[-1] > MAX_LEVEL:
            raise ScheduleError(
                "ratio",
                release.ratio,
                f"the last level would be {ladder[-1]:.4g}, above {MAX_LEVEL:g}; use a smaller ratio or fewer steps",
            )
        return ladder
    assert release.to is not None
    _level("to", release.to)
    if release.to <= release.first:
        raise ScheduleError("to", release.to, f"must be above `from` ({release.first:g}); exchange the two")
    ratio = release.to / release.first
    inner = [release.first * ratio ** (step / (release.steps - 1)) for step in range(1, release.steps - 1)]
    return (release.first, *inner, release.to)


def _noisy_ladder(release: NoisySampling, sampled_levels: SampledLevels) -> tuple[float, ...]:
    _level("epsilon_permanent", release.epsilon_permanent)
    _level("epsilon_sample", release.epsilon_sample)
    ladder = sampled_levels(release.epsilon_permanent, release.epsilon_sample, release.rounds)
    for rounds, (before, after) in enumerate(pairwise(ladder), start=1):
        if after <= before:
            raise ScheduleError("rounds", release.rounds, f"the curve no longer rises after {rounds}; use that many")
    for i, level in enumerate(release.then):
        _level(f"then[{i}]", level)
        before = release.then[i - 1] if i else ladder[-1]
        if level <= before:
            raise ScheduleError(f"then[{i}]", level, f"must be above the level before it, {before:.6g}; raise it")
    return (*ladder, *release.then)


def _levels(field: str, levels: list[float]) -> tuple[float, ...]:
    if not 1 <= len(levels) <= MAX_RUNGS:
        raise ScheduleError(field, levels, f"a ladder has 1 to {MAX_RUNGS} rungs; list their levels, lowest first")
    for i, level in enumerate(levels):
        _level(f"{field}[{i}]", level)
        if i and level <= levels[i - 1]:
            raise ScheduleError(
                f"{field}[{i}]",
                level,
                f"levels increase, and {levels[i - 1]:g} stands before it; a released answer cannot be made more "
                "private; sort the levels",
            )
    return tuple(levels)


def _level(field: str, level: float) -> None:
    if not 0.0 < level <= MAX_LEVEL:
        hint = "to send no information, remove the rung" if level == 0 else "choose a level in that range"
        raise ScheduleError(field, level, f"epsilon must be in (0, {MAX_LEVEL:g}]; {hint}")


def _duration(field: str, text: str) -> int:
    try:
        return parse_duration(text)
    except ValueError as error:
        raise ScheduleError(field, text, str(error)) from None
