"""`thaw market demo`: sale, resale, refused and killed purchases, audit of the books, on what a demo has counted."""

from __future__ import annotations

import random
import time
from collections.abc import Iterator, Mapping
from dataclasses import asdict
from pathlib import Path
from typing import Any, Final, cast

from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat

from estimators.estimates import Population
from estimators.estimation.registry import estimator_of
from producers.survey.signing import Signer, verifier
from producers.survey.survey import Survey
from producers.wire.frames import Reports
from producers.wire.layout import TOKEN_NAME_BYTES
from streams.local.demo import Demo
from streams.local.process import Child
from streams.local.service import StopOrder
from streams.market.audit import audit, losses_of
from streams.market.books import Books, Offer
from streams.market.delivery import answers_in
from streams.market.failures import MarketError
from streams.market.levels import Place, packed
from streams.market.market import Handover, Market, money
from streams.market.receipt import check_delivery, opened_receipt
from streams.store.shape import Shape
from streams.windows.withdrawals import counted
from streams.worker.table import Table

KILLS: Final = 3
BUY_SECONDS: Final = 60.0
_PRICE: Final = 1000
"""Of the lowest level, in hundredths; each level above costs twice as much."""

Truths = Mapping[int, Mapping[str, float | None]]
"""True quantities by window and label; None where there is none, such as the mean of a key that nobody has."""


def play(demo: Demo, entry: Mapping[str, Any]) -> dict[str, Any]:
    """Sell the settled windows of a demo's survey; return what happened, as data. `entry` is that of its result.

    Raises:
        MarketError: a sale that should work did not.
    """
    survey = demo.surveys[0].survey
    truths = {w["start_ms"]: {row["value"]: row["truth"] for row in w["estimates"]} for w in entry["windows"]}
    if not truths:
        raise MarketError("no window has settled; use more seconds")
    folder = demo.supervisor.folder / "market"
    folder.mkdir()
    books, key = Books(folder / "books.sqlite"), _key_in(folder)
    market = Market(demo.store, [survey], books, Signer(key), folder / "deliveries")
    top, first, end = survey.mechanism.rungs - 1, min(truths), max(truths) + 1
    offers = {rung: market.offer(survey, rung, _PRICE << rung, first, end) for rung in range(top + 1)}
    middle, sales = min(1, top), list[Handover]()
    sales.append(market.buy("acme", offers[0].id))
    sales.append(market.buy("bolt", offers[top].id))
    if top > 0:
        sales.append(market.upgrade("acme", offers[middle].id))
    refused = [_refused(market, "bolt", offers[0]), _refused(market, "acme", offers[0])]
    killed = _killed_purchases(demo, books, key, offers[middle])
    (last,) = market.deliver("cord")
    sales.append(last)
    for sold in sales:
        receipt = opened_receipt(sold.receipt_file.read_bytes(), verifier(Signer(key).public_text))
        check_delivery(receipt, sold.file.read_bytes())
    found, losses = audit(market), losses_of(books)
    books.close()
    return {
        "survey": survey.id,
        "windows": len(truths),
        "sales": [_sale(survey, sold, truths) for sold in sales],
        "refused": refused,
        "killed": killed,
        "chains": found.chains,
        "losses": [
            {"epsilon": loss.epsilons[rung], "chains": count}
            for loss in losses
            for rung, count in sorted(loss.chains.items())
        ],
        "audit": asdict(found),
    }


def _key_in(folder: Path) -> Path:
    key = Ed25519PrivateKey.generate().private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption())
    (folder / "key.pem").write_bytes(key)
    return folder / "key.pem"


def _refused(market: Market, buyer: str, offer: Offer) -> str:
    """Return why a purchase below what a buyer holds is refused."""
    before = market.books.sales(), market.books.losses()
    try:
        market.buy(buyer, offer.id)
    except MarketError as error:
        if (market.books.sales(), market.books.losses()) != before:
            raise MarketError(f"a refused purchase of {buyer} changed the books") from None
        return str(error)
    raise MarketError(f"{buyer} could buy rung {offer.rung} below what it holds")


def _killed_purchases(demo: Demo, books: Books, key: Path, offer: Offer) -> int:
    """Let `thaw market buy` be killed with -9 at random moments, then let it end; return how often it was killed.

    How long a purchase takes on this machine says one of another buyer, which nobody kills.
    """
    began = time.monotonic()
    _ended(_buying(demo, books, key, "dent", offer))
    took, before, chance = time.monotonic() - began, len(books.sales()), random.Random(demo.seed)
    for killed in range(KILLS):
        child = _buying(demo, books, key, "cord", offer)
        if child.wait(chance.uniform(0.6, 1.0) * took):
            _ended(child)
        else:
            child.kill()
        if len(books.sales()) > before:
            return killed + (child.returncode != 0)
    _ended(_buying(demo, books, key, "cord", offer))
    return KILLS


def _buying(demo: Demo, books: Books, key: Path, buyer: str, offer: Offer) -> Child:
    own = ["--books", str(books.path), "--key", str(key)]
    child = demo.run_thaw(f"buyer-{buyer}", ["market", "buy", buyer, str(offer.id), *own], StopOrder.FLEET)
    demo.supervisor.forget(child)
    return child


def _ended(child: Child) -> None:
    """Wait until a purchase is over; MarketError if it takes too long, or failed."""
    if not child.wait(BUY_SECONDS):
        child.kill()
        raise MarketError(f"`thaw market buy` takes more than {BUY_SECONDS:.0f} s")
    if child.returncode != 0:
        raise MarketError(f"`thaw market buy` ended with status {child.returncode}: {child.tail()}")


def _sale(survey: Survey, sold: Handover, truths: Truths) -> dict[str, Any]:
    """Return a sale as data, with what its buyer estimates from the delivered file alone."""
    receipt, rows, inside = sold.receipt, 0, 0
    for window_ms, reports in check_delivery(receipt, sold.file.read_bytes()).items():
        for value, lower, upper in _estimated(survey, reports):
            truth = truths.get(window_ms, {}).get(value)
            if truth is not None:
                rows += 1
                inside += lower <= truth <= upper
    return {
        "buyer": receipt.buyer,
        "rung": receipt.rung,
        "epsilon": receipt.epsilon,
        "paid": money(receipt.paid),
        "total": money(receipt.total),
        "answers": receipt.answers,
        "drawn": sold.drawn,
        "truths": rows,
        "inside": inside,
    }


def _estimated(survey: Survey, reports: Reports) -> Iterator[tuple[str, float, float]]:
    shape = Shape.of(survey)
    # Two delivered tokens differ in their first bytes as well, but for chance that never happens.
    rows = {Place(token[:TOKEN_NAME_BYTES], rung): cell for (token, rung), cell in answers_in(reports).items()}
    tally = counted(survey, Table.of_log(shape, packed(shape, rows)).tally()).tally
    population = cast(Population, survey.population)
    found = estimator_of(survey.mechanism).estimate(
        tally, method=survey.method, population=population, alpha=survey.alpha
    )
    yield from zip(survey.mechanism.labels, found.lower.tolist(), found.upper.tolist(), strict=True)
