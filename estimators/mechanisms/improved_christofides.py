"""Christofides' cards, dealt from a deck without replacement (Sun, Yan & Zhou, Alg. 4): not local privacy."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from estimators.channels.decks import Dealer, Deck, DeckError, parity_leaks
from estimators.exact.randomness import Bits
from estimators.mechanism import Answer, Attacker, Drawn, Guarantee, ParameterError, Randomizer, Specification, index_of
from estimators.mechanisms.christofides import read_cards
from estimators.mechanisms.small_channel import check_levels, check_values, read_probability
from estimators.parameters import refuse_unknown, whole_number

MAX_BLOCKS = 65_536


class ImprovedChristofides(Specification):
    """A dealer hands out the cards of one deck per block of people; the sensitive group answers the mirrored face.

    A value is a label, when a whole simulated fleet is encoded at once and cards are dealt to it on the spot, or a
    table {"value": label, "block": number, "card": face} with the card that a real dealer gave to this person.
    """

    name = "improved_christofides"
    source = "Sun, Yan & Zhou, Algorithm 4 and Theorems 4.1, 5.6, 5.7 (improved Christofides)"
    corrections: ClassVar[tuple[str, ...]] = (
        (
            "Theorem 5.6 claims epsilon-DP against other respondents; the collector, who sees all answers and may know "
            "everybody else, reads all but holders of the middle card: exactly (0, 1 - n_mid/N)-DP."
        ),
        "Algorithm 4 prints the two answers exchanged and so estimates 1 - pi; here the sensitive group mirrors.",
        "Decks have whole numbers of cards; epsilon, mean and variance are those of the actual deck.",
        "At any epsilon that holds against an informed collector plain Warner has the smaller variance.",
    )
    ladders: ClassVar[str] = (
        "One level only: respondents depend on each other, so a second answer from the same deck adds to the first."
    )
    parameters: ClassVar[Mapping[str, str]] = {
        "middle": "share of middle cards in a deck of three faces, in [0, 1); default 0.01: without a middle card the "
        "published counts tell whether the number of yes is odd",
        "cards": "instead of `middle` and `block`: numbers of the cards of every face in one deck",
        "block": "people, and so cards, per deck; 2 to 1000000; default 1000",
        "blocks": "number of decks, fixed before the first answer; 1 to 65536; default 128",
    }
    methods: ClassVar[tuple[str, ...]] = ("pooled",)
    guarantee = Guarantee(
        "An isolated answer, seen by an observer who knows nothing about other people, costs the epsilon of the deck; "
        "a collector who sees all answers and knows the other people reads the value with certainty.",
        "Holds only if a dealer whom the collector cannot influence shuffles the deck and never sees answers, nobody "
        "learns other people's cards, and each person answers once.",
        protects="nothing",
    )

    def __init__(self, labels: Sequence[str], epsilon: float, deck: Deck, blocks: int, *, chosen: bool = False) -> None:
        self.chosen = chosen
        self.labels = tuple(labels)
        self.ladder = (float(epsilon),)
        self.deck, self.blocks = deck, blocks
        self.groups = blocks
        self.cards = deck.counts
        self.answer = Answer("index", deck.faces)

    @classmethod
    def build(
        cls, values: Sequence[str], ladder: Sequence[float], parameters: Mapping[str, Any]
    ) -> ImprovedChristofides:
        """Build from two values, one level and the decks."""
        refuse_unknown(parameters, tuple(cls.parameters), cls.name)
        check_values(cls.name, values, 2, "the answer of everybody else, then that of the sensitive group")
        levels = check_levels(ladder)
        if len(levels) != 1:
            raise ParameterError(
                "ladder", list(levels), f"{cls.ladders} Keep one level, or use christofides, which has ladders"
            )
        blocks = whole_number(parameters, "blocks", 128, low=1, high=MAX_BLOCKS)
        try:
            chosen = not {"middle", "cards"} & set(parameters)
            return cls(values, levels[0], _deck(levels[0], parameters), blocks, chosen=chosen)
        except DeckError as error:
            raise ParameterError("mechanism", dict(parameters), str(error)) from None

    @property
    def epsilons(self) -> tuple[float, ...]:
        """Infinite: nothing local can be promised. The cost of an isolated answer is deck.single_answer_epsilon."""
        return (math.inf,)

    def attackers(self, known_cards: Sequence[int] = (1, 10)) -> tuple[Attacker, ...]:
        """Return what each kind of attacker can learn; known_cards: of how many other people."""
        deck, single = self.deck, self.deck.single_answer_epsilon
        parity = "whether the number of yes is odd" if parity_leaks(deck) else "bounds on the number of yes"
        return (
            Attacker("one answer and the composition of the deck", f"epsilon {single:.4g}", single, 0.0),
            *(self._colluders(count) for count in known_cards),
            Attacker(
                "all answers, nothing about the other people", "centred at the epsilon of one answer, not bounded by it"
            ),
            Attacker(
                "all answers and all other people's values",
                f"the value, unless the card was the middle one: (0, {deck.informed_delta:.4g})-DP, epsilon infinite",
                0.0,
                deck.informed_delta,
            ),
            Attacker("the published counts alone", parity),
            Attacker("dealer and collector together", "the value, unless the card was the middle one", math.inf),
        )

    def _colluders(self, count: int) -> Attacker:
        epsilon = self.deck.collusion_epsilon(count)
        learns = "the value, in the worst case: epsilon infinite" if math.isinf(epsilon) else f"epsilon {epsilon:.4g}"
        people = "one other person" if count == 1 else f"{count} other people"
        return Attacker(f"one answer and the card{'s' * (count > 1)} of {people}", learns, epsilon, 0.0)

    def choices(self) -> tuple[str, ...]:
        """Return which deck was chosen, and why."""
        if not self.chosen:
            return ()
        low, middle, high = self.deck.counts
        sentence = (
            f"A deck has {low} low, {middle} middle and {high} high cards: as few low ones as the level allows, which "
            "makes the variance smallest, and one middle card in a hundred. Without middle cards the published counts "
            "would tell whether the number of yes is odd; each percent of them makes the variance a percent larger."
        )
        return (sentence,)

    def dealer(self, bits: Bits) -> Dealer:
        """Return a dealer for all blocks of one window."""
        return Dealer(self.deck, self.blocks, bits)

    def canonical(self) -> dict[str, Any]:
        """Return values, the deck and the number of blocks."""
        return {
            "mechanism": self.name,
            "values": list(self.labels),
            "deck": [str(count) for count in self.deck.counts],
            "blocks": self.blocks,
        }


class ImprovedChristofidesRandomizer(Randomizer[ImprovedChristofides]):
    """Answers with the face of the card that the dealer gave; the deal is the only random step."""

    def encode(self, values: Sequence[Any], bits: Bits) -> NDArray[Any]:
        """Return block, card and value as one number: 2 * (block * (L + 1) + card) + value."""
        mechanism = self.specification
        if len(values) and all(isinstance(value, Mapping) for value in values):
            blocks, faces, indices = self._dealt(values)
        else:
            indices = index_of(values, mechanism.labels)
            if len(values) == 1 and mechanism.deck.size > 1:
                raise ParameterError(
                    "value",
                    values[0],
                    "one person cannot deal a deck: pass {'value', 'block', 'card'} with the card that the dealer gave",
                )
            try:
                blocks, faces = mechanism.dealer(bits).deal(len(values))
            except DeckError as error:
                raise ParameterError("blocks", mechanism.blocks, str(error)) from None
        return np.asarray(2 * (blocks * (mechanism.deck.faces + 1) + faces) + indices, dtype=np.int64)

    def _dealt(self, values: Sequence[Any]) -> tuple[NDArray[np.int64], NDArray[np.int64], NDArray[np.int64]]:
        mechanism = self.specification
        for value in values:
            if set(value) != {"value", "block", "card"}:
                raise ParameterError("value", dict(value), "must have the entries value, block and card")
            if not isinstance(value["block"], int) or not 0 <= value["block"] < mechanism.blocks:
                raise ParameterError("value.block", value["block"], f"must be a block from 0 to {mechanism.blocks - 1}")
            faces = [face for face, count in enumerate(mechanism.deck.counts, 1) if count]
            if value["card"] not in faces:
                raise ParameterError("value.card", value["card"], f"must be a face of the deck: {faces}")
        return (
            np.array([value["block"] for value in values], dtype=np.int64),
            np.array([value["card"] for value in values], dtype=np.int64),
            index_of([value["value"] for value in values], mechanism.labels),
        )

    def draw(self, inputs: NDArray[Any], bits: Bits) -> Drawn:  # noqa: ARG002  # the deal was the only random step
        """Answer with the card's face, mirrored for the sensitive group; symbol k is face k + 1."""
        deck = self.specification.deck
        cards, indices = np.asarray(inputs) // 2, np.asarray(inputs) % 2
        blocks, faces = cards // (deck.faces + 1), cards % (deck.faces + 1)
        answers = np.where(indices == 1, deck.faces + 1 - faces, faces) - 1
        return Drawn(self.specification.symbols(answers[None, :]), blocks.astype(np.uint16))


def _deck(epsilon: float, parameters: Mapping[str, Any]) -> Deck:
    if "cards" in parameters:
        for other in ("middle", "block"):
            if other in parameters:
                raise ParameterError(other, parameters[other], "the cards already say it; remove one of the two")
        deck = Deck(read_cards(parameters["cards"]))
        if deck.single_answer_epsilon > epsilon:
            raise ParameterError(
                "cards",
                parameters["cards"],
                f"one answer of this deck costs {deck.single_answer_epsilon:.6g}, more than the level {epsilon:g}",
            )
        return deck
    size = whole_number(parameters, "block", 1000, low=2, high=1_000_000)
    return Deck.for_epsilon(size, epsilon, middle=read_probability(parameters, "middle", 0.01, zero=True))
