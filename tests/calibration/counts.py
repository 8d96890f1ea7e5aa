"""Tallies of many windows, drawn as counts from the exact channels: no device is simulated where counts will do.

Given how many people of each kind are on each rung, the answers of a rung are sums of binomial or multinomial counts.
Only the last answer of a device is in a tally, so rungs are drawn independently. Mechanisms whose answers are neither
symbols nor bits of one chain (cards dealt from a deck, a mechanism that is new) go through their randomizer.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray

from estimators.channels.bit_chain import BitChain
from estimators.channels.bloom import design_matrix
from estimators.channels.chain import Chain
from estimators.exact.randomness import SeededBits
from estimators.mechanisms.k_randomization import KRandomization
from estimators.mechanisms.key_value import LPP, MINUS, PCKVUE, PLUS
from estimators.mechanisms.mean import Mean
from estimators.mechanisms.rappor import RAPPOR
from estimators.simulation.tallies import tally_of
from estimators.tally import Tally
from tests.calibration.worlds import World, encoded_alike
from tests.support.mechanism import Mechanism

Ints = NDArray[np.int64]
Floats = NDArray[np.float64]
Generator = np.random.Generator

Draw = Callable[[Ints, Generator], Tally]
"""From people [rung, kind] to a tally."""


def drawer(world: World) -> tuple[Draw, bool]:
    """Return how tallies of a world are drawn, and whether that takes time for every single device."""
    mechanism, specification = world.mechanism, world.mechanism.specification
    if isinstance(specification, RAPPOR):
        return _filters(specification, world), False
    if isinstance(specification, LPP | PCKVUE):
        return _key_values(specification, world), False
    if isinstance(specification, KRandomization):
        return _records(specification, world), False
    if isinstance(specification, Mean):
        return _numbers(specification, world), False
    chain = getattr(specification, "chain", None)
    alike = all(encoded_alike(mechanism, value) for value in world.people.values)
    if alike and mechanism.answer.kind == "index" and isinstance(chain, Chain):
        if chain.top.outputs == mechanism.answer.size:
            return _symbols(mechanism, chain, _inputs(world, chain.top.inputs)), False
    elif alike and isinstance(chain, BitChain):
        return _bits(mechanism, chain, _inputs(world, mechanism.answer.size)), False
    return device_by_device(world), True


def _inputs(world: World, size: int) -> Floats:
    """Return the input of every kind as a row with a single 1."""
    encoded = world.mechanism.encode(list(world.people.values), SeededBits(0, "inputs"))
    return np.eye(size)[np.asarray(encoded, dtype=np.int64)]


def _told(people: Ints, law: Floats, rng: Generator) -> Ints:
    """Return the numbers of inputs [rung, input] that people [rung, kind] encode to."""
    told = np.zeros((len(people), law.shape[1]), dtype=np.int64)
    for rung, kind in zip(*np.nonzero(people), strict=True):
        told[rung] += rng.multinomial(people[rung, kind], law[kind])
    return told


def _symbols(mechanism: Mechanism, chain: Chain, law: Floats) -> Draw:
    channels = np.stack([channel.matrix for channel in chain.channels])
    fixed = bool(np.all((law == 0) | (law == 1)))

    def draw(people: Ints, rng: Generator) -> Tally:
        told = people @ law.astype(np.int64) if fixed else _told(people, law, rng)
        counts = np.zeros((mechanism.rungs, 1, mechanism.answer.cells), dtype=np.int64)
        for rung, value in zip(*np.nonzero(told), strict=True):
            counts[rung, 0] += rng.multinomial(told[rung, value], channels[rung, value])
        return Tally(counts, people.sum(axis=1)[:, None])

    return draw


def _numbers(specification: Mean, world: World) -> Draw:
    """Each device rounds its number to an end, or its square where a coin says so."""
    numbers = specification.numbers(world.people.values)
    draws = []
    for power, (low, high) in enumerate(specification.ranges, start=1):
        share = (numbers**power - low) / (high - low)
        draws.append(_symbols(world.mechanism, specification.chain, np.stack([1.0 - share, share], axis=1)))
    if len(draws) == 1:
        return draws[0]

    def halves(people: Ints, rng: Generator) -> Tally:
        first = rng.binomial(people, 0.5)
        parts = [draw(half, rng) for draw, half in zip(draws, (first, people - first), strict=True)]
        return Tally(
            np.concatenate([part.counts for part in parts], axis=1),
            np.concatenate([part.users for part in parts], axis=1),
        )

    return halves


def _bits(mechanism: Mechanism, chain: BitChain, law: Floats) -> Draw:
    truth, lie = chain.probabilities
    whole = law.astype(np.int64)

    def draw(people: Ints, rng: Generator) -> Tally:
        having, users = people @ whole, people.sum(axis=1)[:, None]
        return Tally((rng.binomial(having, truth) + rng.binomial(users - having, lie))[:, None], users)

    return draw


def _records(specification: KRandomization, world: World) -> Draw:
    holds = specification.matrix(world.people.values).astype(np.int64)
    truth, lie = specification.channel.ones, specification.channel.zeros

    def draw(people: Ints, rng: Generator) -> Tally:
        copies = people * specification.copies
        having, sent = copies @ holds, copies.sum(axis=1)[:, None]
        return Tally((rng.binomial(having, truth) + rng.binomial(sent - having, lie))[:, None], sent)

    return draw


def _filters(specification: RAPPOR, world: World) -> Draw:
    design = design_matrix(
        list(world.people.values), specification.groups, bits=specification.bits, hashes=specification.hashes
    ).astype(np.int64)
    truth, lie = specification.chain.probabilities
    cohorts = np.full(specification.groups, 1.0 / specification.groups)

    def draw(people: Ints, rng: Generator) -> Tally:
        split = rng.multinomial(people, cohorts)
        users = split.sum(axis=1)
        having = np.einsum("rkc,cjk->rcj", split, design)
        ones = rng.binomial(having, truth[:, None]) + rng.binomial(users[:, :, None] - having, lie[:, None])
        return Tally(ones, users)

    return draw


def _key_values(specification: LPP | PCKVUE, world: World) -> Draw:
    """People are asked about one key, or have one of their padded keys sampled; then signs are rounded and told."""
    keys, kinds = len(specification.keys), len(world.people.values)
    law = np.zeros((kinds, keys, 3))
    for kind, person in enumerate(world.people.values):
        law[kind, :, 0] = 1.0
        for key, value in person.items():
            place = specification.position[key]
            law[kind, place] = [0.0, (1.0 + value) / 2.0, (1.0 - value) / 2.0]
    channels = np.stack([channel.matrix for channel in specification.chain.channels])
    rungs = specification.rungs
    if isinstance(specification, LPP):
        inputs = law.reshape(kinds, -1) / keys

        def asked(people: Ints, rng: Generator) -> Tally:
            told = _told(people, inputs, rng).reshape(rungs, keys, 3)
            counts = rng.multinomial(told, channels[:, None]).sum(axis=2)
            return Tally(counts.reshape(rungs, 1, 3 * keys), people.sum(axis=1)[:, None])

        return asked
    padding = max(specification.padding, max(len(person) for person in world.people.values))
    sampled = np.concatenate([law[:, :, PLUS], law[:, :, MINUS]], axis=1) / padding
    sampled = np.concatenate([sampled, 1.0 - sampled.sum(axis=1, keepdims=True)], axis=1)

    def vectors(people: Ints, rng: Generator) -> Tally:
        told = _told(people, sampled, rng)
        signs = np.stack([told[:, :keys], told[:, keys : 2 * keys]], axis=2)
        users = people.sum(axis=1)
        symbols = np.concatenate([users[:, None, None] - signs.sum(axis=2, keepdims=True), signs], axis=2)
        answers = rng.multinomial(symbols, channels[:, None]).sum(axis=2)
        counts = np.concatenate([answers[:, :, PLUS], answers[:, :, MINUS]], axis=1)
        return Tally(counts[:, None], users[:, None])

    return vectors


def device_by_device(world: World) -> Draw:
    """Return tallies of devices that encode their values and draw their answers on their own."""
    mechanism = world.mechanism
    kinds: Any = np.empty(len(world.people.values), dtype=object)
    kinds[:] = list(world.people.values)

    def draw(people: Ints, rng: Generator) -> Tally:
        rungs = np.repeat(np.arange(len(people)), people.sum(axis=1))
        picks = np.concatenate([np.repeat(np.arange(len(kinds)), row) for row in people])
        order = rng.permutation(len(picks))
        bits = SeededBits(int(rng.integers(1 << 62)), "calibration")
        inputs = mechanism.encode(kinds[picks[order]].tolist(), bits)
        drawn = mechanism.draw(np.repeat(inputs, mechanism.specification.copies, axis=0), bits)
        return tally_of(mechanism.specification, drawn, np.repeat(rungs[order], mechanism.specification.copies))

    return draw
