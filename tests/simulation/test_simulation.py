"""Whatever happens, in whatever order: the tally is a function of the set of reports.

Hypothesis makes up the story, and shrinks one that fails. The last line of a failure is the script as data: paste it
into `test_reproductions.py`.
"""

from __future__ import annotations

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, rule, run_state_machine_as_test

from producers.survey.survey import Survey
from tests.simulation import operations as ops
from tests.simulation.bus import CONTINUING, SHORTER, STANDING, SURVEY, TIERED, WITHDRAWABLE
from tests.simulation.continuing import Continue, LateAndOld, Learn
from tests.simulation.withdrawals import Forge, Withdraw
from tests.simulation.world import World

devices = st.integers(0, 2)
workers = st.integers(0, 1)
values = st.integers(0, 23)
counts = st.integers(1, 4)
milliseconds = st.one_of(st.integers(1, 90_000), st.sampled_from([10_000, 30_000, 59_999, 60_000, 180_000, 600_000]))
reports = st.lists(st.tuples(st.integers(0, 7), st.integers(0, 2), values), min_size=1, max_size=6).map(tuple)


class Story(RuleBasedStateMachine):
    """Every rule is one operation."""

    asked = SURVEY
    later: Survey | None = None

    def __init__(self) -> None:
        super().__init__()
        self.world = World(asked=self.asked, later=self.later)
        self.failed = False

    def do(self, op: ops.Op) -> None:
        self.world.script.append(op)
        self.failed = True  # until it has come back
        op.run(self.world)
        self.failed = False

    @rule(device=devices, value=values, held=st.booleans())
    def emit(self, device: int, value: int, held: bool) -> None:
        self.do(ops.Emit(device, value, held))

    @rule(some=reports, windows=st.integers(0, 4))
    def late(self, some: tuple[tuple[int, int, int], ...], windows: int) -> None:
        self.do(ops.Late(some, windows))

    @rule(partition=workers, offset=st.integers(0, 20))
    def duplicate(self, partition: int, offset: int) -> None:
        self.do(ops.Duplicate(partition, offset))

    @rule(order=st.integers(0, 9))
    def reorder(self, order: int) -> None:
        self.do(ops.Reorder(order))

    @rule(reason=st.sampled_from(ops.DAMAGES), before=st.booleans(), after=st.booleans())
    def corrupt(self, reason: str, before: bool, after: bool) -> None:
        self.do(ops.Corrupt(reason, before, after))

    @rule(time_ms=milliseconds)
    def advance(self, time_ms: int) -> None:
        self.do(ops.Advance(time_ms))

    @rule()
    def close_window(self) -> None:
        self.do(ops.CloseWindow())

    @rule(worker=workers, records=counts)
    def work(self, worker: int, records: int) -> None:
        self.do(ops.Work(worker, records))

    @rule(worker=workers, step=st.sampled_from(["", *ops.STEPS]), when=st.sampled_from(["before", "after"]))
    def crash_worker(self, worker: int, step: str, when: str) -> None:
        self.do(ops.CrashWorker(worker, step, when))

    @rule(worker=workers, records=counts)
    def crash_between_apply_and_ack(self, worker: int, records: int) -> None:
        self.do(ops.CrashBetweenApplyAndAck(worker, records))

    @rule(owners=st.tuples(workers, workers), zombie=st.none() | workers)
    def rebalance(self, owners: tuple[int, ...], zombie: int | None) -> None:
        self.do(ops.Rebalance(owners, zombie))

    @rule(time_ms=st.sampled_from([0, 100, 5_000, 130_000]), lost=st.integers(0, 2))
    def redis_away(self, time_ms: int, lost: int) -> None:
        self.do(ops.RedisAway(time_ms, lost))

    @rule(cut=st.booleans())
    def redis_loses_power(self, cut: bool) -> None:
        self.do(ops.RedisForgets() if cut else ops.RedisSyncs())

    @rule(time_ms=milliseconds)
    def broker_away(self, time_ms: int) -> None:
        self.do(ops.BrokerAway(time_ms))

    @rule(device=devices, where=st.sampled_from(ops.CRASHES), value=values)
    def device_crash(self, device: int, where: str, value: int) -> None:
        self.do(ops.DeviceCrash(device, where, value))

    def finish(self) -> None:
        self.world.finish()

    def teardown(self) -> None:
        try:
            if not self.failed:
                self.finish()
        except AssertionError as error:
            error.add_note(f"script: {self.world.script!r}")
            raise
        finally:
            self.world.close()


class WithdrawnStory(Story):
    """The same where answers can be taken back, and nobody can sharpen those of others."""

    asked = WITHDRAWABLE

    @rule(device=devices, held=st.booleans())
    def withdraw(self, device: int, held: bool) -> None:
        self.do(Withdraw(device, held))

    @rule(some=st.lists(st.tuples(st.integers(0, 7), st.integers(0, 3), values), min_size=1, max_size=6).map(tuple))
    def fleet_withdraws(self, some: tuple[tuple[int, int, int], ...]) -> None:
        self.do(ops.Late(some, 1))

    @rule(partition=workers, offset=st.integers(0, 20), rung=st.integers(0, 2))
    def forge(self, partition: int, offset: int, rung: int) -> None:
        self.do(Forge(partition, offset, rung))


class StandingStory(Story):
    """The same where windows repeat the answers of a value; there are few, so that they come back."""

    asked = STANDING

    @rule(device=devices, value=st.integers(0, 1), held=st.booleans())
    def emit_again(self, device: int, value: int, held: bool) -> None:
        self.do(ops.Emit(device, value, held))


class ContinuedStory(Story):
    """The same where a level is added while windows are answered: chains go on, and each token counts once."""

    asked, later = SHORTER, CONTINUING

    @rule(worker=workers)
    def learn(self, worker: int) -> None:
        self.do(Learn(worker))

    @rule(some=st.frozensets(devices))
    def go_on(self, some: frozenset[int]) -> None:
        self.do(Continue(tuple(sorted(some))))

    @rule(some=reports, windows=st.integers(0, 3))
    def late_and_old(self, some: tuple[tuple[int, int, int], ...], windows: int) -> None:
        self.do(LateAndOld(some, windows))


class TieredStory(WithdrawnStory):
    """The same where audiences may know low rungs alone: each has counts of its own."""

    asked = TIERED


def test_no_story_loses_a_report_or_counts_one_twice() -> None:
    run_state_machine_as_test(Story, settings=settings(max_examples=100, stateful_step_count=30))


def test_no_story_with_standing_values_pays_twice_or_tells_a_value_in_two_ways() -> None:
    run_state_machine_as_test(StandingStory, settings=settings(max_examples=40, stateful_step_count=30))


def test_no_story_with_withdrawals_counts_what_was_taken_back_or_forged() -> None:
    run_state_machine_as_test(WithdrawnStory, settings=settings(max_examples=60, stateful_step_count=30))


def test_no_story_with_levels_added_later_draws_one_twice_or_counts_a_token_twice() -> None:
    run_state_machine_as_test(ContinuedStory, settings=settings(max_examples=80, stateful_step_count=30))


def test_no_story_tells_a_tier_more_or_less_than_the_answers_up_to_its_rung() -> None:
    run_state_machine_as_test(TieredStory, settings=settings(max_examples=60, stateful_step_count=30))
