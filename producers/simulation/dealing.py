"""Cards for a simulated fleet, from a real dealer: every device asks for its own, some time before it answers.

All devices of a fleet ask, those too that will not take part in the window: their cards do not come back. A claim is a
function of the fleet's seed, so that a fleet that was killed asks with the same claims and has the same cards.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Final

from estimators.exact.randomness import SeededBits
from producers.simulation.fleet import Plan
from producers.wire.cards import CLAIM_BYTES, CardError, DealerConnection, Dealt

log = logging.getLogger(__name__)

ASKERS: Final = 8
"""Devices that ask at the same time."""
AGAIN_SECONDS: Final = 0.5

Place = tuple[str, int, int]
"""Survey id, start of the window, number of the block of devices."""


class Dealings:
    """Asks one dealer for the cards of whole blocks of devices, in threads of its own."""

    def __init__(self, dealer: str) -> None:
        self._dealer = dealer
        self._stop = threading.Event()
        self._threads = ThreadPoolExecutor(ASKERS, "asks")
        self._asked: dict[Place, list[Future[list[Dealt | None]]]] = {}

    def ask(self, plan: Plan, window_ms: int, block: int) -> None:
        """Begin to ask for the cards of a block, unless that was begun before."""
        place = (plan.survey.id, window_ms, block)
        if place not in self._asked:
            claims = claims_of(plan, window_ms, block)
            parts = [claims[first::ASKERS] for first in range(ASKERS)]
            self._asked[place] = [self._threads.submit(self._ask_all, *place[:2], part) for part in parts]

    def ready(self, plan: Plan, window_ms: int, block: int) -> bool:
        """Tell whether every device of a block has had its answer."""
        return all(part.done() for part in self._asked[plan.survey.id, window_ms, block])

    def take(self, plan: Plan, window_ms: int, block: int) -> list[Dealt | None]:
        """Return the card of every device of a block, None for those that got none."""
        parts = [part.result() for part in self._asked.pop((plan.survey.id, window_ms, block))]
        cards: list[Dealt | None] = [None] * sum(map(len, parts))
        for first, part in enumerate(parts):
            cards[first::ASKERS] = part
        return cards

    def close(self) -> None:
        """Stop asking."""
        self._stop.set()
        self._threads.shutdown(cancel_futures=True)

    def _ask_all(self, survey_id: str, window_ms: int, claims: Sequence[bytes]) -> list[Dealt | None]:
        dealer = DealerConnection(self._dealer)
        try:
            return [self._ask(dealer, survey_id, window_ms, claim) for claim in claims]
        finally:
            dealer.close()

    def _ask(self, dealer: DealerConnection, survey_id: str, window_ms: int, claim: bytes) -> Dealt | None:
        """Ask until the dealer answers, as a device does."""
        while True:
            try:
                return dealer.ask(survey_id, window_ms, claim)
            except CardError as error:
                if not error.again:
                    return None
                log.warning("%s", error)
                if self._stop.wait(AGAIN_SECONDS):
                    return None


def claims_of(plan: Plan, window_ms: int, block: int) -> list[bytes]:
    """Return what the devices of a block show the dealer in a window; nothing that their reports carry."""
    words = SeededBits(plan.seed, plan.survey.id, window_ms, block, "claims").words(2 * plan.block_size(block))
    raw = words.tobytes()
    return [raw[i : i + CLAIM_BYTES] for i in range(0, len(raw), CLAIM_BYTES)]
