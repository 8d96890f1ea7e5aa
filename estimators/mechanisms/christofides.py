"""Christofides' cards, drawn independently: the face says how to answer (Sun, Yan & Zhou, Alg. 3)."""

from __future__ import annotations

import itertools
from collections.abc import Mapping, Sequence
from fractions import Fraction
from typing import Any, ClassVar, Self

from estimators.channels.chain import Chain
from estimators.channels.dense_chain import build_dense
from estimators.channels.noisy_sampling import sampling_epsilon
from estimators.mechanism import Guarantee, ParameterError
from estimators.mechanisms.small_channel import (
    Exact,
    SmallChannel,
    check_levels,
    check_values,
    growth,
    read_probability,
    written,
)
from estimators.parameters import refuse_unknown

MAX_FACES = 64


class Christofides(SmallChannel):
    """Draw a card with faces 1..L; the sensitive group answers the mirrored face L + 1 - Y, everybody else Y."""

    name = "christofides"
    source = "Sun, Yan & Zhou, Algorithm 3 and Theorems 3.1, 5.4, 5.5 (modified Christofides)"
    corrections: ClassVar[tuple[str, ...]] = (
        "Algorithm 3 prints the two answers exchanged and so estimates 1 - pi; here the sensitive group mirrors.",
        "The cards must not be balanced (E Y = (L + 1)/2), which is less than 'not all equal'.",
        "A middle card only adds variance: no middle card, the default, is Warner and the best deck.",
    )
    ladders: ClassVar[str] = "Any increasing ladder: a lower rung mirrors the answered face with some probability."
    parameters: ClassVar[Mapping[str, str]] = {
        "middle": "probability of the middle one of three faces, in [0, 1); default 0, the best: it is Warner then",
        "cards": "instead of `middle`: relative numbers of the faces 1..L, drawn with replacement, on the top rung",
    }
    guarantee = Guarantee(
        "Either group can answer every face: yes and no explain everything a device sent in one window equally "
        "well up to a factor e^epsilon.",
        "Holds against a collector who sees every answer of the device and knows everything about everybody else, as "
        "long as the card is drawn on the device and kept secret.",
    )

    def __init__(
        self,
        labels: Sequence[str],
        ladder: Sequence[float],
        *,
        middle: float = 0.0,
        cards: Sequence[int] | None = None,
        chosen: bool = False,
    ) -> None:
        self.chosen = chosen
        if cards is None:
            decks = [_three(level, written(middle)) for level in ladder]
        else:
            decks = _mirrored(tuple(Fraction(card) for card in cards), ladder)
        super().__init__(labels, ladder, _chain(ladder, decks))

    @classmethod
    def build(cls, values: Sequence[str], ladder: Sequence[float], parameters: Mapping[str, Any]) -> Christofides:
        """Build from two values, a ladder, and either the share of the middle card or the cards."""
        refuse_unknown(parameters, tuple(cls.parameters), cls.name)
        check_values(cls.name, values, 2, "the answer of everybody else, then that of the sensitive group")
        levels = check_levels(ladder)
        if "cards" not in parameters:
            middle = read_probability(parameters, "middle", 0.0, zero=True)
            return cls(values, levels, middle=middle, chosen="middle" not in parameters)
        if "middle" in parameters:
            raise ParameterError("middle", parameters["middle"], "the cards already say it; remove one of the two")
        return cls(values, levels, cards=read_cards(parameters["cards"]))

    def choices(self) -> tuple[str, ...]:
        """Return which deck was chosen, and why."""
        if not self.chosen:
            return ()
        sentence = (
            "The deck has no middle card: one with the share m makes the variance of the answers larger, by the factor "
            "1 / (1 - m) up to a constant, and protects nobody better; without it this is the deck of Warner."
        )
        return (sentence,)

    def sampling_epsilon(self, sample: Self, samples: int) -> float:
        """Return what noisy samples of one permanent face cost together: a sample shows the face or its mirror image.

        Which pair of faces it is says nothing, so it costs what the samples of one yes or no cost.
        """
        return sampling_epsilon(self.ladder[0], sample.ladder[0], samples)


def read_cards(cards: Any) -> tuple[int, ...]:
    """Return card counts of an unbalanced deck, or refuse them."""
    whole = isinstance(cards, list | tuple) and all(isinstance(c, int) and not isinstance(c, bool) for c in cards)
    if not whole or not 2 <= len(cards) <= MAX_FACES or min(cards) < 0:
        raise ParameterError("cards", cards, f"give 2 to {MAX_FACES} whole numbers of cards, none negative, by face")
    faces = len(cards)
    if sum((faces + 1 - 2 * face) * count for face, count in enumerate(cards, 1)) == 0:
        raise ParameterError("cards", cards, "mirroring a balanced deck changes nothing; use more high or low cards")
    if any((a == 0) != (b == 0) for a, b in zip(cards, reversed(cards), strict=True)):
        raise ParameterError(
            "cards", cards, "a face whose mirror image has no card gives the answer away; give both at least one card"
        )
    return tuple(cards)


def _three(epsilon: float, middle: Fraction) -> tuple[Fraction, ...]:
    low = (1 - middle) / (growth(epsilon) + 1)
    return low, middle, 1 - middle - low


def _mirrored(cards: tuple[Fraction, ...], ladder: Sequence[float]) -> list[tuple[Fraction, ...]]:
    """Return the cards of every level: the given ones, each mirrored with the probability that the level needs."""
    total = sum(cards)
    top = tuple(card / total for card in cards)
    high, low = max(((max(a, b), min(a, b)) for a, b in zip(top, reversed(top), strict=True) if a), key=_ratio)
    decks = []
    for epsilon in ladder:
        limit = growth(epsilon)
        flip = max((high - limit * low) / ((high - low) * (1 + limit)), Fraction(0))
        decks.append(tuple((1 - flip) * a + flip * b for a, b in zip(top, reversed(top), strict=True)))
    return decks


def _ratio(pair: tuple[Fraction, Fraction]) -> Fraction:
    return pair[0] / pair[1]


def _chain(ladder: Sequence[float], decks: Sequence[tuple[Fraction, ...]]) -> Chain:
    levels: list[Exact] = [(deck, tuple(reversed(deck))) for deck in decks]
    kernels = [_mirror(lower, upper) for lower, upper in itertools.pairwise(decks)]
    return build_dense(ladder, levels, kernels=kernels)


def _mirror(lower: tuple[Fraction, ...], upper: tuple[Fraction, ...]) -> Exact:
    """Return the kernel that mirrors a face as often as it takes to get from the upper to the lower cards."""
    faces = len(upper)
    outer = max(range(faces // 2), key=lambda k: abs(upper[k] - upper[faces - 1 - k]))
    gap = upper[outer] - upper[faces - 1 - outer]
    flip = (1 - (lower[outer] - lower[faces - 1 - outer]) / gap) / 2 if gap else Fraction(0)
    rows = [[Fraction(0)] * faces for _ in range(faces)]
    for face in range(faces):
        rows[face][face] += 1 - flip
        rows[face][faces - 1 - face] += flip
    return tuple(tuple(row) for row in rows)
