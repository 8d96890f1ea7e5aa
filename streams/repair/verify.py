"""Checks stored estimates against the topic: counts again exactly what they say they contain, and compares.

What is counted again comes from any `Bus`; estimates come from the estimates topic or from Redis. Needs no right but to
read. `docs/verify.md` says what an equal window proves and what it does not.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, Literal

import msgspec

from estimators.tally import Tally
from producers.clock import Clock, system_clock
from producers.survey.survey import Survey
from producers.wire.shards import partition_of
from streams.kafka.reader import Bus
from streams.repair.rebuild import Progress
from streams.repair.recount import Recount
from streams.store.contract import EstimateStore
from streams.store.shape import Key, Shape
from streams.windows.proof import Proof, shard_digest, survey_hash, tally_hash, winners_hash
from streams.windows.record import EstimateRecord, RecordError, decode_estimate
from streams.windows.window_record import estimate_record

Status = Literal["equal", "different", "unchecked", "unproven"]
Part = Literal["survey", "tally", "winners", "estimate"]

RELATIVE: Final = 1e-9
"""Real numbers that differ by less do not make a window different: the same version rounds the last digits differently
on other processors and with other releases of numpy and scipy. A verdict says whether they are equal to the last bit.
Counts, times and texts have to be equal."""
_ABSOLUTE: Final = 1e-12
_NOT_COMPARED: Final = frozenset({"version", "read_ms", "computed_ms", "alerts", "proof", "views"})
"""Fields that do not follow from survey and tally alone. Alert bounds depend on when earlier looks were taken. Views
are drawn from the numbers that are compared, and estimates of older versions have none."""
_NUMBERS_SHOWN: Final = 3


@dataclass(frozen=True)
class Verdict:
    """What is found of one stored estimate.

    differences: the parts that differ, each with what was stored and what was found. Status `unchecked`: the topic no
    longer has what is needed; `reason` says what is missing. `unproven`: the estimate carries no proof.
    """

    window_ms: int
    status: Status
    users: int
    differences: Mapping[Part, str]
    reason: str = ""
    winners: bool = False
    """The winning reports were compared too; a very large window has no hash of them while it changes."""
    identical: bool = False
    """All numbers of the estimate are equal to the last bit."""
    version: str = ""
    """The version that counted."""


def published(bus: Bus) -> dict[tuple[str, int], EstimateRecord]:
    """Return the newest estimate of every window on the estimates topic, by survey id and start."""
    newest: dict[tuple[str, int], EstimateRecord] = {}
    for batches in bus.read():
        for record in (_estimate(found.value) for batch in batches for found in batch.records):
            if record is None:
                continue
            place = record.survey, record.window_start_ms
            held = newest.get(place)
            if held is None or record.computed_ms >= held.computed_ms:
                newest[place] = record
    return newest


def stored(estimates: EstimateStore, surveys: Sequence[Survey]) -> dict[tuple[str, int], EstimateRecord]:
    """Return the stored estimate of every window of these surveys, by survey id and start."""
    places = [(survey.id, start) for survey in surveys for start in estimates.window_starts(survey.id)]
    found = zip(places, map(_estimate, estimates.read_many(places)), strict=True)
    return {place: record for place, record in found if record is not None}


def _estimate(payload: bytes | None) -> EstimateRecord | None:
    try:
        return None if payload is None else decode_estimate(payload)
    except RecordError:
        return None


class Verifier:
    """Checks estimates of one survey.

    Args:
        bus: the topic of reports.
        survey: the survey whose estimates are checked.
        partitions: number of partitions of the topic.
        topic_id: the id that the brokers gave the topic; empty if they do not tell.
        clock: the time, in ms.
        tell: called as it goes on with what was read and compared so far.
    """

    def __init__(
        self,
        bus: Bus,
        survey: Survey,
        *,
        partitions: int,
        topic_id: str = "",
        clock: Clock = system_clock,
        tell: Callable[[Progress], None] = lambda _: None,
    ) -> None:
        self._bus, self._survey, self._partitions, self._topic_id = bus, survey, partitions, topic_id
        self._clock, self._tell = clock, tell
        self.progress = Progress(0, 0, None)

    def run(self, records: Sequence[EstimateRecord]) -> list[Verdict]:
        """Count the windows of these estimates again, each up to its own offsets, and compare. Oldest window first."""
        proofs = {record.window_start_ms: record.proof for record in records if record.proof is not None}
        usable = {window_ms: proof for window_ms, proof in proofs.items() if not self._other_topic(proof)}
        recount = Recount(
            self._bus,
            self._survey,
            partitions=self._partitions,
            until={
                Key(self._survey.id, window_ms, shard): proof.offset(shard)
                for window_ms, proof in usable.items()
                for shard in range(self._survey.shards)
            },
            clock=self._clock,
            tell=lambda count: self._at(Progress(count, 0, len(records))),
        )
        if usable:
            recount.catch_up()
        verdicts = []
        for number, record in enumerate(sorted(records, key=lambda one: one.window_start_ms)):
            self._at(Progress(recount.records, number + 1, len(records)))
            verdicts.append(self._verdict(record, recount))
        return verdicts

    def _at(self, progress: Progress) -> None:
        self.progress = progress
        self._tell(progress)

    def _other_topic(self, proof: Proof) -> str:
        """Say why the offsets of a proof are not those of this topic; empty if they are."""
        if len(proof.offsets) != self._partitions:
            return f"it was counted from {len(proof.offsets)} partitions, and the topic has {self._partitions}"
        if proof.topic_id and self._topic_id and proof.topic_id != self._topic_id:
            return f"it was counted from another topic (id {proof.topic_id}; this one has {self._topic_id})"
        return ""

    def _verdict(self, record: EstimateRecord, recount: Recount) -> Verdict:
        window_ms, proof = record.window_start_ms, record.proof
        if proof is None:
            return Verdict(window_ms, "unproven", record.users, {})
        hashed = proof.winners is not None
        elsewhere = self._other_topic(proof)
        if elsewhere:
            return Verdict(window_ms, "unchecked", record.users, {}, elsewhere, hashed, version=proof.thaw)
        differences, identical = self._compare(record, proof, recount)
        missing = self._missing(window_ms, proof, recount) if differences.keys() - {"survey"} else ""
        status: Status = "unchecked" if missing else "different" if differences else "equal"
        return Verdict(window_ms, status, record.users, differences, missing, hashed, identical, proof.thaw)

    def _compare(self, record: EstimateRecord, proof: Proof, recount: Recount) -> tuple[dict[Part, str], bool]:
        """Return the parts that differ, and whether all numbers are equal to the last bit."""
        survey, shape = self._survey, Shape.of(self._survey)
        keys = [Key(survey.id, record.window_start_ms, shard) for shard in range(survey.shards)]
        tables = [recount.table(key) for key in keys]
        tally = sum((table.tally() for table in tables), Tally.empty(shape.rungs, shape.groups, shape.size))
        for earlier in survey.earlier:
            if proof.survey == survey_hash(earlier):  # made before the survey was continued
                survey, rungs = earlier, earlier.mechanism.rungs
                tally = Tally(tally.counts[:rungs], tally.users[:rungs])
        found: dict[Part, str] = {}
        if proof.survey != survey_hash(survey):
            found["survey"] = "the survey file is not the one that the estimate was made with"
        if proof.tally != tally_hash(tally):
            found["tally"] = f"counted for {record.users:,} users; the topic has {tally.total_users:,}"
        winners = winners_hash(shard_digest(table.live(), shape.entry_bytes) for table in tables)
        if proof.winners not in (None, winners):
            found["winners"] = "the reports that were counted are not those in the topic"
        numbers, identical = other_numbers(survey, record, tally)
        if numbers:
            found["estimate"] = numbers
        return found, identical

    def _missing(self, window_ms: int, proof: Proof, recount: Recount) -> str:
        """Say what the topic lacks of a window that does not agree; empty if it should have everything."""
        if recount.misplaced:
            return "partitions were added to the topic, and reports from before lie where they do not belong now"
        held = self._bus.held()
        for shard in range(self._survey.shards):
            partition = partition_of(shard, self._partitions)
            end = recount.ends.get(partition, held[partition].first_offset)
            if end < proof.offset(shard):
                return f"partition {partition} of the topic ends at offset {end}, before {proof.offset(shard)}"
            if not recount.complete(Key(self._survey.id, window_ms, shard)):
                return (
                    f"partition {partition} of the topic begins at offset {held[partition].first_offset}, and reports "
                    "of this window may have been before it"
                )
        return ""


def other_numbers(survey: Survey, record: EstimateRecord, tally: Tally) -> tuple[str, bool]:
    """Say in which numbers an estimate differs from the one that follows from a tally; empty if in none.

    Also return whether all numbers are equal to the last bit.
    """
    settled = record.withheld is None or record.withheld.reason != "unsettled"
    said = _followed(record)
    computed = _followed(estimate_record(survey, record.window_start_ms, tally, settled=settled))
    numbers = list(_unequal(said, computed))
    more = f" and {len(numbers) - _NUMBERS_SHOWN} more" if len(numbers) > _NUMBERS_SHOWN else ""
    return "; ".join(numbers[:_NUMBERS_SHOWN]) + more, said == computed


def _followed(record: EstimateRecord) -> dict[str, Any]:
    """Return the fields that follow from survey and tally."""
    fields: dict[str, Any] = msgspec.to_builtins(record)
    return {name: value for name, value in fields.items() if name not in _NOT_COMPARED}


def _unequal(stored_value: Any, found: Any, path: str = "") -> Iterator[str]:
    """Name every number or text that differs, with both.

    >>> list(_unequal({"a": [1.0, 2.0]}, {"a": [1.0, 2.5]}))
    ['a[1] is 2.0, recounted 2.5']
    """
    if isinstance(stored_value, dict) and isinstance(found, dict) and stored_value.keys() == found.keys():
        name = stored_value.get("value")
        for key in stored_value:
            yield from _unequal(stored_value[key], found[key], f"{path}[{name}].{key}" if name else f"{path}{key}")
    elif isinstance(stored_value, list) and isinstance(found, list) and len(stored_value) == len(found):
        for position, pair in enumerate(zip(stored_value, found, strict=True)):
            named = isinstance(pair[0], dict)
            yield from _unequal(*pair, path if named else f"{path}[{position}]")
    elif not _same(stored_value, found):
        yield f"{path} is {stored_value}, recounted {found}"


def _same(one: Any, other: Any) -> bool:
    if isinstance(one, float) and isinstance(other, float):
        return math.isclose(one, other, rel_tol=RELATIVE, abs_tol=_ABSOLUTE)
    return bool(one == other)
