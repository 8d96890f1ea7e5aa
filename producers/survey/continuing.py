"""Surveys that continue another one: the same question with a longer ladder, counted where the earlier one is.

The file names the earlier ids, and everything about these surveys follows from it: such a survey is this one with the
beginning of its ladder, and its id says which beginning. So nobody needs the earlier file, and a file that continues
nothing cannot pass.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NamedTuple, Protocol

from estimators.channels.chain import LadderError
from estimators.mechanism import ParameterError, Specification

FIELD = "continues"
DIGEST_BYTES = 8


class Edition(NamedTuple):
    """An earlier form of a survey: the id of its file, what it hashes, and the mechanism of its shorter ladder."""

    id: str
    decoding_hash: bytes
    mechanism: Specification

    @property
    def digest(self) -> bytes:
        """The 8 bytes that its frames carry."""
        return self.decoding_hash[:DIGEST_BYTES]


class Answered(Protocol):
    """How a survey is answered, as far as it decides whether it can be continued."""

    @property
    def standing(self) -> bool:
        """Answers belong to values instead of windows."""

    @property
    def withdrawable(self) -> bool:
        """Answers can be taken back."""

    @property
    def tiers(self) -> Sequence[object]:
        """Audiences that may know less than all answers."""

    @property
    def rungs(self) -> str:
        """What is assumed of rungs."""

    @property
    def canary(self) -> object | None:
        """Simulated devices whose values are known."""


Form = Callable[[Specification, tuple[Edition, ...]], Edition]
"""Returns the survey with another mechanism that continues these editions, as an edition."""


def continued_editions(
    mechanism: Specification, ids: Sequence[str], build: Callable[[Sequence[float]], Specification], form: Form
) -> tuple[Edition, ...]:
    """Return the earlier forms of a survey that have these ids.

    Args:
        mechanism: of the survey.
        ids: of the files of earlier surveys, the oldest first.
        build: builds its mechanism for another ladder.
        form: tells what a survey with such a mechanism is.

    Raises:
        ParameterError: it continues none of these.
    """
    editions: tuple[Edition, ...] = ()
    for wanted in ids:
        editions += (_edition(mechanism.ladder, editions, wanted, build, form),)
    for edition in editions:
        try:
            mechanism.steps_from(edition.mechanism)
        except LadderError as error:
            raise ParameterError(
                FIELD, edition.id, f"answers of this ladder cannot be drawn from those of the earlier one: {error}"
            ) from None
    return editions


def obstacle(survey: Answered) -> str:
    """Say why nothing may continue answers of such a survey; empty if something may."""
    if survey.standing:
        return "answers of a standing value belong to no window in which they could be continued; remove one of them"
    if survey.withdrawable:
        return "the key of a withdrawal is that of the rung above the top, which would be an answer; remove one of them"
    if survey.tiers:
        return "what a tier may know is counted from the first report on, and a new top would add a tier; remove one"
    if survey.rungs == "independent":
        return 'devices that cannot pay for the new top have answered already; write rungs = "any"'
    if survey.canary is not None:
        return "simulated devices keep no chains that could be continued; remove one of them"
    return ""


def _edition(
    ladder: Sequence[float],
    before: tuple[Edition, ...],
    wanted: str,
    build: Callable[[Sequence[float]], Specification],
    form: Form,
) -> Edition:
    """Return the beginning of the ladder that has this id."""
    found: dict[str, Sequence[float]] = {}
    for rungs in range(before[-1].mechanism.rungs + 1 if before else 1, len(ladder)):
        try:
            mechanism = build(ladder[:rungs])
        except (ParameterError, ValueError):
            continue  # a ladder that this mechanism cannot have
        earlier = form(mechanism, before)
        if earlier.id == wanted:
            return earlier
        found[earlier.id] = ladder[:rungs]
    seen = ", ".join(f"{edition} with {list(levels)}" for edition, levels in found.items()) or "none"
    raise ParameterError(
        FIELD,
        wanted,
        "the ladder of an earlier survey must be the beginning of this one, and name, values, mechanism, windows and "
        f"shards the same, in its last form; the beginnings of this file are {seen}",
    )
