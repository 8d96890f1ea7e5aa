"""Dealt cards (improved Christofides): what aggregates and uninformed attackers learn."""

from __future__ import annotations

import math
from fractions import Fraction

from estimators.channels.decks import (
    Deck,
    DeckError,
    three_faces,
)


def shift_law(deck: Deck, ones: int) -> dict[int, Fraction]:
    """Return the exact law of o1 - n1, low answers beyond low cards, when `ones` respondents are in the group."""
    low, blank, high = three_faces(deck)
    if not 0 <= ones <= deck.size:
        raise DeckError(f"ones must be in [0, {deck.size}]; got {ones}")
    total = math.comb(deck.size, ones)
    law: dict[int, int] = {}
    for a in range(min(low, ones) + 1):
        for c in range(max(0, ones - a - blank), min(high, ones - a) + 1):
            ways = math.comb(low, a) * math.comb(high, c) * math.comb(blank, ones - a - c)
            law[c - a] = law.get(c - a, 0) + ways
    return {shift: Fraction(ways, total) for shift, ways in sorted(law.items())}


def aggregate_delta(deck: Deck, ones: int, epsilon_factor: Fraction | int = 1) -> float:
    """Return the smallest delta for which published counts hide whether there are `ones` or `ones` + 1 in the group.

    epsilon_factor is e^eps. With factor 1 this is the total variation distance.
    """
    before, after = shift_law(deck, ones), shift_law(deck, ones + 1)
    excess = (share - epsilon_factor * after.get(shift, Fraction(0)) for shift, share in before.items())
    return float(sum((part for part in excess if part > 0), Fraction(0)))


def uninformed_log_ratio(deck: Deck, low_answers: int, high_answers: int, target_answer: int, pi: float) -> float:
    """Return ln of the evidence, for yes over no, that all answers give about one person.

    The collector sees all answers and assumes that each other person is in the group with probability pi.
    target_answer is that person's answer, in 1..3, and is among the counted ones.
    """
    low, blank, high = three_faces(deck)
    counts = [low_answers, deck.size - low_answers - high_answers, high_answers]
    counts[target_answer - 1] -= 1
    chance = Fraction(pi)

    def evidence(value: int) -> Fraction:
        need = [low, blank, high]
        need[(4 - target_answer if value else target_answer) - 1] -= 1
        if counts[1] != need[1] or min(need) < 0 or min(counts) < 0:
            return Fraction(0)
        total = Fraction(0)
        for u in range(counts[0] + 1):
            w = need[0] - counts[0] + u
            if 0 <= w <= counts[2]:
                ways = math.comb(counts[0], u) * math.comb(counts[2], w)
                total += ways * chance ** (u + w) * (1 - chance) ** (counts[0] + counts[2] - u - w)
        return total

    no, yes = evidence(0), evidence(1)
    if no == yes == 0:
        raise DeckError("these answers cannot come from this deck")
    if no == 0 or yes == 0:
        return math.inf if no == 0 else -math.inf
    ratio = yes / no
    return math.log(ratio.numerator) - math.log(ratio.denominator)
