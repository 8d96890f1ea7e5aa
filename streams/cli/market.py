"""`thaw market`: sell answers of windows, level by level, and keep the books."""

from __future__ import annotations

import importlib
import json
from collections.abc import Callable, Sequence
from decimal import Decimal, InvalidOperation
from pathlib import Path
from typing import Any, TypeVar

import click
import msgspec

from producers.clock import system_clock
from producers.survey.folder import SurveyFolder
from producers.survey.signing import KeyFileError, Signer, verifier
from producers.survey.survey import Survey
from streams.cli.terminal.surveys import surveys_named
from streams.cli.terminal.times import moment_ms, shown_start
from streams.market.audit import Loss, audit, losses_of
from streams.market.books import Books, Offer
from streams.market.delivery import token_of
from streams.market.failures import MarketError
from streams.market.market import Handover, Market, money
from streams.market.receipt import Receipt, check_delivery, opened_receipt
from streams.settings import REDIS, Settings, load_settings, settings_options
from streams.store.connect import open_store

_Command = TypeVar("_Command", bound=Callable[..., Any])

_MOST_HUNDREDTHS = 10**14


@click.group("market")
def command() -> None:
    """Sell the answers of windows at a level, later at higher ones, and keep the books.

    Levels below what a device has released are drawn from its answer, each once: all buyers together learn what the
    highest level sold tells.
    """


_books = click.option(
    "--books",
    default="market.sqlite",
    show_default=True,
    type=click.Path(dir_okay=False, path_type=Path),
    help="File of the books; deliveries are written to the folder deliveries beside it.",
)
_json = click.option("--json", "as_json", is_flag=True, help="Print one JSON object.")


def _old_books(books: Path) -> Books:
    if not books.exists():
        raise click.ClickException(f"there are no books {books}; `thaw market offer` begins them, or name others")
    return Books(books)


def _selling(key: bool) -> Callable[[_Command], _Command]:
    """Add the options of a command that looks at answers; `key`: it signs receipts."""

    def add(function: _Command) -> _Command:
        function = settings_options(*REDIS, "surveys", "prefix")(function)
        if key:
            kind = click.Path(exists=True, dir_okay=False, path_type=Path)
            told = "Private key (Ed25519, PEM), as `openssl genpkey -algorithm ed25519` makes it."
            function = click.option("--key", required=True, type=kind, help=told)(function)
        return _books(_json(function))

    return add


def _signer(key: Path) -> Signer:
    try:
        return Signer(key)
    except KeyFileError as error:
        raise click.BadParameter(str(error), param_hint="--key") from None


def _market(settings: Settings, books: Books, key: Path | None = None) -> Market:
    signer = None if key is None else _signer(key)
    return Market(open_store(settings), _surveys(settings), books, signer, books.path.parent / "deliveries")


def _surveys(settings: Settings) -> Sequence[Survey]:
    return SurveyFolder(settings.surveys_folder, system_clock()).surveys(system_clock())


def _price(_context: click.Context, _parameter: click.Parameter, text: str) -> int:
    try:
        hundredths = Decimal(text) * 100
        if hundredths == int(hundredths) and 0 <= hundredths <= _MOST_HUNDREDTHS:
            return int(hundredths)
    except (InvalidOperation, ValueError, OverflowError):
        pass
    raise click.BadParameter(f"expected an amount such as 12.50, at least 0; got {text!r}")


def _moment(_context: click.Context, _parameter: click.Parameter, text: str | None) -> int | None:
    try:
        moment = None if text is None else moment_ms(text)
    except ValueError:
        moment = 1 << 62
    if moment is not None and abs(moment) >= 1 << 53:
        raise click.BadParameter(f"expected a time, as ms since the epoch or like 2026-01-31T12:00; got {text!r}")
    return moment


@command.command("offer")
@click.argument("survey")
@click.option("--rung", required=True, type=click.IntRange(0, 254), help="The highest rung that is sold, from 0.")
@click.option("--price", required=True, callback=_price, help="For all windows together, such as 12.50.")
@click.option("--from", "first", callback=_moment, help="Windows that start then or later; default: the first stored.")
@click.option("--until", "end", callback=_moment, help="Windows that start before; default: up to the last stored.")
@_selling(key=False)
def offer_command(
    survey: str,
    rung: int,
    price: int,
    first: int | None,
    end: int | None,
    books: Path,
    as_json: bool,
    **flags: Any,
) -> None:
    """Offer answers of windows of SURVEY (a name or id) up to a rung. Prices must rise with the level."""
    settings = load_settings(flags)
    whole = [one for one in _surveys(settings) if one.tier is None]
    asked = surveys_named(whole, survey, settings.surveys_folder)
    if len(asked) > 1:
        raise click.ClickException(f"several surveys are called {survey}; name an id: {', '.join(a.id for a in asked)}")
    market = _market(settings, Books(books))
    made = market.offer(asked[0], rung, price, first, end)
    _print_offers([made], market.books, as_json)


@command.command("offers")
@_books
@_json
def offers_command(books: Path, as_json: bool) -> None:
    """List all offers."""
    found = _old_books(books)
    _print_offers(found.offers(), found, as_json)


def _offer_data(offer: Offer, books: Books) -> dict[str, Any]:
    return offer._asdict() | {"price": money(offer.price), "epsilon": books.epsilons(offer.survey)[offer.rung]}


def _print_offers(offers: Sequence[Offer], books: Books, as_json: bool) -> None:
    rows = [_offer_data(offer, books) for offer in offers]
    if as_json:
        click.echo(json.dumps({"offers": rows}))
        return
    for row in rows:
        click.echo(
            f"offer {row['id']}: {row['survey']}, rung {row['rung']} (epsilon {row['epsilon']:g}), windows "
            f"{shown_start(row['first_ms'])} to {shown_start(row['end_ms'])}: {row['price']}"
        )


@command.command("buy")
@click.argument("buyer")
@click.argument("offer", type=int)
@_selling(key=True)
def buy_command(buyer: str, offer: int, books: Path, key: Path, as_json: bool, **flags: Any) -> None:
    """Sell OFFER (its number) to BUYER, and deliver it."""
    _print_handovers([_market(load_settings(flags), _old_books(books), key).buy(buyer, offer)], as_json)


@command.command("upgrade")
@click.argument("buyer")
@click.argument("offer", type=int)
@_selling(key=True)
def upgrade_command(buyer: str, offer: int, books: Path, key: Path, as_json: bool, **flags: Any) -> None:
    """Sell OFFER, a higher level of windows that BUYER holds, for the difference, and deliver it."""
    _print_handovers([_market(load_settings(flags), _old_books(books), key).upgrade(buyer, offer)], as_json)


@command.command("deliver")
@click.argument("buyer")
@_selling(key=True)
def deliver_command(buyer: str, books: Path, key: Path, as_json: bool, **flags: Any) -> None:
    """Deliver what came since to BUYER, up to the levels that were bought, and write missing files again."""
    _print_handovers(_market(load_settings(flags), _old_books(books), key).deliver(buyer), as_json)


def _receipt_data(receipt: Receipt) -> dict[str, Any]:
    amounts = {"paid": money(receipt.paid), "total": money(receipt.total), "answers": receipt.answers}
    found: dict[str, Any] = msgspec.to_builtins(receipt)
    return found | amounts


def _print_handovers(made: Sequence[Handover], as_json: bool) -> None:
    if as_json:
        rows = [
            {"file": str(one.file), "receipt_file": str(one.receipt_file), "new": not one.again, "drawn": one.drawn}
            | {"broken": one.broken, "receipt": _receipt_data(one.receipt)}
            for one in made
        ]
        click.echo(json.dumps({"deliveries": rows}))
        return
    for one in made:
        told = "nothing new since" if one.again else f"{one.receipt.answers:,} answers, {one.drawn:,} of them drawn, in"
        click.echo(f"{_said(one.receipt)}: {told} {one.file}")


def _said(receipt: Receipt) -> str:
    return (
        f"sale {receipt.sale} to {receipt.buyer}, delivery {receipt.delivery}: {receipt.survey}, rung {receipt.rung} "
        f"(epsilon {receipt.epsilon:g}), paid {money(receipt.paid)} ({money(receipt.total)} in all)"
    )


@command.command("books")
@click.option("--chains", is_flag=True, help="With --json: what each single chain has lost, under its delivered token.")
@_books
@_json
def books_command(chains: bool, books: Path, as_json: bool) -> None:
    """Tell who holds which level, and what the chains of devices have lost: the highest level sold of each."""
    if chains and not as_json:
        raise click.UsageError("--chains lists one entry for each chain; add --json")
    found = _old_books(books)
    holdings = [
        _offer_data(holding.sale.offer, found)
        | {"buyer": buyer, "sale": holding.sale.id, "offer": holding.sale.offer.id, "paid": money(holding.paid)}
        for buyer in found.buyers()
        for holding in found.holdings(buyer)
    ]
    losses = losses_of(found)
    if as_json:
        told: dict[str, Any] = {"books": found.id.decode(), "holdings": holdings, "losses": list(map(_loss, losses))}
        if chains:
            told["chains"] = _chains(found)
        click.echo(json.dumps(told))
        return
    for row in holdings:
        click.echo(
            f"{row['buyer']} holds {row['survey']}, rung {row['rung']} (epsilon {row['epsilon']:g}), windows "
            f"{shown_start(row['first_ms'])} to {shown_start(row['end_ms'])}, for {row['paid']}"
        )
    for loss in losses:
        levels = ", ".join(f"{count:,} epsilon {loss.epsilons[rung]:g}" for rung, count in sorted(loss.chains.items()))
        click.echo(f"{loss.survey}: {sum(loss.chains.values()):,} chains of {loss.windows} windows have lost: {levels}")


def _chains(books: Books) -> list[dict[str, Any]]:
    rows = []
    for survey, window_ms, shard, name, rung in books.highest_sold():
        token = token_of(books.secret, survey, window_ms, shard, name).hex()
        level = {"rung": rung, "epsilon": books.epsilons(survey)[rung]}
        rows.append({"survey": survey, "window_ms": window_ms, "token": token} | level)
    return rows


def _loss(loss: Loss) -> dict[str, Any]:
    rows = [
        {"rung": rung, "epsilon": loss.epsilons[rung], "chains": count} for rung, count in sorted(loss.chains.items())
    ]
    return {"survey": loss.survey, "windows": loss.windows, "levels": rows} | {
        "total_epsilon": loss.total,
        "highest_epsilon": loss.highest,
    }


@command.command("key")
@click.option(
    "--key",
    required=True,
    type=click.Path(exists=True, dir_okay=False, path_type=Path),
    help="Private key (Ed25519, PEM).",
)
def key_command(key: Path) -> None:
    """Print the public key, for buyers who check receipts."""
    click.echo(_signer(key).public_text)


@command.group("receipt")
def receipt_group() -> None:
    """Look at receipts; needs neither books nor services."""


@receipt_group.command("verify")
@click.argument("file", type=click.Path(exists=True, dir_okay=False, path_type=Path))
@click.option("--public-key", required=True, help="The market's public key, as `thaw market key` prints it.")
@click.option(
    "--delivery",
    type=click.Path(exists=True, dir_okay=False, path_type=Path),
    help="The delivered answers; default: the file beside the receipt.",
)
@_json
def verify_command(file: Path, public_key: str, delivery: Path | None, as_json: bool) -> None:
    """Check the signature of the receipt FILE, and that the delivered answers are those that it is of."""
    try:
        verify = verifier(public_key)
    except KeyFileError as error:
        raise click.BadParameter(str(error), param_hint="--public-key") from None
    answers = delivery or file.with_suffix(".frames")
    try:
        receipt = opened_receipt(file.read_bytes(), verify)
        if not answers.exists():
            raise MarketError(f"{answers} is not there; say with --delivery where the delivered answers are")
        check_delivery(receipt, answers.read_bytes())
    except OSError as error:
        raise click.ClickException(f"{error.filename} cannot be read: {error.strerror}") from None
    if as_json:
        click.echo(json.dumps({"valid": True, "receipt": _receipt_data(receipt)}))
        return
    click.echo(f"{_said(receipt)}: {receipt.answers:,} answers, signed, and delivered as it says")


@command.command("audit")
@_selling(key=False)
def audit_command(books: Path, as_json: bool, **flags: Any) -> int:
    """Compare books, receipts, deliveries and Redis; exit status 1 on any contradiction."""
    found = audit(_market(load_settings(flags), _old_books(books)))
    if as_json:
        click.echo(json.dumps(msgspec.to_builtins(found)))
    else:
        for path in found.missing:
            click.echo(f"missing: {path}; `thaw market deliver` writes it again")
        if found.lost:
            click.echo(f"Redis lacks {found.lost:,} answers that the books have; the next sale puts them back")
        for line in found.contradictions:
            click.echo(f"contradiction: {line}")
        click.echo(
            f"{found.sales} sales, {found.deliveries} deliveries, {found.answers:,} answers, {found.chains:,} chains: "
            + ("the books agree" if not found.contradictions else f"{len(found.contradictions)} contradictions")
        )
    return 1 if found.contradictions else 0


@command.command("demo")
@click.option("--seconds", default=10, show_default=True, type=click.IntRange(10, 3600), help="Answers come so long.")
@click.option("--devices", default=400, show_default=True, type=click.IntRange(20, 100_000))
@click.option(
    "--survey",
    type=click.Path(exists=True, dir_okay=False, path_type=Path),
    help="Sell answers of a scaled copy of this survey instead of an example's.",
)
@click.option("--kafka", default="auto", show_default=True, help="As for `thaw demo`.")
@click.option("--seed", type=click.IntRange(0), help="Seed of the fleet; a random one is printed if absent.")
@_json
def demo_command(seconds: int, devices: int, survey: Path | None, kafka: str, seed: int | None, as_json: bool) -> int:
    """Count answers of simulated devices on real services, and sell them: sale, resale, refusals, kills, audit.

    Exit status 1 on any contradiction in the books, or if a report was lost or counted twice.
    """
    try:
        # All that runs on one machine: those who only sell need none of it.
        demo = importlib.import_module("streams.cli.terminal.market_demo")
    except ModuleNotFoundError as error:
        raise click.ClickException(
            f"the demo needs the package {error.name}, which is not installed; run: pip install 'thaw[demo]'"
        ) from error
    status: int = demo.run_demo(seconds, devices, survey, kafka, seed, as_json=as_json)
    return status
