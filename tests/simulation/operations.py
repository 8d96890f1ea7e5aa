"""What may happen, as data: a failing script can be printed, kept in `test_reproductions.py` and run again.

Numbers that name something (a device, a worker, a message) are taken modulo how many there are, so that every script
is valid and shrinking can drop any operation.
"""

from __future__ import annotations

import random
import struct
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

from producers.survey.survey import Survey
from producers.wire.shards import partition_of
from streams.store.counters import REASONS
from tests.simulation.bus import DEVICES, PARTITIONS, TOPIC, VALUES, WINDOW_MS, WORKERS, Crash
from tests.simulation.world import World
from tests.support.reports import Report, frame_of, shard_of, token_in


class Op(Protocol):
    """One thing that happens."""

    def run(self, world: World) -> None:
        """Let it happen."""
        ...


@dataclass(frozen=True)
class Emit:
    """A device has a value and answers; `held`: its messages are delayed, and it gets no answer."""

    device: int = 0
    value: int = 0
    held: bool = False

    def run(self, world: World) -> None:
        number = self.device % DEVICES
        world.wires[number].held = self.held
        label = f"v{self.value % VALUES}"
        world.on_device(number, lambda device: (device.observe(world.asked, label), device.tick()))
        world.wires[number].held = False


@dataclass(frozen=True)
class Late:
    """A fleet sends many reports in one message, for a window that began `windows` windows ago (0: the open one).

    Reports are (user, rung, answer); with few users most of them repeat or contradict an earlier one. A frame with a
    rung that has not opened yet is refused.
    """

    reports: tuple[tuple[int, int, int], ...] = ((0, 0, 0),)
    windows: int = 0

    def run(self, world: World) -> None:
        self.of(world.asked, world)

    def of(self, asked: Survey, world: World) -> None:
        """Let it happen with the frames of a survey."""
        window_ms = asked.windows.latest(world.clock()) - self.windows * WINDOW_MS
        by_partition: dict[int, list[Report]] = {}
        for report in made_reports(self.reports, asked, window_ms):
            by_partition.setdefault(partition_of(shard_of(report.token, asked), PARTITIONS), []).append(report)
        for partition, reports in by_partition.items():
            early = {
                shard_of(report.token, asked)
                for report in reports
                if not opened(report, asked, window_ms, world.clock())
            }
            genuine = [(window_ms, report) for report in reports if shard_of(report.token, asked) not in early]
            _, offset = world.bus.append(partition, message_of(reports, asked, window_ms), genuine)
            for shard in early:
                some = [report for report in reports if shard_of(report.token, asked) == shard]
                frame = message_of(some, asked, window_ms)
                world.expected_dead.add((f"{TOPIC}[{partition}]@{offset}", "early", frame))


def opened(report: Report, asked: Survey, window_ms: int, now_ms: int) -> bool:
    """Tell whether the rung of a report is open at this time, but for the skew that the survey allows."""
    always = report.rung in (0, asked.mechanism.rungs)
    return always or now_ms >= window_ms + WINDOW_MS + asked.accepted_ms[report.rung - 1]


@dataclass(frozen=True)
class Duplicate:
    """A message that the broker already has arrives once more."""

    partition: int = 0
    offset: int = 0

    def run(self, world: World) -> None:
        partition = self.partition % PARTITIONS
        records = world.bus.log[partition]
        if not records:
            return
        again = records[self.offset % len(records)]
        place = f"{TOPIC}[{partition}]@{again.offset}"
        dead = {(reason, frame) for where, reason, frame in world.expected_dead if where == place}
        if any(reason in ("future", "early") for reason, _ in dead):
            return  # by now its window may have begun, and its rung may be open
        _, offset = world.bus.append(partition, again.value, again.genuine)
        # What is wrong with single reports is not looked at once their window takes none.
        of_reports = ("rung", "token", "answer", *(["key"] if world.asked.withdrawable else []))
        world.expected_dead |= {
            (f"{TOPIC}[{partition}]@{offset}", reason, frame)
            for reason, frame in dead
            if reason not in of_reports or not expired(frame, world.asked, world.clock())
        }


def expired(frame: bytes, asked: Survey, now_ms: int) -> bool:
    """Tell whether a frame comes too late for its window."""
    return now_ms >= int.from_bytes(frame[16:24], "little") + WINDOW_MS + asked.retention_ms


@dataclass(frozen=True)
class Reorder:
    """What was stuck on the way arrives, in another order."""

    order: int = 0

    def run(self, world: World) -> None:
        if not world.bus.away:
            messages, world.bus.limbo = world.bus.limbo, []
            random.Random(self.order).shuffle(messages)
            for message in messages:
                world.bus.append(*message)


DAMAGES = tuple(reason for reason in REASONS if reason not in ("", "group"))
"""The survey has one group, so no group can be wrong."""


@dataclass(frozen=True)
class Corrupt:
    """A bad frame arrives; good ones before it are counted, and those after it where its length is valid."""

    reason: str = "version"
    good_before: bool = False
    good_after: bool = False

    def run(self, world: World) -> None:
        asked = world.asked
        window_ms = asked.windows.latest(world.clock())
        partition = 0
        before = made_reports([(8, 0, 1)], asked, window_ms) if self.good_before and self.reason != "empty" else []
        after = made_reports([(12, 0, 2)], asked, window_ms) if self.good_after and self.reason != "empty" else []
        # No rung above the first is open before the next window begins.
        bad = damaged(self.reason, asked, window_ms + WINDOW_MS if self.reason == "early" else window_ms)
        head, tail = message_of(before, asked, window_ms), message_of(after, asked, window_ms)
        if self.reason in ("length", "magic"):
            bad, tail, after = bad + tail, b"", []
        genuine = [(window_ms, report) for report in [*before, *after]]
        _, offset = world.bus.append(partition, head + bad + tail, genuine)
        world.expected_dead.add((f"{TOPIC}[{partition}]@{offset}", self.reason, bad))


@dataclass(frozen=True)
class Advance:
    """Time passes, and devices wake up as they planned to."""

    milliseconds: int = 1_000

    def run(self, world: World) -> None:
        world.clock.advance(self.milliseconds)
        world.tick_devices()


@dataclass(frozen=True)
class CloseWindow:
    """The open window ends; a worker ticks."""

    def run(self, world: World) -> None:
        now_ms = world.clock()
        world.clock.advance(world.asked.windows.end(world.asked.windows.latest(now_ms)) - now_ms)
        world.tick_devices()
        world.estimate()


@dataclass(frozen=True)
class Work:
    """A worker reads up to so many records of each of its partitions, counts them and acknowledges."""

    worker: int = 0
    records: int = 1

    def run(self, world: World) -> None:
        world.workers[self.worker % WORKERS].work(self.records)


STEPS = ("log.load", "log.apply", "log.count", "queue.put", "log.offsets")


@dataclass(frozen=True)
class CrashWorker:
    """A worker dies: at once, or while it works, before or after a step of its talk with the store."""

    worker: int = 0
    step: str = ""
    when: str = "before"
    records: int = 3

    def run(self, world: World) -> None:
        worker = world.workers[self.worker % WORKERS]
        if self.step:
            worker.dies_at = (self.step, self.when)
            worker.work(self.records)
            worker.dies_at = None
        else:
            worker.die()


@dataclass(frozen=True)
class CrashBetweenApplyAndAck:
    """A worker dies when everything is in the store and nothing is acknowledged."""

    worker: int = 0
    records: int = 3

    def run(self, world: World) -> None:
        world.workers[self.worker % WORKERS].work(self.records, acknowledge=False)


@dataclass(frozen=True)
class Rebalance:
    """Partitions get other owners; a zombie goes on with its old ones, though its commits are refused."""

    owners: tuple[int, ...] = (0, 1)
    zombie: int | None = None

    def run(self, world: World) -> None:
        world.rebalance(tuple(owner % WORKERS for owner in self.owners), zombie=self.zombie)


@dataclass(frozen=True)
class RedisAway:
    """The store does not answer for a while, or executes calls whose answers are lost."""

    milliseconds: int = 0
    answers_lost: int = 0

    def run(self, world: World) -> None:
        world.store_away_until_ms = world.clock() + self.milliseconds
        world.answers_to_lose += self.answers_lost


@dataclass(frozen=True)
class RedisSyncs:
    """What the store holds now survives a power cut."""

    def run(self, world: World) -> None:
        world.fsynced = world.store.snapshot()


@dataclass(frozen=True)
class RedisForgets:
    """A power cut takes all writes since the store last synced."""

    def run(self, world: World) -> None:
        world.store.restore(world.fsynced)


@dataclass(frozen=True)
class BrokerAway:
    """The broker takes nothing, gives nothing and commits nothing for a while."""

    milliseconds: int = 1_000

    def run(self, world: World) -> None:
        world.bus.away_until_ms = world.clock() + self.milliseconds


CRASHES = ("now", "before commit", "before send", "after send")


@dataclass(frozen=True)
class DeviceCrash:
    """A device dies: at once, or while it answers, and starts again with what its file holds."""

    device: int = 0
    where: str = "now"
    value: int = 0

    def run(self, world: World) -> None:
        number = self.device % DEVICES
        if self.where == "now":
            world.kill_device(number)
            return
        device = world.device(number)
        if self.where == "before commit":
            device._outbox.put = _die  # type: ignore[method-assign, assignment]
        else:
            world.wires[number].crash = self.where
        label = f"v{self.value % VALUES}"
        world.on_device(number, lambda it: (it.observe(world.asked, label), it.tick()))
        world.wires[number].crash = ""
        # What was armed may not have gone off; then it dies now.
        world.kill_device(number)


def _die(*_: object) -> None:
    raise Crash


def made_reports(numbers: Sequence[tuple[int, int, int]], asked: Survey, window_ms: int) -> list[Report]:
    """Return reports of (user, rung, answer); user u is of shard u mod shards; the rung behind the last withdraws."""
    shards, rungs = asked.shards, asked.mechanism.rungs + asked.withdrawable
    made = []
    for user, number, answer in numbers:
        rung = number % rungs
        named = token_in(user % shards, user, asked, window_ms)
        made.append(Report(named, rung, bytes([answer % VALUES if rung < asked.mechanism.rungs else 0])))
    return made


def message_of(reports: Sequence[Report], asked: Survey, window_ms: int) -> bytes:
    """Return one frame for each run of reports of one shard, back to back."""
    by_shard: dict[int, list[Report]] = {}
    for report in reports:
        by_shard.setdefault(shard_of(report.token, asked), []).append(report)
    return b"".join(frame_of(asked, some, window_ms=window_ms) for some in by_shard.values())


def damaged(reason: str, asked: Survey, window_ms: int) -> bytes:
    """Return a frame of partition 0 that is wrong in exactly one way."""
    good = message_of(made_reports([(0, 0, 3)], asked, window_ms), asked, window_ms)
    if reason == "empty":
        return b""
    if reason in ("rung", "early"):
        return good[:64] + (b"\x07" if reason == "rung" else b"\x01") + good[65:]
    position, raw = {
        "magic": (0, b"X"),
        "version": (3, b"\x09"),
        "key": (72, bytes(16)) if asked.withdrawable else (3, b"\x02"),
        "length": (4, struct.pack("<I", 1 << 31)),
        "survey": (8, bytes(8)),
        "window": (16, struct.pack("<q", window_ms + 1)),
        "future": (16, struct.pack("<q", window_ms + 60 * WINDOW_MS)),
        "shard": (32, struct.pack("<H", asked.shards)),
        "partition": (32, struct.pack("<H", 1)),
        "count": (34, struct.pack("<I", 0)),
        "token": (53, b"\x01"),
        "answer": (56, bytes([VALUES])),
    }[reason]
    return good[:position] + raw + good[position + len(raw) :]


def play(world: World, script: Sequence[Op]) -> None:
    """Run a script to its end and check what must hold; a failure carries the script."""
    try:
        for op in script:
            world.script.append(op)
            op.run(world)
        world.finish()
    except AssertionError as error:
        error.add_note(f"script: {list(script)!r}")
        raise
