"""Simulated fleets: 10^5 to 10^7 devices as arrays, each a function of (seed, survey, window, index).

A block of devices in one window is drawn at once from a counter-based generator keyed by exactly those numbers: who
takes part, with which value, at what moment, with which token and which chain of answers. What the network does
(delays, duplicates) is drawn the same way. So a killed fleet that starts again sends the same bytes, and the truth is
known without being sent.

Nothing here is used by a real device, and nothing that counts or estimates imports it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from estimators.exact.randomness import SeededBits
from estimators.mechanisms.registry import randomizer_of
from estimators.simulation.simulator import simulator_of
from producers.simulation.recordings import Recording
from producers.simulation.scenarios import Scenario, pick, uniform
from producers.simulation.standing import Standing, standing_values
from producers.survey.survey import Survey
from producers.wire.cards import Dealt
from producers.wire.keys import key_chains
from producers.wire.layout import TOKEN_BYTES

BLOCK = 65_536
"""Devices drawn at once. Smaller costs Python overhead per block; larger costs memory per window and process."""
_NEVER_MS = np.iinfo(np.int64).max


@dataclass(frozen=True)
class Plan:
    """One simulated fleet: a survey, how many devices, how they behave."""

    survey: Survey
    devices: int
    scenario: Scenario
    seed: int
    base_shares: NDArray[np.float64]
    first_window_ms: int
    recording: Recording | None = None
    """Real data to replay, instead of drawing values from shares."""
    data: str = ""
    """Where the values come from, in words."""

    @property
    def blocks(self) -> int:
        """Number of blocks the fleet is cut into."""
        return -(-self.devices // BLOCK)

    def block_size(self, block: int) -> int:
        """Devices in one block; the last one may be smaller."""
        return min(BLOCK, self.devices - block * BLOCK)

    def window_number(self, window_ms: int) -> int:
        """Windows since the epoch."""
        return window_ms // self.survey.windows.step_ms


class Columns(NamedTuple):
    """Reports side by side: tokens (n, 16), answers (n,) or (n, width), rungs, groups and copy numbers (n,).

    keys (n, 16), without columns where the survey has none.
    """

    tokens: NDArray[np.uint8]
    answers: NDArray[Any]
    rungs: NDArray[np.uint8]
    groups: NDArray[np.uint16]
    copies: NDArray[np.int64]
    keys: NDArray[np.uint8]


class BlockWindow:
    """What one block of devices does in one window: values, tokens, chains, and when each report is sent.

    A row is a device, or one of the copies of its answer where the mechanism asks for several: each has its own token.
    due_ms, row and rung are the events in the order of sending. acked is the highest rung of each row that the broker
    has acknowledged, -1 for none; the rung behind the last one is a withdrawal. acked_of_tiers has the same of what a
    tier may know each.
    """

    def __init__(self, plan: Plan, window_ms: int, block: int, cards: Sequence[Dealt | None] | None = None) -> None:
        """Draw everything; `cards` are those that a dealer gave to each device, None to a device without one."""
        survey, scenario = plan.survey, plan.scenario
        self.plan, self.window_ms, self.block = plan, window_ms, block
        size = plan.block_size(block)
        labels = (survey.id, window_ms, block)
        behaviour = SeededBits(plan.seed, *labels, "behaviour")
        takes_part = uniform(behaviour.words(size)) < scenario.presence
        if cards is not None:
            takes_part &= np.array([card is not None for card in cards])
        present = np.flatnonzero(takes_part)
        phases = uniform(behaviour.words(size))[present]
        value_words = behaviour.words(size)[present]
        standing = self._standing(present)
        self.values = self._true_values(value_words, phases, present) if standing is None else standing.values
        self.size = len(self.values)
        present, phases = present[: self.size], phases[: self.size]
        self.copies = survey.mechanism.copies
        self.rows = self.size * self.copies
        words = SeededBits(plan.seed, *labels, "tokens").words(2 * size * self.copies)
        tokens = words.view(np.uint8).reshape(size * self.copies, TOKEN_BYTES)
        secrets = tokens.take(np.repeat(present, self.copies) * self.copies + self._copy_numbers(), axis=0)
        rungs = survey.mechanism.rungs
        self._chains = key_chains(secrets, rungs, survey.digest, window_ms) if survey.withdrawable else secrets[None]
        self.tokens = self._chains[0]
        if standing is None:
            randomizer = randomizer_of(survey.mechanism)
            values = self.values if cards is None else _with_cards(self.values, [cards[i] for i in present.tolist()])
            inputs = randomizer.encode(values, SeededBits(plan.seed, *labels, "encode"))
            repeated = np.repeat(inputs, self.copies, axis=0)
            self.answers, self.groups = self._chain(repeated, labels)
        else:
            self.answers, self.groups = standing.answers, standing.groups
        if survey.withdrawable:
            self.answers = np.concatenate([self.answers, np.zeros_like(self.answers[:1])])
        self.answers = np.ascontiguousarray(self.answers)
        self.acked = np.full(self.rows, -1, dtype=np.int8)
        self.acked_of_tiers = {tier: self.acked.copy() for tier in survey.tiers if tier.rung < rungs - 1}
        self._schedule(present, phases, SeededBits(plan.seed, *labels, "network"))
        self.sent = 0
        self._counted = np.zeros(self.size, dtype=np.bool_)
        self._withdrawn = np.zeros(self.size, dtype=np.bool_)
        self._numerators = np.zeros(len(survey.mechanism.labels))
        self._denominators = np.zeros(len(survey.mechanism.labels))

    def _standing(self, present: NDArray[np.intp]) -> Standing | None:
        """Return values and answers that belong to them, where a survey has such."""
        plan = self.plan
        if not plan.survey.standing:
            return None
        return standing_values(
            plan.survey,
            plan.scenario,
            plan.base_shares,
            plan.recording,
            seed=plan.seed,
            block=(self.block, self.block * BLOCK, plan.block_size(self.block)),
            window=plan.window_number(self.window_ms),
            present=present,
        )

    def _chain(self, inputs: NDArray[Any], labels: Sequence[str | int]) -> tuple[NDArray[Any], NDArray[np.uint16]]:
        """Draw all answers, those of levels that were added later as devices do which answered before."""
        survey, seed = self.plan.survey, self.plan.seed
        forms = [*(edition.mechanism for edition in survey.continued), survey.mechanism]
        drawn = randomizer_of(forms[0]).draw(inputs, SeededBits(seed, *labels, "chain"))
        parts = [drawn.answers]
        for earlier, later in pairwise(forms):
            bits = SeededBits(seed, *labels, "chain", later.rungs)
            parts.append(randomizer_of(later).draw_more(earlier, inputs, parts[-1][-1], bits))
        return np.concatenate(parts), drawn.groups

    def _copy_numbers(self) -> NDArray[np.int64]:
        return np.tile(np.arange(self.copies), self.size)

    def _true_values(
        self, words: NDArray[np.uint64], phases: NDArray[np.float64], present: NDArray[np.intp]
    ) -> Sequence[Any]:
        plan = self.plan
        number = plan.window_number(self.window_ms)
        if plan.recording is not None:
            day = plan.recording.days[number % len(plan.recording.days)]
            first = self.block * BLOCK
            return day[present[present < max(len(day) - first, 0)] + first]  # type: ignore[return-value]  # an array
        first_number = plan.window_number(plan.first_window_ms)
        chosen = pick(plan.scenario.shares(plan.base_shares, number, first_number, phases), words)
        return simulator_of(plan.survey.mechanism).populate(chosen, words)

    def _schedule(self, present: NDArray[np.intp], phases: NDArray[np.float64], network: SeededBits) -> None:
        """Order all events: rung 0 is due when the value is taken, later ones after the window, all with jitter."""
        survey, scenario = self.plan.survey, self.plan.scenario
        rungs, size = survey.mechanism.rungs, self.rows
        present, phases = np.repeat(present, self.copies), np.repeat(phases, self.copies)
        settings = SeededBits(self.plan.seed, survey.id, "settings", self.block).words(
            2 * self.plan.block_size(self.block)
        )
        stops = uniform(settings[::2][present]) < scenario.stop_early
        top = np.where(stops, settings[1::2][present] % np.uint64(rungs), np.uint64(rungs - 1)).astype(np.int64)
        due = np.empty((rungs, size), dtype=np.int64)
        due[0] = self.window_ms + (phases * survey.windows.size_ms).astype(np.int64)
        for rung in range(1, rungs):
            due[rung] = survey.opening_ms(self.window_ms, rung)
        due += (uniform(network.words(rungs * size)) * survey.jitter_ms).astype(np.int64).reshape(rungs, size)
        row = np.broadcast_to(np.arange(size), (rungs, size))
        rung_of = np.broadcast_to(np.arange(rungs)[:, None], (rungs, size))
        sends = rung_of <= top[None, :]
        if survey.withdrawable:
            withdrawn_ms = self._withdrawals(due, network)
            sends &= due <= withdrawn_ms
            leaves = np.flatnonzero(withdrawn_ms < _NEVER_MS)
        flat_due, flat_row, flat_rung = due[sends], row[sends], rung_of[sends]
        if survey.withdrawable:
            flat_due = np.concatenate([flat_due, withdrawn_ms[leaves]])
            flat_row = np.concatenate([flat_row, leaves])
            flat_rung = np.concatenate([flat_rung, np.full(len(leaves), rungs)])
        flat_due = flat_due + _exponential_ms(network.words(len(flat_due)), scenario.delay_ms)
        if scenario.duplicate:
            again = np.flatnonzero(uniform(network.words(len(flat_due))) < scenario.duplicate)
            later = flat_due[again] + 1 + _exponential_ms(network.words(len(again)), max(scenario.delay_ms, 200))
            flat_due = np.concatenate([flat_due, later])
            flat_row = np.concatenate([flat_row, flat_row[again]])
            flat_rung = np.concatenate([flat_rung, flat_rung[again]])
        order = np.argsort(flat_due, kind="stable")
        self.due_ms = flat_due[order]
        self.row = flat_row[order].astype(np.int64)
        self.rung = flat_rung[order].astype(np.uint8)

    def _withdrawals(self, due: NDArray[np.int64], network: SeededBits) -> NDArray[np.int64]:
        """Return when each row is withdrawn: after its first report and until a while after the last one, or never.

        The copies of a device are withdrawn together, each after a jitter of its own.
        """
        survey = self.plan.survey
        leaves = np.repeat(uniform(network.words(self.size)) < self.plan.scenario.withdraw, self.copies)
        when = np.repeat(uniform(network.words(self.size)), self.copies)
        first_ms, last_ms = due[0], due.max(axis=0) + survey.windows.size_ms // 2
        jitter_ms = (uniform(network.words(self.rows)) * survey.jitter_ms).astype(np.int64)
        moments = first_ms + (when * (last_ms - first_ms)).astype(np.int64) + jitter_ms
        return np.where(leaves, np.maximum(moments, first_ms + 1), _NEVER_MS)

    @property
    def done(self) -> bool:
        """Tell whether every event has been handed out."""
        return self.sent == len(self.due_ms)

    def take(self, until_ms: int) -> slice:
        """Hand out the events due up to until_ms that were not handed out yet."""
        end = int(np.searchsorted(self.due_ms, until_ms, side="right"))
        part = slice(self.sent, max(end, self.sent))
        self.sent = part.stop
        return part

    def acknowledge(self, part: slice) -> None:
        """Note that the broker has these events."""
        row, rung = self.row[part], self.rung[part]
        np.maximum.at(self.acked, row, rung.astype(np.int8))
        for tier, acked in self.acked_of_tiers.items():
            known = (rung <= tier.rung) | self.plan.survey.withdrawals(rung)
            np.maximum.at(acked, row[known], rung[known].astype(np.int8))

    def columns(self, part: slice) -> Columns:
        """Return the reports of these events."""
        row, rung = self.row[part], self.rung[part]
        survey, groups = self.plan.survey, self.groups[row]
        keys = self._chains[rung + 1, row] if survey.withdrawable else np.zeros((len(row), 0), dtype=np.uint8)
        if survey.withdrawable:
            groups = np.where(rung < survey.mechanism.rungs, groups, 0).astype(groups.dtype)
        # `take` moves whole rows, where an index moves them byte by byte: 20 times slower for tokens.
        answers = self.answers.reshape(-1, *self.answers.shape[2:]).take(rung * np.int64(self.rows) + row, axis=0)
        copies = row % self.copies if self.copies > 1 else np.zeros(len(row), dtype=np.int64)
        return Columns(self.tokens.take(row, axis=0), answers, rung, groups, copies, keys)

    def truth(self) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
        """Return numerators and denominators of the true quantities over the devices delivered so far.

        Both add over devices, so each device is counted once, when its first report is acknowledged, and taken out
        when its withdrawal is.
        """
        acked = self.acked.reshape(self.size, self.copies)
        delivered = (acked >= 0).any(axis=1)
        gone = (acked == self.plan.survey.mechanism.rungs).any(axis=1)
        self._add_truth(np.flatnonzero(delivered & ~self._counted & ~gone), 1)
        self._add_truth(np.flatnonzero(gone & self._counted & ~self._withdrawn), -1)
        self._counted |= delivered
        self._withdrawn |= gone
        return self._numerators, self._denominators

    def _add_truth(self, devices: NDArray[np.intp], sign: int) -> None:
        if len(devices):
            values = [self.values[i] for i in devices.tolist()]
            numerators, denominators = simulator_of(self.plan.survey.mechanism).truth_parts(values)
            self._numerators += sign * numerators
            self._denominators += sign * denominators


def _with_cards(values: Sequence[Any], cards: Sequence[Dealt | None]) -> list[dict[str, Any]]:
    pairs = zip(values, cards, strict=True)
    return [{"value": value, "block": card.block, "card": card.card} for value, card in pairs if card is not None]


def _exponential_ms(words: NDArray[np.uint64], mean_ms: int) -> NDArray[np.int64]:
    if mean_ms == 0:
        return np.zeros(len(words), dtype=np.int64)
    return np.asarray(-mean_ms * np.log1p(-uniform(words)), dtype=np.int64)
