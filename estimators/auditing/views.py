"""The declared law of every mechanism, found by the class of its specification."""

from __future__ import annotations

from collections.abc import Sequence
from functools import singledispatch
from typing import Any

import numpy as np
from numpy.typing import NDArray

from estimators.auditing.declared import DeclaredLaw, Floats, NotAuditedError, Position
from estimators.auditing.transcripts import Ints
from estimators.channels.bit_chain import BitChain
from estimators.channels.bits import BitChannel, unpack
from estimators.channels.bloom import positions as bloom_positions
from estimators.channels.chain import Chain
from estimators.channels.channel import Channel
from estimators.mechanism import Specification
from estimators.mechanisms.improved_christofides import ImprovedChristofides
from estimators.mechanisms.k_randomization import KRandomization
from estimators.mechanisms.key_value import LPP, PCKVUE
from estimators.mechanisms.mean import Mean
from estimators.mechanisms.pum import PUM
from estimators.mechanisms.rappor import RAPPOR
from estimators.mechanisms.symbols import SymbolSpecification
from estimators.mechanisms.uldp import URR, UtilityOptimized
from estimators.mechanisms.unary import Unary

MOST_VALUES = 12
"""Different true values of recorded devices: more would leave each with few devices."""
_MOST_KEYS = 3
_MOST_STRINGS = 3
_MOST_SYMBOLS = 64
"""Answers that are told apart; of more, those that are no device's value are lumped, as retention channels allow."""


@singledispatch
def declared_law(specification: Specification) -> DeclaredLaw:
    """Return what a mechanism declares about single answers.

    Raises:
        NotAuditedError: it declares nothing that answers of single devices could contradict.
    """
    raise NotAuditedError(
        f"{specification.name} has no description for attacks; add one to estimators/auditing/views.py"
    )


@declared_law.register
def _(specification: ImprovedChristofides) -> DeclaredLaw:
    raise NotAuditedError(
        f"{specification.name} promises nothing about single answers: the cards of a block depend on each other, the "
        "ledger charges without bound, and no attack can contradict that"
    )


@declared_law.register
def _(specification: SymbolSpecification) -> DeclaredLaw:
    chosen = _spread(len(specification.labels), MOST_VALUES)
    values = tuple(specification.labels[i] for i in chosen)
    return _of_symbols(specification, specification.chain, values, values, chosen)


@declared_law.register
def _(specification: Mean) -> DeclaredLaw:
    if specification.moments > 1 and specification.low < 0:
        raise NotAuditedError("squares of numbers on both sides of zero are not audited; audit the survey of the mean")
    # The ends of the range, and their squares, are rounded to themselves: what enters the channel is known.
    ends = (specification.low, specification.high)
    return _of_symbols(specification, specification.chain, tuple(f"{end:g}" for end in ends), ends, [0, 1])


@declared_law.register
def _(specification: UtilityOptimized) -> DeclaredLaw:
    ordered = specification.ordered
    if isinstance(specification, URR) and specification.shrinks and len(ordered) > _MOST_SYMBOLS:
        raise NotAuditedError(
            f"{specification.name} with sensitive values that become fewer is audited for up to {_MOST_SYMBOLS} values"
        )
    # Where sensitive values become fewer, answers that are protected on every rung are looked at.
    chosen = _both_kinds(len(specification.sensitive), len(ordered))
    values = tuple(ordered[i] for i in chosen)
    return _of_protected(specification, specification.chain, values, values, chosen, len(specification.sensitive))


@declared_law.register
def _(specification: PUM) -> DeclaredLaw:
    ordered = specification.symbols_in_order
    protected = len(specification.sensitive) + len(specification.tags)
    chosen = _both_kinds(protected, len(ordered))
    names = tuple(ordered[i] for i in chosen)
    own = specification.others[0]
    values = tuple({"value": own, "personal": {name: [own]}} if name in specification.tags else name for name in names)
    return _of_protected(specification, specification.chain, names, values, chosen, protected)


@declared_law.register
def _(specification: Unary) -> DeclaredLaw:
    chosen = _spread(len(specification.labels), MOST_VALUES)
    values = tuple(specification.labels[i] for i in chosen)
    hot = np.eye(len(chosen), dtype=np.int64)
    return _of_bits(specification, specification.chain, values, values, hot[None], chosen)


@declared_law.register
def _(specification: RAPPOR) -> DeclaredLaw:
    chosen = _spread(len(specification.labels), _MOST_STRINGS)
    values = tuple(specification.labels[i] for i in chosen)
    cohorts = range(specification.groups)
    shape = {"bits": specification.bits, "hashes": specification.hashes}
    set_bits = [[set(bloom_positions(value, cohort, **shape)) for value in values] for cohort in cohorts]
    places = sorted({bit for row in set_bits for bits in row for bit in bits})
    inputs = np.array([[[bit in bits for bit in places] for bits in row] for row in set_bits], dtype=np.int64)
    return _with_free_draw(_of_bits(specification, specification.chain, values, values, inputs, places), len(cohorts))


@declared_law.register
def _(specification: KRandomization) -> DeclaredLaw:
    labels = specification.labels
    places = _spread(len(labels), MOST_VALUES)
    records = [[], [labels[i] for i in places], *([labels[i]] for i in places[:_MOST_KEYS] if len(places) > 1)]
    inputs = np.array([[labels[i] in record for i in places] for record in records], dtype=np.int64)
    names = tuple(", ".join(record) or "nothing" for record in records)
    chain = BitChain(specification.channel, ())
    return _of_bits(specification, chain, names, tuple(records), inputs[None], places)


@declared_law.register
def _(specification: LPP) -> DeclaredLaw:
    # The same answer for every key: what enters the channel does not depend on the key that is drawn.
    signs = {"no key": None, "all keys +1": 1.0, "all keys -1": -1.0}
    values = tuple({} if sign is None else dict.fromkeys(specification.keys, sign) for sign in signs.values())
    law = _of_symbols(specification, specification.chain, tuple(signs), values, [0, 1, 2])

    def read(answers: NDArray[np.uint8], groups: Ints) -> Ints:
        return law.read(answers, groups) % 3

    def asked(answers: NDArray[np.uint8], groups: Ints) -> Ints:
        return law.read(answers, groups)[:, 0] // 3

    one_key = DeclaredLaw(law.names, law.values, law.families, law.family, law.inputs, read, law.levels)
    return _with_free_draw(one_key, len(specification.keys), asked)


@declared_law.register
def _(specification: PCKVUE) -> DeclaredLaw:
    places = _spread(len(specification.keys), _MOST_KEYS)
    people: list[tuple[str, dict[str, float], int, int]] = [("no key", {}, -1, 0)]
    for number, place in enumerate(places):
        key = specification.keys[place]
        people += [(f"{key} +1", {key: 1.0}, number, 1), (f"{key} -1", {key: -1.0}, number, 2)]
    inputs = np.zeros((len(people), len(places)), dtype=np.int64)
    for row, (_, _, number, symbol) in enumerate(people):
        if symbol:
            inputs[row, number] = symbol
    # A table with one key is padded: the key is sampled once in `padding` times, otherwise the vector has none.
    sampled = np.full((3, 3), 0.0)
    sampled[0, 0] = 1.0
    sampled[1:, 0], sampled[1, 1], sampled[2, 2] = 1 - 1 / specification.padding, *(2 * [1 / specification.padding])
    chain = specification.chain
    family = Position(
        tuple(sampled @ _rows(channel, range(3)) for channel in chain.channels),
        tuple(_rows(kernel, range(3)) for kernel in chain.kernels),
        np.ones(3, dtype=np.bool_),
    )
    bits, keys = specification.answer.size, len(specification.keys)

    def read(answers: NDArray[np.uint8], groups: Ints) -> Ints:  # noqa: ARG001
        planes = unpack(answers, bits).astype(np.int64)
        return np.asarray(planes[:, places] + 2 * planes[:, [keys + place for place in places]])

    return DeclaredLaw(
        tuple(name for name, _, _, _ in people),
        tuple(table for _, table, _, _ in people),
        (family,),
        np.zeros(len(places), dtype=np.int64),
        inputs[None],
        read,
        specification.ladder,
    )


def _of_symbols(
    specification: Specification,
    chain: Chain,
    names: Sequence[str],
    values: Sequence[Any],
    chosen: Sequence[int],
    *,
    pool: int | None = None,
) -> DeclaredLaw:
    """One position; chosen[i] is what enters the channel for values[i]; symbols from `pool` on are not protected."""
    if len(values) < 2:
        raise NotAuditedError(f"{specification.name} with a single value has nothing that answers could tell")
    outputs = chain.top.outputs
    pool = outputs if pool is None else pool
    kept = list(range(outputs)) if outputs <= _MOST_SYMBOLS else sorted(chosen)
    place = np.full(outputs, -1, dtype=np.int64)
    place[kept] = np.arange(len(kept))
    representatives = list(kept)
    for part in (range(pool), range(pool, outputs)):
        lumped = [symbol for symbol in part if place[symbol] < 0]
        if lumped:
            place[lumped] = len(representatives)
            representatives.append(lumped[0])
    family = Position(
        tuple(_rows(channel, chosen, place) for channel in chain.channels),
        tuple(_rows(kernel, representatives, place) for kernel in chain.kernels),
        np.array([symbol < pool for symbol in representatives]),
    )
    dtype = specification.symbol_dtype

    def read(answers: NDArray[np.uint8], groups: Ints) -> Ints:  # noqa: ARG001
        told = np.ascontiguousarray(answers).view(dtype).reshape(-1).astype(np.int64)
        return told[:, None] if specification.answer.size != outputs else place[told][:, None]

    return DeclaredLaw(
        tuple(names),
        tuple(values),
        (family,),
        np.zeros(1, dtype=np.int64),
        np.arange(len(values))[None, :, None],
        read,
        specification.ladder,
    )


def _of_protected(
    specification: Specification,
    chain: Chain | BitChain,
    names: Sequence[str],
    values: Sequence[Any],
    chosen: Sequence[int],
    protected: int,
) -> DeclaredLaw:
    """The utility-optimised mechanisms: of the symbols or bits the first `protected` are covered by the guarantee."""
    if isinstance(chain, Chain):
        return _of_symbols(specification, chain, names, values, chosen, pool=protected)
    hot = np.eye(len(chosen), dtype=np.int64)
    return _of_bits(specification, chain, names, values, hot[None], chosen, quiet=(1,))


def _of_bits(
    specification: Specification,
    chain: BitChain,
    names: Sequence[str],
    values: Sequence[Any],
    inputs: Ints,
    places: Sequence[int],
    *,
    quiet: tuple[int, ...] = (),
) -> DeclaredLaw:
    """One position per bit of `places`; a one in a block of `quiet` is not protected."""
    if len(values) < 2:
        raise NotAuditedError(f"{specification.name} with a single value has nothing that answers could tell")
    families = tuple(
        Position(
            tuple(_two_by_two(channel, number) for channel in chain.channels),
            tuple(_two_by_two(kernel, number) for kernel in chain.kernels),
            np.array([True, number not in quiet]),
        )
        for number in range(len(chain.top.blocks))
    )
    blocks = np.repeat(np.arange(len(chain.top.blocks)), [block.size for block in chain.top.blocks])
    bits, where = specification.answer.size, list(places)

    def read(answers: NDArray[np.uint8], groups: Ints) -> Ints:  # noqa: ARG001
        return unpack(answers, bits)[:, where].astype(np.int64)

    levels = specification.ladder if specification.guarantee.local else (float("inf"),) * specification.rungs
    return DeclaredLaw(tuple(names), tuple(values), families, blocks[where], inputs, read, levels)


def _with_free_draw(law: DeclaredLaw, outcomes: int, told: Any = None) -> DeclaredLaw:
    """Add a position that a device draws evenly without looking at its value and keeps on all rungs."""
    if outcomes == 1:
        return law
    free = Position(
        (np.full((1, outcomes), 1.0 / outcomes),) * law.rungs,
        (np.eye(outcomes),) * (law.rungs - 1),
        np.ones(outcomes, dtype=np.bool_),
    )

    def read(answers: NDArray[np.uint8], groups: Ints) -> Ints:
        drawn = groups if told is None else told(answers, groups)
        return np.concatenate([law.read(answers, groups), np.asarray(drawn)[:, None]], axis=1)

    return DeclaredLaw(
        law.names,
        law.values,
        (*law.families, free),
        np.append(law.family, len(law.families)),
        np.concatenate([law.inputs, np.zeros((*law.inputs.shape[:2], 1), dtype=np.int64)], axis=2),
        read,
        law.levels,
    )


def _rows(channel: Channel, values: Sequence[int], place: Ints | None = None) -> Floats:
    """Return rows of a channel; with `place` the columns are lumped."""
    columns = np.arange(channel.outputs) if place is None else place
    rows = np.zeros((len(values), int(columns.max()) + 1))
    for number, value in enumerate(values):
        lumps = [0] * rows.shape[1]
        for column, entry in zip(columns.tolist(), channel.row(value), strict=True):
            lumps[column] += entry
        rows[number] = [lump / channel.denominator for lump in lumps]
    return rows


def _two_by_two(channel: BitChannel, block: int) -> Floats:
    return _rows(channel.blocks[block].channel, (0, 1))


def _spread(size: int, most: int) -> list[int]:
    """Return up to `most` of the numbers 0 ... size - 1, the first and the last among them."""
    return sorted({round(i) for i in np.linspace(0, size - 1, min(size, most)).tolist()})


def _both_kinds(protected: int, size: int) -> list[int]:
    """Return some of the protected and some of the other positions."""
    half = MOST_VALUES // 2
    others = [protected + i for i in _spread(size - protected, half)] if size > protected else []
    return _spread(protected, half) + others
