"""Sale, resale and delivery on a store in memory: what buyers get, what is refused, and what the books say."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from estimators.exact.randomness import SeededBits
from producers.survey.publication import Publication
from producers.survey.signing import Signer, verifier
from producers.survey.survey import parse_survey
from producers.wire.frames import Reports
from streams.market.audit import audit, losses_of
from streams.market.books import Books
from streams.market.delivery import answers_in
from streams.market.failures import ContradictionError, MarketError
from streams.market.market import Handover, Market
from streams.market.receipt import check_delivery, opened_receipt
from streams.store.shard_counts import ShardCounts
from tests.support.continuing import LONGER, SHORT
from tests.support.market import Counting, market_in
from tests.support.memory_store import MemorySmallStates, MemoryStore
from tests.support.surveys import WEEK, WINDOW_MS, survey, survey_text

NOW_MS = WEEK + WINDOW_MS + 60_000
ASKED = survey(shards="shards = 4")
DEVICES = 60


class Scene:
    """Three groups of devices of one window: on rung 0, on rung 2, and on rung 2 after both lower ones."""

    def __init__(self, folder: Path) -> None:
        self.store = MemoryStore(lambda: NOW_MS)
        self.counting = Counting(self.store, ASKED, NOW_MS)
        self.block = self.counting.block(WEEK, DEVICES)
        third = DEVICES // 3
        self.low, self.skipped, self.all = (range(i * third, (i + 1) * third) for i in range(3))
        self.count(0, [*self.low, *self.all])
        self.count(1, self.all)
        self.count(2, [*self.skipped, *self.all])
        self.market = market_in(folder, self.store, ASKED, clock=lambda: NOW_MS, bits=SeededBits(1))

    def count(self, rung: int, rows: object) -> None:
        self.counting.count(self.block, WEEK, rung, np.array(list(rows), dtype=np.intp))  # type: ignore[call-overload]

    def offers(self) -> None:
        for rung, price in ((0, 100), (1, 250), (2, 1000)):
            self.market.offer(ASKED, rung, price, None, None)


@pytest.fixture
def scene(tmp_path: Path) -> Scene:
    made = Scene(tmp_path)
    made.offers()
    return made


def delivered(market: Market, handover: Handover) -> Reports:
    receipt = opened_receipt(handover.receipt_file.read_bytes(), verifier(market.books.key))
    assert receipt == handover.receipt
    return check_delivery(receipt, handover.file.read_bytes())[WEEK]


def by_token(reports: Reports) -> dict[bytes, tuple[int, bytes]]:
    return {token: (rung, answer) for (token, rung), answer in answers_in(reports).items()}


def test_a_sale_delivers_every_chain_at_its_level_and_no_token_of_a_device(scene: Scene) -> None:
    market = scene.market
    sold = market.buy("acme", 1)
    reports = delivered(market, sold)
    assert len(reports) == DEVICES
    assert set(reports.rungs.tolist()) == {0}
    # Those who skipped rung 0 have it drawn; of the others it is their own answer.
    assert sold.drawn == len(scene.skipped)
    assert not {bytes(token) for token in reports.tokens} & {bytes(token) for token in scene.block.tokens}
    own = np.bincount(scene.block.answers[0][[*scene.low, *scene.all]], minlength=3)
    assert (np.bincount(reports.answers[:, 0], minlength=3) >= own).all()
    assert (sold.receipt.paid, sold.receipt.total, sold.receipt.answers) == (100, 100, DEVICES)
    assert audit(market).contradictions == []


def test_an_upgrade_costs_the_difference_and_sharpens_the_same_chains(scene: Scene) -> None:
    market = scene.market
    first = by_token(delivered(market, market.buy("acme", 1)))
    sold = market.upgrade("acme", 3)
    second = by_token(delivered(market, sold))
    assert (sold.receipt.paid, sold.receipt.total) == (900, 1000)
    assert first.keys() == second.keys()
    rungs = np.bincount([rung for rung, _ in second.values()], minlength=3)
    assert rungs.tolist() == [len(scene.low), 0, len(scene.skipped) + len(scene.all)]
    # What nobody sharpened is as it was.
    assert all(first[token] == held for token, held in second.items() if held[0] == 0)
    (loss,) = losses_of(market.books)
    assert loss.chains == {0: len(scene.low), 2: len(scene.skipped) + len(scene.all)}
    assert loss.highest == ASKED.mechanism.epsilons[2]
    assert audit(market).contradictions == []


def test_two_buyers_of_one_level_have_the_same_answers(scene: Scene) -> None:
    market = scene.market
    one, other = (delivered(market, market.buy(buyer, 2)) for buyer in ("acme", "bolt"))
    assert by_token(one) == by_token(other)
    # A level between: drawn from both neighbours, and the same for all who come later.
    market.buy("cord", 1)
    found = audit(market)
    assert (found.contradictions, found.chains, found.answers) == ([], DEVICES, 3 * DEVICES)


def test_devices_that_climb_later_are_delivered_later(scene: Scene) -> None:
    market = scene.market
    before = by_token(delivered(market, market.buy("acme", 2)))
    assert [made.again for made in market.deliver("acme")] == [True]
    scene.count(2, scene.low)
    (made,) = market.deliver("acme")
    assert not made.again
    after = by_token(delivered(market, made))
    assert {rung for rung, _ in after.values()} == {1}
    assert all(after[token] == held for token, held in before.items() if held[0] == 1)
    assert audit(market).contradictions == []


def test_what_a_device_released_below_a_drawn_answer_is_not_used_later(scene: Scene) -> None:
    # The log of the one that skipped has rung 2 alone; its own rung 1 turns up after rung 0 was drawn from rung 2.
    market, state = scene.market, scene.store
    market.buy("acme", 1)
    snapshot = by_token(delivered(market, market.buy("bolt", 2)))
    scene.count(1, scene.skipped)  # outdated: it is not counted
    assert by_token(delivered(market, market.buy("cord", 2))) == snapshot
    assert state.estimates.window_starts(ASKED.id) == [WEEK]


def test_a_purchase_below_or_beside_an_earlier_one_is_refused_and_changes_nothing(scene: Scene) -> None:
    market = scene.market
    market.buy("acme", 2)
    before = (market.books.sales(), market.books.deliveries(), market.books.losses())
    for what, offer, reason in (
        (market.buy, 1, r"acme holds rung 1 of these windows \(sale 1\), which tells all that rung 0 tells"),
        (market.upgrade, 1, "which tells all that rung 0 tells; nothing is sold"),
        (market.upgrade, 2, "tells all that rung 1 tells"),
        (market.buy, 3, "`thaw market upgrade` sells rung 2 for the difference, 7.50"),
        (market.buy, 9, "there is no offer 9"),
    ):
        with pytest.raises(MarketError, match=reason):
            what("acme", offer)
    with pytest.raises(MarketError, match="bolt holds nothing of exactly the windows of offer 3"):
        market.upgrade("bolt", 3)
    with pytest.raises(MarketError, match="a buyer is named by"):
        market.buy("../acme", 1)
    with pytest.raises(MarketError, match="bolt has bought nothing"):
        market.deliver("bolt")
    wider = market.offer(ASKED, 2, 5000, WEEK - WINDOW_MS, WEEK + WINDOW_MS)
    with pytest.raises(MarketError, match="and offer 4 has some of them; sell windows apart"):
        market.buy("acme", wider.id)
    assert (market.books.sales(), market.books.deliveries(), market.books.losses()) == before


def test_offers_that_cannot_be_are_refused(scene: Scene) -> None:
    market = scene.market
    for rung, price, reason in (
        (1, 300, "offer 2 is of the same windows and level"),
        (3, 300, "has rungs 0 to 2; got 3"),
    ):
        with pytest.raises(MarketError, match=reason):
            market.offer(ASKED, rung, price, None, None)
    with pytest.raises(MarketError, match="a range that is not empty"):
        market.offer(ASKED, 1, 300, WEEK, WEEK)
    market.offer(ASKED, 1, 300, WEEK, WEEK + 5)
    with pytest.raises(MarketError, match=r"rung 1 would cost more than rung 2 .* prices must rise"):
        market.offer(ASKED, 2, 299, WEEK, WEEK + 5)
    with pytest.raises(MarketError, match="a standing value has one answer behind many tokens"):
        market.offer(replace(ASKED, standing=True), 1, 300, WEEK, WEEK + 7)
    tiered = survey(shards="shards = 4\ntiers = {public = 0, owner = 2}")
    with pytest.raises(MarketError, match="what one audience may know"):
        market.offer(tiered.tier_surveys[0], 0, 300, WEEK, WEEK + 7)


def test_windows_without_answers_are_not_sold(scene: Scene) -> None:
    market = scene.market
    offer = market.offer(ASKED, 0, 100, WEEK + WINDOW_MS, WEEK + 9 * WINDOW_MS)
    with pytest.raises(MarketError, match="there are no answers to deliver for offer 4"):
        market.buy("acme", offer.id)
    assert market.books.sales() == []


def test_other_books_cannot_sell_the_same_survey(scene: Scene, tmp_path: Path) -> None:
    scene.market.buy("acme", 1)
    (tmp_path / "other").mkdir()
    other = market_in(tmp_path / "other", scene.store, ASKED, clock=lambda: NOW_MS)
    other.offer(ASKED, 0, 100, None, None)
    with pytest.raises(MarketError, match="is sold from other books"):
        other.buy("bolt", 1)
    assert other.books.sales() == []


def test_a_missing_file_is_told_and_written_again(scene: Scene) -> None:
    market = scene.market
    sold = market.buy("acme", 2)
    raw = sold.file.read_bytes()
    sold.file.unlink()
    found = audit(market)
    assert (found.missing, found.contradictions) == ([str(sold.file)], [])
    market.deliver("acme")
    assert sold.file.read_bytes() == raw
    assert audit(market).missing == []


def test_what_redis_loses_comes_back_from_the_books(scene: Scene) -> None:
    market, before = scene.market, scene.store.snapshot()
    first = by_token(delivered(market, market.buy("acme", 1)))
    scene.store.restore(before)
    assert audit(market).lost > 0
    assert by_token(delivered(market, market.buy("bolt", 1))) == first
    assert (audit(market).lost, audit(market).contradictions) == (0, [])


def test_what_restored_books_lack_is_still_in_redis(scene: Scene, tmp_path: Path) -> None:
    market = scene.market
    market.books.close()
    copy = (tmp_path / "books.sqlite").read_bytes()
    sold = open_market(scene, tmp_path)
    first = by_token(delivered(sold, sold.buy("acme", 1)))
    sold.books.close()
    for path in tmp_path.glob("books.sqlite*"):
        path.unlink()
    (tmp_path / "books.sqlite").write_bytes(copy)
    again = open_market(scene, tmp_path)
    assert again.books.sales() == []
    made = again.buy("bolt", 1)
    assert made.drawn == 0
    assert by_token(delivered(again, made)) == first


def open_market(scene: Scene, folder: Path, seed: int = 7) -> Market:
    books, signer = Books(folder / "books.sqlite"), Signer(folder / "key.pem")
    return Market(
        scene.store, [ASKED], books, signer, folder / "deliveries", clock=lambda: NOW_MS, bits=SeededBits(seed)
    )


def test_books_and_redis_that_differ_sell_nothing(scene: Scene) -> None:
    market = scene.market
    market.buy("acme", 1)
    shard = next(shard for shard in range(ASKED.shards) if market.stock.held(ASKED, WEEK, shard))
    place = ASKED.id, f"sold-{shard}", WEEK
    stored = scene.store.states.get(*place)
    other = stored[:14] + bytes([(stored[14] + 1) % 3]) + stored[15:]
    assert scene.store.states.swap(*place, stored, other, NOW_MS + WINDOW_MS * 1_000)
    with pytest.raises(ContradictionError, match="Redis and the books have 1 answers"):
        market.buy("bolt", 1)
    assert [sale.buyer for sale in market.books.sales()] == ["acme"]
    (line,) = audit(market).contradictions
    assert "Redis and the books have 1 answers" in line


def test_a_draw_of_another_process_that_came_first_counts(scene: Scene, tmp_path: Path) -> None:
    # The other one, with a copy of the books, sells the same level between reading and writing.
    market, states = scene.market, scene.store.states
    market.books.close()
    (tmp_path / "copy").mkdir()
    for name in ("books.sqlite", "key.pem"):
        (tmp_path / "copy" / name).write_bytes((tmp_path / name).read_bytes())
    market, other = open_market(scene, tmp_path), open_market(scene, tmp_path / "copy", 8)
    sold: list[Handover] = []

    class Racing(MemorySmallStates):
        def swap(self, survey_id: str, name: str, *others: Any) -> bool:
            if name.startswith("sold-") and not sold:
                scene.store.states = states
                sold.append(other.buy("bolt", 1))
            return super().swap(survey_id, name, *others)

    scene.store.states = Racing(scene.store._shared)
    mine = delivered(market, market.buy("acme", 1))
    assert by_token(mine) == by_token(delivered(other, sold[0]))


def test_a_survey_that_publishes_nothing_of_few_devices_sells_nothing_of_them(scene: Scene) -> None:
    careful = replace(ASKED, publication=Publication(least_devices=DEVICES + 1))
    scene.market._surveys[ASKED.id] = careful
    with pytest.raises(MarketError, match="or the survey publishes nothing of so few devices; nothing was sold"):
        scene.market.buy("acme", 1)
    assert scene.market.books.sales() == []


def test_bit_vectors_in_groups_with_withdrawals_and_tiers(tmp_path: Path) -> None:
    text = survey_text(shards="shards = 2\nwithdrawable = true\ntiers = {public = 0, owner = 2}")
    asked = parse_survey(text.replace('"grr"', '"rappor"\nbits = 12\ncohorts = 3'))
    store = MemoryStore(lambda: NOW_MS)
    counting = Counting(store, asked, NOW_MS)
    block = counting.block(WEEK, 40)
    for rung, rows in ((0, range(20)), (2, range(40)), (3, range(5))):
        counting.count(block, WEEK, rung, rows)
    market = market_in(tmp_path, store, asked, clock=lambda: NOW_MS)
    for rung in (0, 1):
        market.offer(asked, rung, 100 * rung, None, None)
    sold = market.buy("acme", 1)
    # Five took their answers back; of the first twenty the tier's log still has the answer of rung 0.
    assert (sold.receipt.answers, sold.drawn) == (35, 20)
    first = delivered(market, sold)
    assert first.groups is not None
    assert set(first.groups.tolist()) <= {0, 1, 2}
    counting.count(block, WEEK, 3, range(5, 8))
    second = delivered(market, market.upgrade("acme", 2))
    assert len(second) == 32
    assert audit(market).contradictions == []


def test_a_continued_survey_is_sold_from_the_same_books_under_the_same_tokens(tmp_path: Path) -> None:
    store = MemoryStore(lambda: NOW_MS)
    counting = Counting(store, SHORT, NOW_MS)
    counting.count(counting.block(WEEK, 30), WEEK, 1, range(30))
    before = market_in(tmp_path, store, SHORT, clock=lambda: NOW_MS)
    before.offer(SHORT, 0, 100, None, None)
    first = by_token(delivered(before, before.buy("acme", 1)))
    before.books.close()
    books, signer = Books(tmp_path / "books.sqlite"), Signer(tmp_path / "key.pem")
    market = Market(store, [LONGER], books, signer, tmp_path / "deliveries", clock=lambda: NOW_MS)
    market.offer(LONGER, 2, 1000, None, None)
    second = by_token(delivered(market, market.upgrade("acme", 2)))
    assert second.keys() == first.keys()
    assert {rung for rung, _ in second.values()} == {1}
    assert audit(market).contradictions == []
    assert list(books.epsilons(SHORT.id)) == [0, 1, 2]


def test_a_sale_waits_for_logs_that_change_and_gives_up_on_those_that_never_rest(
    scene: Scene, monkeypatch: pytest.MonkeyPatch
) -> None:
    counts, busy = scene.store.estimates.counts, [True]

    def changing(*place: Any, **options: Any) -> list[ShardCounts]:
        changed = busy.pop() if len(busy) > 1 else busy[0]
        return [replace(shard, entries=None, changed=True) if changed else shard for shard in counts(*place, **options)]

    monkeypatch.setattr(scene.store.estimates, "counts", changing)
    with pytest.raises(MarketError, match="change while they are read: try again"):
        scene.market.buy("acme", 1)
    busy[:] = [False, True, True]
    assert len(delivered(scene.market, scene.market.buy("acme", 1))) == DEVICES
