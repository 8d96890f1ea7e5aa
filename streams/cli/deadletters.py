"""`thaw deadletters`: list refused reports and send them again."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Iterator
from datetime import UTC, datetime
from itertools import islice
from typing import Any

import click
import msgspec

from producers.clock import system_clock
from producers.survey.folder import SurveyFolder
from streams.cli.terminal.partitions import check_partitions
from streams.kafka.reader import TopicReader
from streams.kafka.topic_state import TopicWatch
from streams.repair.dead_letters import ReportsProducer, StoredDeadLetter, look, read_dead_letters, replay
from streams.settings import KAFKA, Settings, load_settings, settings_options

_CONNECTION = (*KAFKA, "prefix")

_reason = click.option("--reason", multiple=True, help="Only dead letters with this reason; repeatable.")
_json = click.option("--json", "as_json", is_flag=True, help="Print JSON.")


@click.group("deadletters")
def command() -> None:
    """List refused reports, and replay them once they can be counted."""


@command.command("list")
@_reason
@click.option("--limit", default=50, show_default=True, type=click.IntRange(1), help="How many to list, newest last.")
@_json
@settings_options(*_CONNECTION)
def list_command(reason: tuple[str, ...], limit: int, as_json: bool, **flags: Any) -> int:
    """List the newest dead letters: number, time, reason, position in the topic, size."""
    settings = load_settings(flags)
    newest: deque[StoredDeadLetter] = deque(maxlen=limit)
    count = 0
    for letter in _chosen(settings, reason):
        newest.append(letter)
        count += 1
    if as_json:
        click.echo(msgspec.json.encode([as_data(letter) for letter in newest]))
        return 0
    for letter in newest:
        click.echo(
            f"{letter.number:>8}  {_time(letter.received_ms)}  {letter.reason or '?':<9}  {letter.place or '?'}  "
            f"{len(letter.frame)} bytes{_notes(letter)}"
        )
    click.echo(f"{len(newest)} of {count} dead letters shown", err=True)
    return 0


@command.command("show")
@click.argument("number", type=click.IntRange(0))
@_json
@settings_options(*_CONNECTION)
def show_command(number: int, as_json: bool, **flags: Any) -> int:
    """Show dead letter NUMBER: its reason, the headers of its frames, its bytes."""
    settings = load_settings(flags)
    letter = next((letter for letter in _chosen(settings, ()) if letter.number == number), None)
    if letter is None:
        raise click.ClickException(f"no dead letter {number}; `thaw deadletters list` shows which there are")
    if as_json:
        click.echo(msgspec.json.encode(as_data(letter) | {"bytes": letter.frame.hex()}))
        return 0
    for name, value in as_data(letter).items():
        if name != "frames" and value not in ("", None):
            click.echo(f"{name + ':':<13}{_time(value) if name == 'received_ms' else value}")
    for frame in as_data(letter)["frames"]:
        told = ", ".join(f"{name} {value}" for name, value in frame.items() if value not in ("", None))
        click.echo(f"frame:       {told}")
    for start in range(0, len(letter.frame), 16):
        click.echo(f"{start:08x}  {letter.frame[start : start + 16].hex(' ')}")
    return 0


@command.command("replay")
@_reason
@click.option("--number", "numbers", multiple=True, type=click.IntRange(0), help="Only this dead letter; repeatable.")
@click.option("--dry-run", is_flag=True, help="Print what would be sent; send nothing.")
@_json
@settings_options(*_CONNECTION, "surveys", "partitions")
def replay_command(
    reason: tuple[str, ...], numbers: tuple[int, ...], dry_run: bool, as_json: bool, **flags: Any
) -> int:
    """Replay dead letters that would be accepted now: after an upgrade, or when their survey is known.

    Dead letters that would be refused again are not sent. Replaying twice is safe: a report counts once. Exit status 1
    if dead letters were selected and none could be sent, 75 if Kafka is down.
    """
    settings = load_settings(flags)
    now_ms = system_clock()
    surveys = SurveyFolder(settings.surveys_folder, now_ms)
    with TopicReader(settings, settings.reports_topic) as reader:
        check_partitions(settings, reader)
    state = TopicWatch(settings, settings.reports_topic).look()
    chosen = (letter for letter in _chosen(settings, reason) if not numbers or letter.number in numbers)
    producer = None if dry_run else ReportsProducer(settings)
    done = replay(
        chosen,
        surveys,
        producer or (lambda _: None),
        partitions=settings.partitions,
        now_ms=now_ms,
        broker_ms=None if state is None else state.newest_ms or None,
    )
    if producer is not None:
        producer.finish()
    if as_json:
        told = {"sent": done.sent, "copies": done.copies, "still_dead": done.still_dead, "dry_run": dry_run}
        click.echo(msgspec.json.encode(told))
    else:
        click.echo(
            f"{done.sent} frames {'would be sent' if dry_run else 'sent'} again, {done.copies} duplicates skipped"
        )
        for why, count in sorted(done.still_dead.items()):
            click.echo(f"{count} still refused: {why}")
    return 1 if done.still_dead and not done.sent else 0


def as_data(letter: StoredDeadLetter) -> dict[str, Any]:
    """Return a dead letter under stable keys, without its bytes."""
    return {
        "number": letter.number,
        "received_ms": letter.received_ms,
        "reason": letter.reason,
        "place": letter.place,
        "detail": letter.detail,
        "size_bytes": len(letter.frame),
        "cut_from_bytes": letter.cut_from,
        # A dead letter of a megabyte can hold thousands of frames.
        "frames": [] if letter.is_batch else [msgspec.to_builtins(view) for view in islice(look(letter.frame), 20)],
    }


def _notes(letter: StoredDeadLetter) -> str:
    cut = "" if letter.cut_from is None else f" of {letter.cut_from}, cut"
    return cut + (f" ({letter.detail})" if letter.detail else "")


def _chosen(settings: Settings, reasons: Iterable[str]) -> Iterator[StoredDeadLetter]:
    wanted = frozenset(reasons)
    return (letter for letter in read_dead_letters(settings) if not wanted or letter.reason in wanted)


def _time(moment_ms: int) -> str:
    return datetime.fromtimestamp(moment_ms / 1_000, UTC).strftime("%Y-%m-%d %H:%M:%S UTC")
