"""Decks of cards that are dealt, not drawn: the improved Christofides survey (Sun, Yan & Zhou) and what it protects.

A deck of exactly N cards is dealt to N people; each keeps the card secret and answers with its face, or with the
mirrored face when in the sensitive group. The answers depend on each other, which is where the smaller variance comes
from, and why it is not local differential privacy: an observer who knows the deck and all others reads the last one.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction

import numpy as np
from numpy.typing import NDArray

from estimators.channels.rows import Rows, loss_of_rows
from estimators.exact.randomness import Bits, below
from estimators.exact.rounding import exp_decimal, log_ratio_up, scaled_ceil


class DeckError(ValueError):
    """A deck cannot be used; the message says what to do."""


@dataclass(frozen=True)
class DeckPlan:
    """The integer deck that the rule asks for, and whether it can be used."""

    counts: tuple[int, int, int]

    @property
    def feasible(self) -> bool:
        """More high than low cards, and at least one low card: otherwise nothing is estimable or nothing is hidden."""
        low, _, high = self.counts
        return high > low >= 1

    @property
    def cards(self) -> Cards:
        """E Y, Var Y, Delta and the loss of one answer."""
        return describe_cards(self.counts)


def plan_deck(size: int, epsilon: float, *, middle: float = 0.0) -> DeckPlan:
    """Round to integer counts so that one answer costs at most `epsilon`: middle ones to nearest, low ones up."""
    if not 0.0 <= middle < 1.0:
        raise DeckError(f"the share of the middle card must be in [0, 1); got {middle!r}")
    if not 0.0 < epsilon <= 40.0:
        raise DeckError(f"epsilon must be in (0, 40]; got {epsilon!r}")
    if size < 2:
        raise DeckError(f"a deck needs at least two cards; got {size}")
    blank = int(Fraction(repr(middle)) * size + Fraction(1, 2))  # the decimal that was written
    low = scaled_ceil(1, exp_decimal(epsilon) + 1, size - blank)
    return DeckPlan((low, blank, size - blank - low))


@dataclass(frozen=True)
class Deck:
    """counts[k - 1] cards with face k, faces 1..L.

    >>> Deck.for_epsilon(100, 0.5, middle=0.01).counts
    (38, 1, 61)
    """

    counts: tuple[int, ...]

    def __post_init__(self) -> None:
        if len(self.counts) < 2 or any(count < 0 for count in self.counts):
            raise DeckError(f"a deck needs at least two faces with counts of at least 0; got {list(self.counts)}")
        if self.shift == 0:
            raise DeckError(
                f"the deck {list(self.counts)} is balanced: mirrored faces leave the mean answer where it is, so no "
                "share can be estimated; use different numbers of low and high cards"
            )

    @classmethod
    def for_epsilon(cls, size: int, epsilon: float, *, middle: float = 0.0) -> Deck:
        """Build the sharpest deck of three faces whose single answer costs at most `epsilon`.

        `middle` is the wanted share of the face that says nothing. Raises DeckError where `size` cards cannot do it.
        """
        plan = plan_deck(size, epsilon, middle=middle)
        if not plan.feasible:
            low, blank, high = plan.counts
            raise DeckError(
                f"{size} cards cannot give an answer of epsilon {epsilon:g}: the rule asks for {low} low, {blank} "
                f"middle and {high} high cards, and there must be more high than low ones; use larger blocks or a "
                "larger epsilon"
            )
        return cls(plan.counts)

    @property
    def size(self) -> int:
        """Number of cards."""
        return sum(self.counts)

    @property
    def faces(self) -> int:
        """Number of faces L."""
        return len(self.counts)

    @property
    def shift(self) -> int:
        """Delta times the number of cards: how far mirroring all cards moves the sum of the answers."""
        return sum((self.faces + 1 - 2 * face) * count for face, count in enumerate(self.counts, 1))

    @property
    def cards(self) -> Cards:
        """E Y, Var Y, Delta."""
        return describe_cards(self.counts)

    def share(self, answers: Sequence[int]) -> float:
        """Return the unbiased share of the sensitive group among those who answered; answers[k - 1] said face k."""
        given = sum(answers)
        mean = Fraction(sum(face * count for face, count in enumerate(answers, 1)), given)
        expected = Fraction(sum(face * count for face, count in enumerate(self.counts, 1)), self.size)
        return float((mean - expected) * self.size / self.shift)

    def ones(self, answers: Sequence[int]) -> float:
        """Return the unbiased number of respondents in the sensitive group."""
        return self.share(answers) * sum(answers)

    def variance(self, pi: float, dealt: int) -> float:
        """Return the variance of `share` for `dealt` respondents with share pi, cards dealt without replacement.

        All cards dealt: 4 pi (1 - pi) Var Y / ((N - 1) Delta^2). Also right for no-shows, if who does not answer does
        not depend on the card.
        """
        level, slope = self.variance_terms(dealt)
        return level - slope * (1.0 - 2.0 * pi) ** 2

    def variance_terms(self, dealt: int) -> tuple[float, float]:
        """Return (a, b) of the variance a - b (1 - 2 pi)^2."""
        if not 1 <= dealt <= self.size or self.size < 2:
            raise DeckError(f"1 to {self.size} cards can be dealt from this deck, and it needs two; got {dealt}")
        cards = self.cards
        scale = cards.variance / (cards.delta**2 * (self.size - 1))
        return scale * self.size / dealt, scale

    # What may be claimed about privacy, attacker by attacker.

    @property
    def single_answer_epsilon(self) -> float:
        """Loss against an observer who sees one answer and the composition of the deck, and nothing of the others."""
        return self.collusion_epsilon(0)

    def collusion_epsilon(self, known_cards: int) -> float:
        """Loss of one answer when the cards of `known_cards` other people are known; inf when they can decide it."""
        half = self.faces // 2  # a middle face is its own mirror image and tells nothing
        pairs = zip(self.counts[:half], reversed(self.counts), strict=False)
        return max(log_ratio_up(max(pair), max(min(pair) - known_cards, 0)) for pair in pairs if max(pair))

    def informed_epsilon(self, dealt: int) -> float:
        """Loss against a collector who sees all `dealt` answers and knows everybody else's value.

        Infinite for a deck that is dealt out; finite only if no face can be used up by the other respondents.
        """
        return self.collusion_epsilon(dealt - 1)

    @property
    def informed_delta(self) -> float:
        """The exact delta of (0, delta)-DP against that collector: all but holders of the middle card are read."""
        middle = self.counts[self.faces // 2] if self.faces % 2 else 0
        return 1.0 - middle / self.size


def parity_leaks(deck: Deck) -> bool:
    """Tell whether published counts give away whether the number of yes is odd."""
    return deck.faces == 2 or (deck.faces == 3 and deck.counts[1] == 0)


def three_faces(deck: Deck) -> tuple[int, int, int]:
    """Return low, middle and high counts of a deck of two or three faces."""
    if deck.faces == 2:
        return deck.counts[0], 0, deck.counts[1]
    if deck.faces != 3:
        raise DeckError(f"this needs a deck of two or three faces; got {deck.faces}")
    return deck.counts[0], deck.counts[1], deck.counts[2]


@dataclass
class Dealer:
    """Deals blocks of one deck each, in uniformly random order; a card is handed out once.

    The dealer must never see answers and must not collude with the collector, who must not learn who got which card.
    """

    deck: Deck
    blocks: int
    bits: Bits

    def __post_init__(self) -> None:
        if self.blocks < 1:
            raise DeckError(f"a dealer needs at least one block; got {self.blocks}")
        self._block = 0
        self._left: NDArray[np.int64] = np.empty(0, dtype=np.int64)

    def deal(self, people: int) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """Return block and face (1..L) for the next `people`; DeckError when the cards run out."""
        blocks = np.empty(people, dtype=np.int64)
        faces = np.empty(people, dtype=np.int64)
        done = 0
        while done < people:
            if not len(self._left):
                if self._block == self.blocks:
                    raise DeckError(
                        f"{self.blocks} blocks of {self.deck.size} cards are dealt and {people - done} people are "
                        "left; plan more or larger blocks before the first answer"
                    )
                self._left = shuffled(self.deck, self.bits)
                self._block += 1
            take = min(people - done, len(self._left))
            faces[done : done + take] = self._left[:take]
            blocks[done : done + take] = self._block - 1
            self._left = self._left[take:]
            done += take
        return blocks, faces


def draw_card(left: Sequence[int], bits: Bits) -> int:
    """Draw a face (1..L) from the cards that are left, each with the same probability.

    Repeated until none is left this is a uniformly random order of the deck. `left` must hold a card.
    """
    place = int(below(sum(left), 1, bits)[0])
    for face, count in enumerate(left, 1):
        if place < count:
            return face
        place -= count
    raise AssertionError("below(n) is smaller than n")


def shuffled(deck: Deck, bits: Bits) -> NDArray[np.int64]:
    """Return the faces of one deck in uniformly random order: sorted by random words, drawn again if two agree."""
    faces = np.repeat(np.arange(1, deck.faces + 1, dtype=np.int64), deck.counts)
    while True:
        words = bits.words(len(faces))
        if len(np.unique(words)) == len(faces):
            return faces[np.argsort(words)]


@dataclass(frozen=True)
class Cards:
    """What estimation needs of a set of cards with faces 1..L: E Y, Var Y and Delta = L + 1 - 2 E Y, and its loss."""

    mean: float
    variance: float
    delta: float
    epsilon: float
    rows: Rows


def describe_cards(weights: Sequence[float]) -> Cards:
    """Describe cards whose face k is drawn in proportion to weights[k - 1] (Sun et al., Thm 3.1 and 5.4).

    A member of the sensitive group answers L + 1 - Y, everybody else Y.
    """
    total, faces = math.fsum(weights), len(weights)
    rows = (tuple(w / total for w in weights), tuple(w / total for w in reversed(weights)))
    mean = math.fsum(k * w for k, w in enumerate(weights, 1)) / total
    # Both as single sums: E Y^2 - (E Y)^2 would lose digits for cards that are nearly balanced.
    variance = math.fsum((k - mean) ** 2 * w for k, w in enumerate(weights, 1)) / total
    delta = math.fsum((faces + 1 - 2 * k) * w for k, w in enumerate(weights, 1)) / total
    return Cards(mean, variance, delta, loss_of_rows(rows), rows)
