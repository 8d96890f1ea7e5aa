"""EWRR_n and the three-element responses of Ma & Wang, with their best parameters at every level."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Mapping, Sequence
from fractions import Fraction
from typing import Any, ClassVar

import numpy as np

from estimators.channels.dense_chain import build_dense
from estimators.channels.rows import loss_of_rows
from estimators.mechanism import Guarantee, ParameterError
from estimators.mechanisms.grr import GRR
from estimators.mechanisms.small_channel import (
    Exact,
    SmallChannel,
    check_levels,
    check_values,
    growth,
    mixed_levels,
    read_probability,
    written,
)
from estimators.parameters import refuse_unknown

_GUARANTEE = Guarantee(
    "All answers of one window together reveal no more than its sharpest one: any two values explain them equally "
    "well up to a factor e^epsilon.",
    "Holds against a collector who sees every answer of the device and knows everything about everybody else.",
)
_MEANING = "nothing, then the two signs or kinds"


class EWRR(GRR):
    """Tell the value with probability e^eps / (e^eps + n - 1), each other value with equal weight."""

    name = "ewrr"
    source = "Ma & Wang, Eq. 22 to 27 and 34 to 38 (equal-weights randomized response)"
    corrections: ClassVar[tuple[str, ...]] = (
        "Eq. 27 is right for two values only; the variance here is [1-p+(np-1)pi][n-2+p-(np-1)pi]/((np-1)^2 N).",
        "The linear inverse is unbiased; the maximum of the likelihood is not, once it meets the edge of the simplex.",
    )
    ladders: ClassVar[str] = "Any increasing ladder."
    guarantee = _GUARANTEE

    @classmethod
    def build(cls, values: Sequence[str], ladder: Sequence[float], parameters: Mapping[str, Any]) -> EWRR:
        """Build from values and ladder; there are no further parameters."""
        refuse_unknown(parameters, (), cls.name)
        return cls(values, check_levels(ladder))


class ThreeElement(SmallChannel):
    """Three values, a channel with two or three probabilities; without them the best ones at every level."""

    guarantee = _GUARANTEE
    ladders: ClassVar[str] = (
        "Any increasing ladder: with the best parameters level by level, or with given ones mixed with pure noise."
    )
    noise: ClassVar[tuple[Fraction, ...]]
    """Answers of the lower rungs when the parameters of the top rung are given; it keeps the channel in its family."""

    def __init__(self, labels: Sequence[str], ladder: Sequence[float], **given: float) -> None:
        if given:
            levels = mixed_levels(self.rows(**{name: written(p) for name, p in given.items()}), self.noise, ladder)
        else:
            levels = [self.best(growth(level)) for level in ladder]
        super().__init__(labels, ladder, build_dense(ladder, levels))

    @staticmethod
    @abstractmethod
    def rows(**given: Fraction) -> Exact:
        """Return the channel with these parameters."""

    @classmethod
    @abstractmethod
    def best(cls, factor: Fraction) -> Exact:
        """Return the channel with the best parameters for probabilities that differ by at most `factor`."""

    @classmethod
    def build(cls, values: Sequence[str], ladder: Sequence[float], parameters: Mapping[str, Any]) -> ThreeElement:
        """Build from three values, a ladder, and either all parameters of the top rung or none."""
        names = tuple(cls.parameters)
        refuse_unknown(parameters, names, cls.name)
        check_values(cls.name, values, 3, _MEANING)
        levels = check_levels(ladder)
        given = {name: read_probability(parameters, name) for name in names if name in parameters}
        if not given:
            return cls(values, levels)
        if len(given) < len(names):
            missing = next(name for name in names if name not in given)
            raise ParameterError(missing, None, f"give all of {', '.join(names)}, or none for the best ones")
        rows = cls.rows(**{name: written(p) for name, p in given.items()})
        _check_rows(cls.name, rows, levels[-1], given)
        return cls(values, levels, **given)


def _check_rows(name: str, rows: Exact, epsilon: float, given: Mapping[str, float]) -> None:
    matrix = [[float(p) for p in row] for row in rows]
    if np.linalg.svd(np.array(matrix), compute_uv=False)[-1] < 1e-9:
        raise ParameterError("mechanism", dict(given), f"with these probabilities {name} cannot tell its values apart")
    loss = loss_of_rows(matrix)
    if loss > epsilon * (1.0 + 1e-12):
        raise ParameterError(
            "mechanism", dict(given), f"these probabilities cost {loss:.6g}, more than the highest level {epsilon:g}"
        )


def dagger_exact(p1: Fraction, p2: Fraction) -> Exact:
    """Return RR3-dagger in exact numbers."""
    a, b = (1 - p1) / 2, (1 - p2) / 2
    return ((p1, a, a), (b, p2, b), (b, b, p2))


def club_exact(p1: Fraction, p2: Fraction, q: Fraction) -> Exact:
    """Return RR3-club in exact numbers."""
    a, b = (1 - p1) / 2, 1 - p2
    return ((p1, a, a), (b, p2 * q, p2 * (1 - q)), (b, p2 * (1 - q), p2 * q))


def _double_dagger(p1: Fraction, p2: Fraction) -> Exact:
    return club_exact(p1, p1, p2)


class Dagger(ThreeElement):
    """RR3-dagger: "nothing" is kept with p1, each sign with p2; false answers are uniform."""

    name = "rr3_dagger"
    source = "Ma & Wang, Eq. 28, 29 and 39 to 42 (RR3-dagger)"
    corrections: ClassVar[tuple[str, ...]] = (
        "Eq. 28 has p1 - 1 where p1 belongs, so its second share is off by a constant.",
        (
            "The printed region of private parameters contains points that are not; the best ones, when all shares are "
            "wanted, are p1 = p2 = e^eps/(e^eps + 2), that is EWRR_3."
        ),
    )
    parameters: ClassVar[Mapping[str, str]] = {
        "p1": "probability of keeping the first value on the top rung; default: the best",
        "p2": "probability of keeping either other value on the top rung; default: the best",
    }
    noise = (Fraction(1, 3), Fraction(1, 3), Fraction(1, 3))
    rows: ClassVar[Callable[..., Exact]] = staticmethod(dagger_exact)

    @classmethod
    def best(cls, factor: Fraction) -> Exact:
        """Return EWRR_3."""
        p = factor / (factor + 2)
        return dagger_exact(p, p)


class DoubleDagger(ThreeElement):
    """RR3-double-dagger: whether there is a sign at all is kept with p1, the sign with p2."""

    name = "rr3_ddagger"
    source = "Ma & Wang, Eq. 30 and 31 (RR3-double-dagger)"
    corrections: ClassVar[tuple[str, ...]] = (
        "Eq. 30 lacks two factors 1/2 and has 2 p1 p2 - 1 for 2 p1 (2 p2 - 1).",
        "Best parameters: p1 = (e^eps + 1)/(e^eps + 3), p2 = e^eps/(e^eps + 1).",
    )
    parameters: ClassVar[Mapping[str, str]] = {
        "p1": "probability of keeping nothing / something on the top rung; default: the best",
        "p2": "probability of keeping the sign on the top rung; default: the best",
    }
    noise = (Fraction(1, 2), Fraction(1, 4), Fraction(1, 4))
    rows: ClassVar[Callable[..., Exact]] = staticmethod(_double_dagger)

    @classmethod
    def best(cls, factor: Fraction) -> Exact:
        """Return the channel that is best for the mean sign."""
        return _double_dagger((factor + 1) / (factor + 3), factor / (factor + 1))


class Club(ThreeElement):
    """RR3-club: "nothing" is kept with p1; a sign stays a sign with p2, and then the same sign with q."""

    name = "rr3_club"
    source = "Ma & Wang, Eq. 32 and 33 (RR3-club)"
    corrections: ClassVar[tuple[str, ...]] = (
        "The covariance between answer counts, which the paper's rule of section 3.2 drops, is kept.",
        (
            "Best parameters for the share, when the sign is as sharp as the level allows: "
            "p1 = e^eps/(e^eps + 2), p2 = (e^eps + 1)/(e^eps + 2), q = e^eps/(e^eps + 1); this is EWRR_3."
        ),
    )
    parameters: ClassVar[Mapping[str, str]] = {
        "p1": "probability of keeping nothing on the top rung; default: the best",
        "p2": "probability that something stays something on the top rung; default: the best",
        "q": "probability of keeping the sign on the top rung; default: the best",
    }
    noise = (Fraction(1, 3), Fraction(1, 3), Fraction(1, 3))
    rows: ClassVar[Callable[..., Exact]] = staticmethod(club_exact)

    @classmethod
    def best(cls, factor: Fraction) -> Exact:
        """Return the channel at which all privacy constraints bind."""
        return club_exact(factor / (factor + 2), (factor + 1) / (factor + 2), factor / (factor + 1))
