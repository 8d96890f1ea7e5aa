"""K-randomization of yes-or-no records (Zhilyaev & Zeber): several flipped copies, lost in a crowd."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from estimators.channels import crowd
from estimators.channels.bits import BitBlock, BitChannel, pack
from estimators.estimates import Estimates, Method, Population
from estimators.exact.randomness import Bits
from estimators.exact.rounding import GRID
from estimators.mechanism import Answer, Drawn, Guarantee, Mechanism, ParameterError
from estimators.parameters import at_least, refuse_unknown, whole_number
from estimators.tally import Tally

_MAX_COPIES = 1024


class KRandomization(Mechanism):
    """A record of L bits leaves in k copies, every bit flipped with probability q, each copy under its own token.

    The one level of the ladder is the crowd's: q is chosen so that the total over `least_records` records has a
    likelihood ratio of at most e^level at three standard deviations. What one record pays is `epsilons`, far more.
    """

    name = "k_randomization"
    source = "Zhilyaev & Zeber, Eq. 0.19, 1.1, 1.23, 2.33"
    corrections = (
        (
            "It is not local privacy: the rule bounds the published total within three standard deviations, with a "
            "chance of failure that the paper does not state. It is computed here exactly, and the ledger is charged "
            "k L ln((1-q)/q)."
        ),
        (
            "Eq. 1.12 is an upper bound on 1/R, so the rule 1.23 is necessary, not sufficient: at k = 16 the ratio at "
            "three standard deviations is 2.05, not 2, and failures are three times as likely as at k = 1."
        ),
        (
            "Signs in 1.20 and 1.21; the L-th root in 2.30; the weight in 2.1.2 has no 1/N; the deviation of the first "
            "example is 6.0, not 5.6."
        ),
        "More copies do not help like the root of k: the deviation never falls below 3 / level.",
    )
    ladders = "One level only: more copies would tell more, but one plain answer tells it far better."
    parameters = {  # noqa: RUF012  # a ClassVar of the base class
        "least_records": "number of honest records that every published window has for certain, 2 or more",
        "copies": "copies k of each record, 1 to 1024; default 1",
    }
    estimators = ("pooled",)
    guarantee = Guarantee(
        "The total of a window with enough honest records hardly depends on any one of them, but for the chance delta; "
        "whoever sees a record's own copies learns up to k L ln((1-q)/q) about it.",
        "Holds only against someone who sees totals and no single copies, if copies cannot be linked and every window "
        "has the promised number of honest records; a collector who keeps the copies of a device sees through it.",
        local=False,
    )

    def __init__(self, labels: Sequence[str], level: float, *, least_records: int, copies: int = 1) -> None:
        self.labels = tuple(labels)
        self.ladder = (float(level),)
        self.least_records, self.copies = least_records, copies
        self.answer = Answer("bits", len(self.labels))
        flip = crowd.flip_probability(least_records, math.exp(level), copies=copies, bits=len(self.labels))
        zero = math.ceil(flip * GRID)
        self.channel = BitChannel((BitBlock(len(self.labels), GRID - zero, zero),))

    @classmethod
    def build(cls, values: Sequence[str], ladder: Sequence[float], parameters: Mapping[str, Any]) -> KRandomization:
        """Build from the bits' names, the crowd's level and the size of the smallest crowd."""
        refuse_unknown(parameters, tuple(cls.parameters), cls.name)
        labels = at_least(values, 1, cls.name)
        if len(ladder) != 1 or not ladder[0] > 0:
            raise ParameterError("ladder", list(ladder), "k_randomization has exactly one level above 0, the crowd's")
        return cls(
            labels,
            ladder[0],
            least_records=whole_number(parameters, "least_records", None, low=2, high=10**12),
            copies=whole_number(parameters, "copies", 1, low=1, high=_MAX_COPIES),
        )

    @property
    def flip(self) -> float:
        """Probability that a bit of a copy is flipped."""
        return float(self.channel.zeros[0])

    @property
    def epsilons(self) -> tuple[float, ...]:
        """What a record pays to someone who can link its copies: k L ln((1 - q) / q), rounded up."""
        single = self.channel.flip_epsilon(len(self.labels))
        return (single if self.copies == 1 else math.nextafter(self.copies * single, math.inf),)

    @cached_property
    def delta(self) -> float:
        """Chance that the published totals tell more than the level, in the smallest crowd; never too small.

        For one bit it is exact, the worst over all other records. For vectors it compares a crowd of empty records with
        one in which one record has every bit set (Zhilyaev & Zeber's pair). Several copies of a vector have no law that
        could be convolved; the copies of each record are then taken as one long vector. Whoever cannot link them knows
        less, so that is a bound.
        """
        ratio = math.exp(self.ladder[0])
        if len(self.labels) == 1:
            return crowd.crowd_delta(self.least_records, self.flip, ratio, copies=self.copies).delta
        bits = self.copies * len(self.labels)
        return crowd.vector_delta(self.least_records, self.flip, ratio, bits=bits).delta

    def encode(self, values: Sequence[Any], bits: Bits) -> NDArray[Any]:  # noqa: ARG002  # nothing is drawn here
        """Pack each record: a list of the labels that hold for it, or true / false where there is one label."""
        return pack(self._matrix(values))

    def _matrix(self, values: Sequence[Any]) -> NDArray[np.bool_]:
        position = {label: i for i, label in enumerate(self.labels)}
        matrix = np.zeros((len(values), len(self.labels)), dtype=np.bool_)
        for row, value in enumerate(values):
            if isinstance(value, bool) and len(self.labels) == 1:
                matrix[row, 0] = value
                continue
            if isinstance(value, str | bytes) or not isinstance(value, Sequence | set | frozenset):
                raise ParameterError(
                    "value", value, "must list the labels that hold (for one label also true or false)"
                )
            for label in value:
                if label not in position:
                    raise ParameterError("value", label, f"must be one of the labels {', '.join(self.labels)}")
                matrix[row, position[label]] = True
        return matrix

    def draw(self, inputs: NDArray[Any], bits: Bits) -> Drawn:
        """Draw one copy of every record; the copies of a record are independent draws."""
        return Drawn(self.channel.sample(inputs, bits)[None], np.zeros(len(inputs), dtype=np.uint16))

    def estimate(
        self, tally: Tally, *, method: Method = "pooled", population: Population = "fleet", alpha: float = 0.05
    ) -> Estimates:
        """Estimate the share of records with each bit set; the tally counts copies, all methods agree on one rung."""
        from estimators.inference.pooling_result import finish, no_estimate  # server side only: scipy

        ones, sent = tally.counts.sum(axis=(0, 1)), int(tally.users.sum())
        if sent == 0:
            return no_estimate(self.labels, method, population, alpha, ())
        slope = 1 - 2 * self.flip
        shares = (ones / sent - self.flip) / slope
        variance = np.full(len(self.labels), self.flip * (1 - self.flip) / (sent * slope**2))
        records = sent / self.copies
        if population == "sampling":
            inside = np.clip(shares, 0, 1)
            # Copies of one record share its value: the spread of values is that of records, not of copies.
            variance = variance + (inside * (1 - inside) / (records - 1) if records > 1 else 0.25)
        short = f"{records:.0f} records, fewer than the {self.least_records} promised: hold or merge this window"
        return finish(
            self.labels,
            shares,
            variance,
            None,
            users=sent,
            method=method,
            population=population,
            alpha=alpha,
            notes=(short,) if records < self.least_records else (),
        )

    def canonical(self) -> dict[str, Any]:
        """Return labels, copies and the integer thresholds."""
        return {
            "mechanism": self.name,
            "values": list(self.labels),
            "copies": self.copies,
            "least_records": self.least_records,
            "channel": self.channel.canonical(),
        }

    def truth(self, values: Sequence[Any]) -> NDArray[np.float64]:
        """Return the share of records with each bit set."""
        return np.asarray(self._matrix(values).sum(axis=0) / max(len(values), 1))

    def simulate(self, picks: NDArray[np.int64], words: NDArray[np.uint64]) -> Sequence[Any]:
        """Return records: the picked label, each other one with a chance of a quarter; a single label in a third."""
        if len(self.labels) == 1:
            return [bool(word % 3 == 0) for word in words.tolist()]
        return [
            [label for j, label in enumerate(self.labels) if j == pick or word >> (2 * j % 60) & 3 == 3]
            for pick, word in zip(picks.tolist(), words.tolist(), strict=True)
        ]
