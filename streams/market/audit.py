"""The audit of the books: receipts, delivered files, answers and amounts, counted again and compared."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from typing import NamedTuple

from producers.survey.signing import verifier
from streams.market.books import Books, Delivery, Sale
from streams.market.delivery import Form, answers_in, delivery_of, token_of
from streams.market.failures import MarketError
from streams.market.levels import merged
from streams.market.market import Market, money
from streams.market.receipt import Receipt, check_delivery, opened_receipt


class Loss(NamedTuple):
    """What the chains of a survey have lost: how many of them by the highest rung that anybody bought of them."""

    survey: str
    windows: int
    chains: dict[int, int]
    epsilons: dict[int, float]

    @property
    def total(self) -> float:
        """Return the sum over all chains."""
        return sum(self.epsilons[rung] * count for rung, count in self.chains.items())

    @property
    def highest(self) -> float:
        """Return the most that a chain has lost."""
        return max((self.epsilons[rung] for rung in self.chains), default=0.0)


def losses_of(books: Books) -> list[Loss]:
    """Return what the chains of every survey have lost, by the books."""
    chains: dict[str, Counter[int]] = {}
    windows: Counter[str] = Counter()
    for (survey, _), rungs in books.losses().items():
        chains.setdefault(survey, Counter()).update(rungs)
        windows[survey] += 1
    return [Loss(name, windows[name], dict(found), books.epsilons(name)) for name, found in sorted(chains.items())]


@dataclass
class Audited:
    """What an audit found. missing: files that are not there; lost: answers that Redis has lost since, which the next
    sale puts back.
    """

    sales: int = 0
    deliveries: int = 0
    answers: int = 0
    chains: int = 0
    missing: list[str] = field(default_factory=list)
    lost: int = 0
    contradictions: list[str] = field(default_factory=list)


_Seen = dict[tuple[str, bytes, int], bytes]
"""Delivered answers by survey, delivered token and rung."""


def audit(market: Market) -> Audited:
    """Compare all that the market has with each other."""
    found, seen, books = Audited(), _Seen(), market.books
    for sale in books.sales():
        found.sales += 1
        deliveries = books.deliveries(sale.id)
        if not deliveries:
            found.contradictions.append(f"sale {sale.id} was never delivered")
        for delivery in deliveries:
            found.deliveries += 1
            try:
                _check_delivery(market, sale, delivery, seen, found)
            except MarketError as error:
                found.contradictions.append(f"delivery {delivery.id}: {error}")
    _check_amounts(market, found)
    _check_losses(market, seen, found)
    _check_store(market, found)
    return found


def _check_delivery(market: Market, sale: Sale, delivery: Delivery, seen: _Seen, found: Audited) -> None:
    books, offer = market.books, sale.offer
    receipt = opened_receipt(delivery.receipt, verifier(books.key))
    told = (receipt.sale, receipt.delivery, receipt.buyer, receipt.paid, receipt.rung)
    if told != (sale.id, delivery.id, sale.buyer, sale.paid, offer.rung):
        raise MarketError(f"its receipt tells of another sale: {told}")
    if (receipt.survey, receipt.first_ms, receipt.end_ms) != offer[1:4]:
        raise MarketError("its receipt tells of other windows than were offered")
    if receipt.epsilon != books.epsilons(offer.survey)[offer.rung]:
        raise MarketError("its receipt tells of another level than the books")
    raw, _ = delivery_of(books.secret, Form.as_told(receipt), receipt.rung, books.delivered(delivery.id))
    check_delivery(receipt, raw)
    _check_files(market, receipt, delivery, seen, found)


def _check_files(market: Market, receipt: Receipt, delivery: Delivery, seen: _Seen, found: Audited) -> None:
    """Look at what the buyer has, by the files alone."""
    file, receipt_file = market.files(receipt)
    found.missing += [str(path) for path in (file, receipt_file) if not path.exists()]
    if receipt_file.exists() and receipt_file.read_bytes() != delivery.receipt:
        raise MarketError(f"{receipt_file} is not the receipt in the books")
    if not file.exists():
        return
    for reports in check_delivery(receipt, file.read_bytes()).values():
        for (token, rung), answer in answers_in(reports).items():
            found.answers += 1
            if seen.setdefault((receipt.survey, token, rung), answer) != answer:
                raise MarketError(f"two buyers have different answers of one chain and rung {rung}")


def _check_amounts(market: Market, found: Audited) -> None:
    for buyer in market.books.buyers():
        for holding in market.books.holdings(buyer):
            if holding.paid != holding.sale.offer.price:
                found.contradictions.append(
                    f"{buyer} paid {money(holding.paid)} for what offer {holding.sale.offer.id} sells for "
                    f"{money(holding.sale.offer.price)}"
                )


def _check_losses(market: Market, seen: _Seen, found: Audited) -> None:
    """Want the highest level sold of each chain to be the same in the books and in the buyers' files."""
    highest: dict[tuple[str, bytes], int] = {}
    for survey_id, token, rung in seen:
        highest[survey_id, token] = max(rung, highest.get((survey_id, token), 0))
    booked: dict[tuple[str, bytes], int] = {}
    for survey_id, window_ms, shard, name, rung in market.books.highest_sold():
        token = token_of(market.books.secret, survey_id, window_ms, shard, name)
        booked[survey_id, token] = rung
    found.chains = len(booked)
    wrong = sum(booked.get(chain) != rung for chain, rung in highest.items())
    if not found.missing:
        wrong += len(booked.keys() - highest.keys())
    if wrong:
        found.contradictions.append(f"of {wrong} chains the buyers have another level than the books say")


def _check_store(market: Market, found: Audited) -> None:
    """Want Redis to have what the books have, as far as its windows have not expired."""
    for survey_id, window_ms in market.books.losses():
        survey = market.survey(survey_id)
        if not market.stock.windows(survey, window_ms, window_ms + 1):
            continue
        log = market.stock.read(survey, window_ms)
        for shard, answers in sorted(market.books.answers(survey_id, window_ms).items()):
            kept, withdrawn = market.stock.held(survey, window_ms, shard), log.shards[shard].withdrawn
            found.lost += sum(place.name not in withdrawn for place in answers.keys() - kept.keys())
            common = {place: answer for place, answer in answers.items() if place in kept}
            try:
                merged(f"{survey_id}, window {window_ms}", kept, common)
            except MarketError as error:
                found.contradictions.append(str(error))
