"""The dealer: every card once, one card for a claim, no card for a window that is not open."""

import json
from collections import Counter
from pathlib import Path

import pytest

from estimators.channels.decks import Deck, draw_card
from estimators.exact.randomness import SeededBits
from producers.survey.survey import parse_survey
from producers.wire.cards import Dealt
from streams.dealer.server import Dealer, RefusedError
from streams.dealer.state import DealerState
from streams.failures import OutsideError
from streams.metrics import METRICS
from tests.support.clock import ManualClock
from tests.support.surveys import TEXT, WEEK, survey
from tests.unit.streams.windows.test_recompute import Known

DECK = Deck((2, 1, 4))
CARDS = parse_survey(
    TEXT.replace('["red", "green", "blue"]', '["no", "yes"]')
    .replace("[0.5, 1.0, 2.0]", "[1.0]")
    .replace('["0s", "10s", "30s"]', '["0s"]')
    .replace('name = "grr"', 'name = "improved_christofides"\ncards = [2, 1, 4]\nblocks = 3')
    .replace("lifetime = 100", "lifetime = inf")
    .replace("shards = 16", 'shards = 16\naccept_risk = "The dealer is independent of the collector."')
)


def claim(number: int) -> bytes:
    return number.to_bytes(16, "little")


def body(number: int, window_ms: int = WEEK, survey_id: str = CARDS.id) -> bytes:
    return json.dumps({"survey": survey_id, "window_ms": window_ms, "claim": claim(number).hex()}).encode()


def dealt_to(dealer: Dealer, *bodies: bytes) -> list[Dealt]:
    """Deal in one transaction, where nothing is refused."""
    found = dealer.deal(bodies)
    refused = [one for one in found if isinstance(one, RefusedError)]
    assert refused == []
    return [one for one in found if isinstance(one, Dealt)]


def refused_to(dealer: Dealer, request_body: bytes) -> RefusedError:
    [found] = dealer.deal([request_body])
    assert isinstance(found, RefusedError)
    return found


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock(WEEK + 5_000)


@pytest.fixture
def dealer(tmp_path: Path, clock: ManualClock) -> Dealer:
    return Dealer(DealerState(tmp_path / "dealer.sqlite"), Known(CARDS, survey()), clock)


def test_every_block_is_its_deck_and_the_rest_is_refused(dealer: Dealer) -> None:
    dealt = [*dealt_to(dealer, *map(body, range(10))), *(dealt_to(dealer, body(number))[0] for number in range(10, 21))]
    assert [one.block for one in dealt] == [0] * 7 + [1] * 7 + [2] * 7
    for block in range(3):
        assert Counter(one.card for one in dealt if one.block == block) == {1: 2, 2: 1, 3: 4}
    assert "all cards of this window are dealt" in str(refused_to(dealer, body(21)))
    assert dealt_to(dealer, *map(body, range(21))) == dealt, "a claim keeps its card"
    assert dealer.registry.get_sample_value("thaw_dealer_cards_total", {"survey": CARDS.id}) == 21


def test_another_process_with_the_file_goes_on_where_the_first_one_stopped(tmp_path: Path, clock: ManualClock) -> None:
    dealt: list[Dealt] = []
    for number in range(7):
        state = DealerState(tmp_path / "dealer.sqlite")
        dealt += dealt_to(Dealer(state, Known(CARDS), clock), body(number))
        state.close()
    assert Counter(one.card for one in dealt) == {1: 2, 2: 1, 3: 4}
    assert (tmp_path / "dealer.sqlite").stat().st_mode & 0o77 == 0, "for its owner only"


def test_one_claim_that_asks_twice_at_once_gets_one_card_and_a_refused_one_does_not_keep_the_others_from_theirs(
    dealer: Dealer,
) -> None:
    first, other, again, refused = dealer.deal([body(1), body(2), body(1), b"{}"])
    assert first == again
    assert isinstance(other, Dealt)
    assert isinstance(refused, RefusedError)
    assert dealer.registry.get_sample_value("thaw_dealer_cards_total", {"survey": CARDS.id}) == 2


@pytest.mark.parametrize(
    ("request_body", "status", "reason"),
    [
        (b"{}", 400, "malformed"),
        (b"[1]", 400, "malformed"),
        (body(1).replace(b"00", b"0g"), 400, "malformed"),
        (body(1).replace(b"00", b""), 400, "malformed"),
        (body(1, survey_id="nobody-12345678"), 404, "survey"),
        (body(1, survey_id=survey().id), 404, "survey"),
        (body(1, WEEK + 1), 409, "window"),
        (body(1, WEEK - 120_000), 409, "window"),
        (body(1, WEEK + 120_000), 409, "window"),
    ],
)
def test_what_is_no_request_for_an_open_window_gets_no_card(
    dealer: Dealer, request_body: bytes, status: int, reason: str
) -> None:
    refused = refused_to(dealer, request_body)
    assert (refused.status, refused.reason) == (status, reason)
    assert dealer.registry.get_sample_value("thaw_dealer_refused_total", {"reason": reason}) == 1


def test_who_held_which_card_is_forgotten_when_no_more_are_dealt(
    dealer: Dealer, clock: ManualClock, tmp_path: Path
) -> None:
    dealt_to(dealer, *map(body, range(3)))
    clock.advance(115_000 - 1)
    assert dealer.forget() == 0, "a device whose clock is late may still ask again"
    clock.advance(2)
    assert dealer.forget() == 3
    assert "while a window is open" in str(refused_to(dealer, body(1)))


def test_cards_are_drawn_evenly_from_what_is_left() -> None:
    drawn = Counter(draw_card([2, 0, 4], SeededBits(1, number)) for number in range(3_000))
    assert set(drawn) == {1, 3}
    # Binomial(3000, 1/3): six standard deviations are 155, a chance of 2e-9.
    assert abs(drawn[1] - 1_000) < 155


def test_a_file_that_is_no_dealers_is_named(tmp_path: Path) -> None:
    (tmp_path / "text").write_text("not a database, but long enough to look at" * 30)
    with pytest.raises(OutsideError, match=r"text cannot be used .* THAW_DEALER_FILE"):
        DealerState(tmp_path / "text")


def test_the_dealer_exports_its_part_of_the_table(dealer: Dealer) -> None:
    exported = {family.name + "_total" for family in dealer.registry.collect()}
    assert exported == {metric.name for metric in METRICS if metric.process == "dealer"}
