"""Offers, purchases and deliveries: what `thaw market` does.

A purchase, in this order: it is checked against the books; the answers are drawn and kept in Redis; sale, answers and
signed receipt enter the books in one transaction; the files are written. Killed before the transaction, nothing was
sold and no draw was seen; killed after it, the files are made again from the books (`deliver`).
"""

from __future__ import annotations

import hashlib
import math
import re
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Final, NamedTuple

from estimators.exact.randomness import Bits, SecureBits
from producers.clock import Clock, system_clock
from producers.survey.signing import Signer, verifier
from producers.survey.survey import Survey
from streams.market.books import Books, Delivered, Delivery, Holding, Offer, Sale
from streams.market.delivery import Form, delivery_of, write_file
from streams.market.failures import ContradictionError, MarketError
from streams.market.levels import Place
from streams.market.receipt import Receipt, opened_receipt, sealed_receipt
from streams.market.stock import Stock
from streams.store.contract import Store
from streams.store.shape import Shape

_BUYER: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,63}", re.ASCII)
"""It is part of file names."""


@dataclass(frozen=True)
class Handover:
    """What a buyer is handed: the receipt, and where receipt and answers are.

    again: nothing came since the last delivery, which this is. drawn, broken: answers that were drawn for this one, and
    chains whose answers belong to no chain, which stay at their lower level.
    """

    receipt: Receipt
    file: Path
    receipt_file: Path
    drawn: int = 0
    broken: int = 0
    again: bool = False


class _Made(NamedTuple):
    handover: Handover
    raw: bytes
    sealed: bytes


class Market:
    """A market on a store, with its books; deliveries are written to a folder beside the books.

    Args:
        store: where answers are counted.
        surveys: those that may be sold.
        books: whose transactions serialise all sales.
        signer: signs receipts; the first key that does is that of the books. None: nothing is sold.
        folder: for deliveries.
        bits: random words for draws.
    """

    def __init__(
        self,
        store: Store,
        surveys: Iterable[Survey],
        books: Books,
        signer: Signer | None,
        folder: Path,
        *,
        clock: Clock = system_clock,
        bits: Bits | None = None,
    ) -> None:
        self.books, self.folder = books, folder
        self._signer, self._clock = signer, clock
        self._surveys = {survey.id: survey for survey in surveys if survey.tier is None}
        self.stock = Stock(store, bits or SecureBits())
        if signer is not None and books.key not in ("", signer.public_text):
            raise MarketError(
                f"receipts of these books are signed with the key {books.key}, not {signer.public_text}; use that key"
            )

    # Offers.

    def offer(self, survey: Survey, rung: int, price: int, first_ms: int | None, end_ms: int | None) -> Offer:
        """Offer the answers of a survey's windows that start in [first_ms, end_ms), up to a rung, for a price.

        Without a first or an end: from the first window that the store has, or up to the last one.
        """
        check_sellable(survey, rung)
        known = self.stock.windows(survey, -(1 << 62), 1 << 62)
        if not known and (first_ms is None or end_ms is None):
            raise MarketError(f"{survey.id} has no window with answers yet; wait, or say which with --from and --until")
        first_ms = known[0] if first_ms is None else first_ms
        end_ms = known[-1] + survey.windows.step_ms if end_ms is None else end_ms
        if first_ms >= end_ms:
            raise MarketError(f"the windows must start in a range that is not empty; got {first_ms} to {end_ms}")
        wanted = Offer(0, survey.id, first_ms, end_ms, rung, price)
        with self.books.transaction():
            for other in self.books.offers():
                if other[1:4] == wanted[1:4]:
                    _check_price(wanted, other)
            return self.books.add_offer(wanted, survey.mechanism.epsilons, self._clock())

    def survey(self, survey_id: str) -> Survey:
        """Return a survey that is sold.

        Raises:
            MarketError: its file is not in the folder.
        """
        if survey_id not in self._surveys:
            raise MarketError(f"{survey_id} is not in the survey folder; put its file back")
        return self._surveys[survey_id]

    # Sales.

    def buy(self, buyer: str, offer_id: int) -> Handover:
        """Sell an offer to a buyer who holds nothing of its windows, and deliver it."""
        if not _BUYER.fullmatch(buyer):
            raise MarketError(f"a buyer is named by up to 64 letters, digits, dots and dashes; got {buyer!r}")
        with self.books.transaction():
            offer = self._offer(offer_id)
            for holding in self.books.holdings(buyer):
                _check_apart(holding, offer)
            made = self._sold(self.books.add_sale(buyer, offer, offer.price, self._clock()), offer.price)
        return self._written(made)

    def upgrade(self, buyer: str, offer_id: int) -> Handover:
        """Sell a higher level of windows that the buyer holds, for the difference, and deliver it."""
        with self.books.transaction():
            offer = self._offer(offer_id)
            held = [holding for holding in self.books.holdings(buyer) if holding.sale.offer[1:4] == offer[1:4]]
            if not held:
                raise MarketError(f"{buyer} holds nothing of exactly the windows of offer {offer.id}; buy it instead")
            _check_above(held[0], offer)
            paid = max(offer.price - held[0].paid, 0)
            made = self._sold(self.books.add_sale(buyer, offer, paid, self._clock()), held[0].paid + paid)
        return self._written(made)

    def deliver(self, buyer: str) -> list[Handover]:
        """Deliver what came since the last deliveries of a buyer, and write all files that are missing."""
        found = []
        holdings = self.books.holdings(buyer)
        if not holdings:
            raise MarketError(f"{buyer} has bought nothing")
        for sale in self.books.sales(buyer):
            for delivery in self.books.deliveries(sale.id):
                self._restore(delivery)
        for holding in holdings:
            with self.books.transaction():
                made = self._made(holding.sale, holding.paid)
            if made is not None:
                found.append(self._written(made))
            else:
                last = self.books.deliveries(holding.sale.id)[-1]
                found.append(self._handover(self._opened(last), again=True))
        return found

    def _offer(self, offer_id: int) -> Offer:
        found = {offer.id: offer for offer in self.books.offers()}
        if offer_id not in found:
            raise MarketError(f"there is no offer {offer_id}; `thaw market offers` lists them")
        return found[offer_id]

    def _sold(self, sale: Sale, total: int) -> _Made:
        made = self._made(sale, total)
        if made is None:
            raise MarketError(
                f"there are no answers to deliver for offer {sale.offer.id}: its windows are not in the store (any "
                "more), or the survey publishes nothing of so few devices; nothing was sold"
            )
        return made

    def _made(self, sale: Sale, total: int) -> _Made | None:
        """Draw, keep and enter the answers of a sale; return what is delivered, None if there is nothing new."""
        assert self._signer is not None
        offer, survey = sale.offer, self.survey(sale.offer.survey)
        windows = self.stock.windows(survey, offer.first_ms, offer.end_ms)
        if not windows:
            return None
        self.stock.claim(survey, self.books.id, windows[-1])
        self.books.use_key(self._signer.public_text)
        self.books.forget_unsold(survey.id, self._clock() - Shape.of(survey).life_ms)
        answers, chains, drawn, broken = list[Delivered](), list[tuple[int, int]](), 0, 0
        for window_ms in windows:
            log = self.stock.read(survey, window_ms)
            if log.withheld or not log.chains:
                continue
            booked = self.books.answers(survey.id, window_ms)
            for shard, sold in enumerate(self.stock.sell(survey, log, offer.rung, booked)):
                numbers = self.books.keep(survey.id, window_ms, shard, sold.held, sold.rungs)
                for name, rung in sold.rungs.items():
                    place = Place(name, rung)
                    answers.append(Delivered(window_ms, shard, place, sold.held[place]))
                    chains.append((numbers[name], rung))
                drawn, broken = drawn + sold.drawn, broken + sold.broken
        had = {one for before in self.books.deliveries(sale.id) for one in self.books.delivered(before.id)}
        if had.issuperset(answers):
            return None
        form = Form.of(survey)
        raw, told = delivery_of(self.books.secret, form, offer.rung, answers)
        receipt = Receipt(
            books=self.books.id.decode(),
            buyer=sale.buyer,
            sale=sale.id,
            delivery=self.books.next_delivery(),
            issued_ms=self._clock(),
            survey=survey.id,
            digest=form.digest.hex(),
            first_ms=offer.first_ms,
            end_ms=offer.end_ms,
            rung=offer.rung,
            epsilon=self.books.epsilons(survey.id)[offer.rung],
            paid=sale.paid,
            total=total,
            bytes=len(raw),
            sha256=hashlib.sha256(raw).hexdigest(),
            width=form.layout.width,
            grouped=form.layout.grouped,
            shards=form.shards,
            windows=tuple(told),
        )
        sealed = sealed_receipt(receipt, self._signer.sign)
        self.books.add_delivery(Delivery(receipt.delivery, sale.id, sealed), chains)
        return _Made(self._handover(receipt, drawn=drawn, broken=broken), raw, sealed)

    # Files.

    def _opened(self, delivery: Delivery) -> Receipt:
        return opened_receipt(delivery.receipt, verifier(self.books.key))

    def files(self, receipt: Receipt) -> tuple[Path, Path]:
        """Return where the answers of a delivery and its receipt are."""
        made = self._handover(receipt)
        return made.file, made.receipt_file

    def _handover(self, receipt: Receipt, *, drawn: int = 0, broken: int = 0, again: bool = False) -> Handover:
        file = self.folder / receipt.buyer / f"delivery-{receipt.delivery}.frames"
        return Handover(receipt, file, file.with_suffix(".receipt"), drawn, broken, again)

    def _written(self, made: _Made) -> Handover:
        # The receipt last: where there is one, there is what it is of.
        write_file(made.handover.file, made.raw)
        write_file(made.handover.receipt_file, made.sealed)
        return made.handover

    def _restore(self, delivery: Delivery) -> None:
        """Write the files of a delivery again if they are missing: the process was killed, or somebody removed them."""
        receipt = self._opened(delivery)
        handover = self._handover(receipt)
        if not (handover.file.exists() and handover.receipt_file.exists()):
            answers = self.books.delivered(delivery.id)
            raw, _ = delivery_of(self.books.secret, Form.as_told(receipt), receipt.rung, answers)
            if hashlib.sha256(raw).hexdigest() != receipt.sha256:
                raise ContradictionError(
                    f"the books have other answers than delivery {delivery.id} had; the file is not written again"
                )
            self._written(_Made(handover, raw, delivery.receipt))


def check_sellable(survey: Survey, rung: int) -> None:
    """Refuse what cannot be sold at the price in privacy that it says.

    Raises:
        MarketError: with the reason.
    """
    mechanism, top = survey.mechanism, survey.mechanism.rungs - 1
    if survey.tier is not None:
        raise MarketError(f"{survey.id} is what one audience may know; sell answers of {survey.whole.id}")
    if not 0 <= rung <= top:
        raise MarketError(f"{survey.id} has rungs 0 to {top}; got {rung}")
    if mechanism.guarantee.protects == "nothing" or not math.isfinite(mechanism.epsilons[rung]):
        raise MarketError(
            f"{survey.id}: single answers of {mechanism.name} have no protection of their own, only what is published "
            "of all of them; they are not sold"
        )
    if rung < top and (survey.standing or mechanism.downgrade is None):
        why = "a standing value has one answer behind many tokens, so a level would be drawn several times from it"
        raise MarketError(
            f"{survey.id}: {why if survey.standing else 'its answers have no kernel'}; sell rung {top}, whose answers "
            "are those of the devices"
        )


def _check_price(wanted: Offer, other: Offer) -> None:
    if other.rung == wanted.rung:
        raise MarketError(f"offer {other.id} is of the same windows and level; an offer stays as it is")
    lower, higher = sorted((wanted, other), key=lambda offer: offer.rung)
    if lower.price > higher.price:
        raise MarketError(
            f"rung {lower.rung} would cost more than rung {higher.rung} of the same windows, which tells all of it "
            f"(offer {other.id} costs {money(other.price)}); prices must rise with the level"
        )


def _check_apart(holding: Holding, offer: Offer) -> None:
    held = holding.sale.offer
    if held.survey != offer.survey or not (held.first_ms < offer.end_ms and offer.first_ms < held.end_ms):
        return
    if held[1:4] != offer[1:4]:
        raise MarketError(
            f"{holding.sale.buyer} holds rung {held.rung} of windows {held.first_ms} to {held.end_ms} of "
            f"{held.survey}, and offer {offer.id} has some of them; sell windows apart from those, or upgrade them"
        )
    _check_above(holding, offer)
    raise MarketError(
        f"{holding.sale.buyer} holds rung {held.rung} of these windows; `thaw market upgrade` sells rung {offer.rung} "
        f"for the difference, {money(max(offer.price - holding.paid, 0))}"
    )


def _check_above(holding: Holding, offer: Offer) -> None:
    held = holding.sale.offer
    if offer.rung <= held.rung:
        raise MarketError(
            f"{holding.sale.buyer} holds rung {held.rung} of these windows (sale {holding.sale.id}), which tells all "
            f"that rung {offer.rung} tells; nothing is sold"
        )


def money(hundredths: int) -> str:
    """Return an amount as people write it.

    >>> money(1250), money(5)
    ('12.50', '0.05')
    """
    return f"{hundredths // 100}.{hundredths % 100:02}"
