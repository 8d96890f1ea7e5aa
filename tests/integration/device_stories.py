"""The lives of a device that is killed on the way: what is done first, and what it is killed in and does again."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import NamedTuple

from producers.device.agent import Device
from producers.device.budget import cost_units
from producers.device.ledger import Ledger
from producers.device.wishing import wish_next
from producers.survey.bulletin import bulletin_of, sealed_bulletin
from producers.survey.signing import verifier
from producers.survey.survey import Survey
from producers.wire.transport import Message
from tests.support.continuing import LONGER, SHORT
from tests.support.signing import signer_in, while_wide
from tests.support.surveys import WEEK, WINDOW_MS, survey

END = WEEK + WINDOW_MS
VALUE_KEY = bytes(range(32))


class FileTransport:
    """Emitted bytes go to a file at once, so that they outlive the process: what is in it has left the device."""

    partitions = 8

    def __init__(self, path: Path) -> None:
        self._file = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)

    def send(self, messages: Sequence[Message]) -> None:
        for message in messages:
            os.write(self._file, message.value)

    def close(self) -> None:
        os.close(self._file)


def live(folder: Path, asked: Survey) -> None:
    """The life of a device: one value, two rungs. Running it again after a crash repeats what was done."""
    transport = FileTransport(folder / "wire")
    with Device(folder / "ledger", [asked], transport) as device:
        device.observe(asked, "green", WEEK)
        device.tick(WEEK)
        device.tick(END + 30_000)
    transport.close()


class Story(NamedTuple):
    """A life of a device: what is done first, what it is killed in, and how many rungs have left when it is over."""

    asked: Survey
    first: Callable[[Path, Survey], None]
    then: Callable[[Path, Survey], None]
    rungs: set[int]
    tokens: int = 1


def begin(folder: Path, asked: Survey) -> None:
    """Answer, and send the first rung."""
    transport = FileTransport(folder / "wire")
    with Device(folder / "ledger", [asked], transport) as device:
        device.observe(asked, "green", WEEK)
        device.tick(WEEK)
    transport.close()


def demand(folder: Path, asked: Survey) -> None:
    """Release one level more, and send it. After a crash the person asks again: it may be one more."""
    transport = FileTransport(folder / "wire")
    with Device(folder / "ledger", [asked], transport) as device:
        device.release_next(asked, now_ms=END)
        device.tick(END)
    transport.close()


def wish(folder: Path, asked: Survey) -> None:
    """Ask from outside for one level more, until it is known to be noted; the device releases it, and no other."""
    transport = FileTransport(folder / "wire")
    ledger = Ledger(folder / "ledger")
    if max(chain.highest for chain in ledger.kept()) == 0:
        wish_next(ledger, asked.id, None, END)
    ledger.close()
    with Device(folder / "ledger", [asked], transport) as device:
        device.tick(END)
        assert device.odometer.epsilon == asked.mechanism.epsilons[1]
    transport.close()


def switch_off(folder: Path, asked: Survey) -> None:
    """Withdraw consent; nothing may leave afterwards."""
    transport = FileTransport(folder / "wire")
    with Device(folder / "ledger", [asked], transport) as device:
        device.consent(False)
        device.observe(asked, "red", WEEK)
        device.tick(END + 30_000)
        assert device.odometer.epsilon == asked.mechanism.epsilons[0]
    transport.close()


def unlocking() -> Survey:
    """A survey whose budget pays for the first rung at once, and for the next one an hour later."""
    return survey(retention='retention = "3d"', lifetime='lifetime = 1\nunlock = "0.5 per hour"')


def unlock(folder: Path, asked: Survey) -> None:
    """Come back when more has unlocked: one rung more is released, which uses it up."""
    transport = FileTransport(folder / "wire")
    with Device(folder / "ledger", [asked], transport) as device:
        device.tick(WEEK + 3_600_000)
        assert device.odometer.epsilon == asked.mechanism.epsilons[1]
    transport.close()


def repeat(folder: Path, asked: Survey) -> None:
    """Answer the next window with the same value: the answers are repeated, and only what is sharper costs."""
    transport = FileTransport(folder / "wire")
    with Device(folder / "ledger", [asked], transport) as device:
        device.observe(asked, "green", END)
        device.tick(END)
        device.tick(END + WINDOW_MS + 30_000)
        assert device.odometer.epsilon == asked.mechanism.epsilons[-1]
    transport.close()


_FOLDER = tempfile.TemporaryDirectory()
SIGNER = signer_in(Path(_FOLDER.name))
BY_BULLETIN = while_wide(SIGNER)
BULLETIN = sealed_bulletin(bulletin_of(BY_BULLETIN, 1, END, {WEEK: 1}), SIGNER.sign)


def obey(folder: Path, asked: Survey) -> None:
    """Take a bulletin that opens one level more, and release that."""
    transport = FileTransport(folder / "wire")
    with Device(folder / "ledger", [asked], transport, verifier=verifier) as device:
        device.bulletins.take(asked, BULLETIN)
        device.tick(END + 60_000)
        assert device.odometer.epsilon == asked.mechanism.epsilons[1]
    transport.close()


def withdrawable() -> Survey:
    return survey(shards="shards = 16\nwithdrawable = true")


def take_back(folder: Path, asked: Survey) -> None:
    """Take the answers of all windows back; nothing else may leave afterwards."""
    transport = FileTransport(folder / "wire")
    with Device(folder / "ledger", [asked], transport) as device:
        device.withdraw(asked, now_ms=END)
        device.tick(END + 30_000)
        assert device.odometer.epsilon == asked.mechanism.epsilons[0]
        assert device.next_ms() is None
    transport.close()


def begin_without_room(folder: Path, asked: Survey) -> None:
    """Answer two windows while the outbox has room for the report of one: the other answer waits in its chain."""
    transport = FileTransport(folder / "wire")
    with Device(folder / "ledger", [asked], transport, outbox_limit=1) as device:
        device.observe(asked, "green", WEEK)
        device.observe(asked, "green", END)
    transport.close()


def take_back_unreleased(folder: Path, asked: Survey) -> None:
    """Take back the answer that waits: nothing of it may ever leave, also not its withdrawal."""
    transport = FileTransport(folder / "wire")
    with Device(folder / "ledger", [asked], transport) as device:
        device.withdraw(asked, window_ms=END, now_ms=END)
        device.tick(END + 30_000)
        assert device.odometer.epsilon == asked.mechanism.epsilons[-1]
    transport.close()


def switch_off_and_withdraw(folder: Path, asked: Survey) -> None:
    """Withdraw consent: the answer that has left is taken back, once, though the ledger forgets it."""
    transport = FileTransport(folder / "wire")
    with Device(folder / "ledger", [asked], transport) as device:
        device.consent(False, END)
        device.observe(asked, "red", WEEK)
        device.tick(END + 30_000)
        assert device.odometer.epsilon == asked.mechanism.epsilons[0]
    transport.close()


def begin_short(folder: Path, _: Survey) -> None:
    """Answer the survey as it was before levels were added, and send the first rung."""
    transport = FileTransport(folder / "wire")
    with Device(folder / "ledger", [SHORT], transport, value_key=VALUE_KEY) as device:
        device.observe(SHORT, "green", WEEK)
        device.tick(WEEK)
    transport.close()


def go_on(folder: Path, asked: Survey) -> None:
    """Learn of the longer ladder, draw what it has above the stored answers, and release the highest of it."""
    transport = FileTransport(folder / "wire")
    with Device(folder / "ledger", [asked], transport, value_key=VALUE_KEY) as device:
        device.tick(END + 30_000)
        assert device.odometer.spent_units == cost_units(asked.mechanism.epsilons[-1])
    transport.close()


STORIES = {
    "clock": Story(survey(), lambda *_: None, live, {0, 2}),
    "demand": Story(survey(kind='kind = "on_demand"', opens=""), begin, demand, {0, 1, 2}),
    "wish": Story(survey(kind='kind = "on_demand"', opens=""), begin, wish, {0, 1}),
    "off": Story(survey(), begin, switch_off, {0}),
    "withdraw": Story(withdrawable(), begin, take_back, {0, 3}),
    "withdraw, unreleased": Story(withdrawable(), begin_without_room, take_back_unreleased, {0, 2}),
    "off, withdrawing": Story(withdrawable(), begin, switch_off_and_withdraw, {0, 3}),
    "standing": Story(survey(size='size = "1m"\nstanding = true'), begin, repeat, {0, 2}, tokens=2),
    "bulletin": Story(BY_BULLETIN, begin, obey, {0, 1}),
    "unlock": Story(unlocking(), begin, unlock, {0, 1}),
    "continued": Story(LONGER, begin_short, go_on, {0, 2}),
}
