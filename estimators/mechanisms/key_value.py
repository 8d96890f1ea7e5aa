"""Key-value reports: LPP (one random key per person) and PCKV-UE (a vector over all keys)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from fractions import Fraction
from functools import cached_property
from typing import Any, ClassVar, Self

import numpy as np
from numpy.typing import NDArray

from estimators.channels.chain import Chain
from estimators.channels.channel import Channel
from estimators.channels.dense_chain import build_dense
from estimators.channels.downgrade import Coarser, Known, SymbolDowngrade
from estimators.channels.noisy_sampling import dense_losses, largest_loss, sampled_logs
from estimators.exact.lazy import Bytes, CellSampler
from estimators.exact.randomness import Bits, below
from estimators.exact.rounding import log_ratio_up
from estimators.mechanism import (
    Answer,
    Drawn,
    Guarantee,
    ParameterError,
    Quantity,
    Randomizer,
    Specification,
    one_group,
)
from estimators.mechanisms.small_channel import check_levels, growth
from estimators.mechanisms.three_element import club_exact
from estimators.parameters import at_least, refuse_unknown, whole_number

MAX_KEYS = 10_000
PLUS, MINUS = 1, 2
"""Symbols of one key: 0 for no such key, then the two signs."""


class KeyValue(Specification):
    """What both have in common: a person's value is a table of keys with values in [-1, 1]."""

    exclusive = adds_up = False
    chain: Chain
    keys: tuple[str, ...]

    def __init__(self, keys: Sequence[str], ladder: Sequence[float], chain: Chain) -> None:
        self.keys = tuple(keys)
        self.labels = tuple(f"{key}/{quantity}" for key in self.keys for quantity in ("share", "mean"))
        self.ladder = tuple(float(level) for level in ladder)
        self.chain = chain

    def checked(self, person: Any) -> Mapping[str, float]:
        """Return a person's table, or refuse it."""
        if not isinstance(person, Mapping):
            raise ParameterError("value", person, "must be a table of keys with values in [-1, 1], {} for none")
        for key, value in person.items():
            if key not in self.position:
                some = ", ".join(self.keys[:5]) + (", ..." if len(self.keys) > 5 else "")
                raise ParameterError("value", key, f"must be one of the survey's {len(self.keys)} keys ({some})")
            number = isinstance(value, int | float) and not isinstance(value, bool)
            if not number or not -1.0 <= value <= 1.0:
                raise ParameterError(f"value.{key}", value, "must be a number in [-1, 1]; scale it")
        return person

    @cached_property
    def position(self) -> dict[str, int]:
        """Where each key stands among the keys."""
        return {key: i for i, key in enumerate(self.keys)}

    @property
    def quantities(self) -> tuple[Quantity, ...]:
        """Per key the share of people who have it and the mean of their values."""
        share, mean = "share of the devices that answered that have this key", "mean value of the devices with this key"
        return tuple(
            Quantity(label, kind="mean", subject="key", low=-1.0, high=1.0, meaning=mean, name=self.keys[i // 2])
            if i % 2
            else Quantity(label, subject="key", meaning=share, name=self.keys[i // 2])
            for i, label in enumerate(self.labels)
        )

    @property
    def kept_keys(self) -> int:
        """Keys that a person may have without biasing the estimates."""
        return len(self.keys)

    def canonical(self) -> dict[str, Any]:
        """Return keys and integer thresholds."""
        return {"mechanism": self.name, "values": list(self.keys), "chain": self.chain.canonical()}


class LPP(KeyValue):
    """Each person is asked about one key, drawn at random once: whether it is there, and the sign of its value."""

    name = "lpp"
    source = (
        "Ma & Wang, Algorithms 1 to 3 (VPP, LPP, LPP-double-dagger), with the allocation derived from their Lemma 2"
    )
    corrections: ClassVar[tuple[str, ...]] = (
        "LPP and LPP-double-dagger are one channel: the fake value is random and symmetric, so only its sign counts.",
        (
            "Their Lemma 2 forgets two people who both have the key; the loss is max(eps2, eps1 + ln(2/(1 + "
            "e^-eps2))), and the best split of a total is eps2 = eps, eps1 = ln((e^eps + 1)/2)."
        ),
        "Rounding of the value belongs to the input, once; the estimators then need no unknown weights.",
        "Totals carry the factor for asking each person about one key only.",
    )
    ladders: ClassVar[str] = (
        "Any increasing ladder, because every level is split between key and value by the same rule; key and sign stay."
    )
    guarantee = Guarantee(
        "All answers of one window together reveal no more than the sharpest one about the whole table of a person: "
        "any two tables explain them equally well up to a factor e^epsilon.",
        "Holds against a collector who sees every answer of the device and knows everything about everybody else; the "
        "key that is asked about is drawn without looking at the table.",
    )

    def __init__(self, keys: Sequence[str], ladder: Sequence[float]) -> None:
        levels = []
        for epsilon in ladder:
            factor = growth(epsilon)
            keep = (factor + 1) / (factor + 3)
            levels.append(club_exact(keep, keep, factor / (factor + 1)))
        super().__init__(keys, ladder, build_dense(ladder, levels))
        self.answer = Answer("index", 3 * len(self.keys))

    @classmethod
    def build(cls, values: Sequence[str], ladder: Sequence[float], parameters: Mapping[str, Any]) -> LPP:
        """Build from keys and a ladder; there are no further parameters."""
        refuse_unknown(parameters, (), cls.name)
        return cls(at_least(values, 1, cls.name), check_levels(ladder))

    @cached_property
    def epsilons(self) -> tuple[float, ...]:
        """Exact cost of each prefix of the chain, rounded up."""
        return tuple(channel.epsilon for channel in self.chain.channels)

    @cached_property
    def downgrade(self) -> KeptKeys:
        """Coarser symbols by the kernels of the chain; the key stays."""
        return KeptKeys(SymbolDowngrade(self.chain.kernels, 3))

    def sampling_epsilon(self, sample: Self, samples: int) -> float:
        """Return what noisy samples of one permanent answer cost together; the key stays."""
        return dense_losses(self.chain.top.matrix, sample.chain.top.matrix, samples)


class PCKVUE(KeyValue):
    """One key of each person, padded and sampled once, in a vector over all keys in which every position may lie."""

    name = "pckv_ue"
    source = "Ma & Wang, section 4.2.3 and Eq. 56, after Gu et al. (PCKV-UE)"
    corrections: ClassVar[tuple[str, ...]] = (
        "Every position of the vector is randomized; the printed description lets only one differ from zero.",
        "Probabilities for a foreign position are b/2, b/2 and 1 - b (in the letters of Gu et al.).",
        "Estimates are not clipped: clipping is a biased view.",
        "Positions of padding keys are not sent: the collector would throw them away.",
    )
    ladders: ClassVar[str] = "Any increasing ladder, because a = 1/2 on every rung; sampled key and sign stay."
    parameters: ClassVar[Mapping[str, str]] = {
        "padding": (
            "keys that a person is taken to have; people with more are under-counted, fewer cost accuracy; 1 to 1000, "
            "default 1"
        )
    }
    guarantee = Guarantee(
        "All vectors of one window together reveal no more than the sharpest one about the whole table of a person: "
        "any two tables explain them equally well up to a factor e^epsilon.",
        "Holds against a collector who sees every answer of the device and knows everything about everybody else.",
    )

    def __init__(self, keys: Sequence[str], ladder: Sequence[float], *, padding: int = 1) -> None:
        self.padding = padding
        levels = []
        for epsilon in ladder:
            factor = growth(epsilon)
            invented = 2 / (factor + 3)
            levels.append(club_exact(1 - invented, Fraction(1, 2), factor / (factor + 1)))
        cost = report_loss if len(keys) > 1 else single_key_loss
        super().__init__(keys, ladder, build_dense(ladder, levels, cost=cost))
        self._cost = cost
        self.answer = Answer("bits", 2 * len(self.keys))

    @classmethod
    def build(cls, values: Sequence[str], ladder: Sequence[float], parameters: Mapping[str, Any]) -> PCKVUE:
        """Build from keys, a ladder and the padding length."""
        refuse_unknown(parameters, tuple(cls.parameters), cls.name)
        if len(values) > MAX_KEYS:
            raise ParameterError("values", len(values), f"pckv_ue sends two bits per key; use at most {MAX_KEYS}")
        padding = whole_number(parameters, "padding", 1, low=1, high=1000)
        return cls(at_least(values, 1, cls.name), check_levels(ladder), padding=padding)

    @cached_property
    def epsilons(self) -> tuple[float, ...]:
        """Exact cost of each prefix of the chain for the whole table, rounded up."""
        return tuple(self._cost(channel) for channel in self.chain.channels)

    @cached_property
    def downgrade(self) -> Planes:
        """Coarser vectors by the kernels of the positions."""
        return Planes(SymbolDowngrade(self.chain.kernels, 3), len(self.keys))

    def sampling_epsilon(self, sample: Self, samples: int) -> float:
        """Return what noisy samples of one permanent vector cost together."""
        logs = sampled_logs(self.chain.top.matrix, sample.chain.top.matrix, samples)
        up = max(largest_loss(logs, sign, 0) for sign in (PLUS, MINUS))
        down = max(largest_loss(logs, 0, sign) for sign in (PLUS, MINUS))
        other_sign = max(largest_loss(logs, PLUS, MINUS), largest_loss(logs, MINUS, PLUS))
        return max(up + down, other_sign) if len(self.keys) > 1 else max(up, down, other_sign)

    @property
    def kept_keys(self) -> int:
        """Keys that a person may have without biasing the estimates: the padding length."""
        return self.padding

    def valid(self, answers: NDArray[Any]) -> NDArray[np.bool_]:
        """Refuse spare bits, and positions that claim both signs."""
        planes = np.unpackbits(np.asarray(answers, dtype=np.uint8), axis=1, bitorder="little")
        keys = len(self.keys)
        both = (planes[:, :keys] & planes[:, keys : 2 * keys]).any(axis=1)
        return np.asarray(~both & super().valid(answers))

    def canonical(self) -> dict[str, Any]:
        """Return keys, padding and integer thresholds."""
        return super().canonical() | {"padding": self.padding}


class LPPRandomizer(Randomizer[LPP]):
    """Asks each person about one key, drawn without looking at the table."""

    def encode(self, values: Sequence[Any], bits: Bits) -> NDArray[Any]:
        """Draw the key of each person and round its value to a sign: 3 * key, + 1 for plus, + 2 for minus."""
        lpp = self.specification
        asked = below(len(lpp.keys), len(values), bits).astype(np.int64)
        held = np.full(len(values), np.nan)
        for i, (person, key) in enumerate(zip(values, asked.tolist(), strict=True)):
            held[i] = lpp.checked(person).get(lpp.keys[key], np.nan)
        return np.asarray(3 * asked + _signs(held, bits), dtype=np.int64)

    def draw(self, inputs: NDArray[Any], bits: Bits) -> Drawn:
        """Draw the chains of all devices from the top; the key is the same on every rung."""
        symbols = self.specification.chain.draw(inputs % 3, bits)
        return Drawn(self.specification.symbols(symbols + 3 * (inputs // 3)), one_group(len(inputs)))


class PCKVUERandomizer(Randomizer[PCKVUE]):
    """Samples one key of each padded table and draws a vector over all keys per rung."""

    def encode(self, values: Sequence[Any], bits: Bits) -> NDArray[Any]:
        """Sample one key of each padded table and round its value: 0 for padding, else 2 * key + 1 (plus) or 2."""
        pckv = self.specification
        owned = [sorted((pckv.position[key], value) for key, value in pckv.checked(p).items()) for p in values]
        sizes = np.array([max(len(table), pckv.padding) for table in owned], dtype=np.int64)
        chosen = np.zeros(len(values), dtype=np.int64)
        for size in np.unique(sizes):
            same = np.flatnonzero(sizes == size)
            chosen[same] = below(int(size), len(same), bits).astype(np.int64)
        keys, held = np.zeros(len(values), dtype=np.int64), np.full(len(values), np.nan)
        for i, (table, slot) in enumerate(zip(owned, chosen.tolist(), strict=True)):
            if slot < len(table):
                keys[i], held[i] = table[slot]
        signs = _signs(held, bits)
        return np.asarray(np.where(signs > 0, 2 * keys + signs, 0), dtype=np.int64)

    def draw(self, inputs: NDArray[Any], bits: Bits) -> Drawn:
        """Draw the chains of all devices from the top, every position on its own; plus bits, then minus bits."""
        pckv = self.specification
        keys, width = len(pckv.keys), pckv.answer.width
        answers = np.empty((pckv.rungs, len(inputs), width), dtype=np.uint8)
        step = max((1 << 18) // keys, 1)
        for start in range(0, len(inputs), step):
            part = np.asarray(inputs[start : start + step], dtype=np.int64)
            symbols = np.zeros(len(part) * keys, dtype=np.uint8)
            real = np.flatnonzero(part > 0)
            symbols[real * keys + (part[real] - 1) // 2] = (part[real] - 1) % 2 + 1
            for rung in range(pckv.rungs - 1, -1, -1):
                symbols = _draw_symbols(self._samplers[rung], symbols, bits)
                told = symbols.reshape(len(part), keys)
                answers[rung, start : start + step] = _packed(told)
        return Drawn(answers, one_group(len(inputs)))

    @cached_property
    def _samplers(self) -> tuple[tuple[CellSampler, ...], ...]:
        """Samplers per symbol: those of the kernels, lowest first, then those of the top channel."""
        channels = (*self.specification.chain.kernels, self.specification.chain.top)
        return tuple(tuple(CellSampler(channel.row(x)) for x in range(3)) for channel in channels)


class KeptKeys:
    """Downgrades of LPP: the key that was asked about is the same on every rung."""

    def __init__(self, symbols: SymbolDowngrade) -> None:
        self._symbols = symbols

    def draw(self, rung: int, above: Known, under: Known | None, bits: Bits) -> Coarser:
        """Draw symbols, each of the key of the answer above it."""
        keys = above.answers // 3
        low = None if under is None else Known(under.rung, under.answers % 3)
        drawn, possible = self._symbols.draw(rung, Known(above.rung, above.answers % 3), low, bits)
        if under is not None:
            possible &= under.answers // 3 == keys
        return Coarser((drawn + 3 * keys).astype(above.answers.dtype), possible)


class Planes:
    """Downgrades of PCKV-UE: every position on its own, none, plus or minus, in two planes of bits."""

    def __init__(self, symbols: SymbolDowngrade, keys: int) -> None:
        self._symbols, self._keys = symbols, keys

    def draw(self, rung: int, above: Known, under: Known | None, bits: Bits) -> Coarser:
        """Draw vectors."""
        reports = len(above.answers)
        low = None if under is None else Known(under.rung, self._read(under.answers))
        drawn, possible = self._symbols.draw(rung, Known(above.rung, self._read(above.answers)), low, bits)
        told = drawn.reshape(reports, self._keys)
        return Coarser(_packed(told), np.asarray(possible.reshape(reports, self._keys).all(axis=1)))

    def _read(self, answers: Bytes) -> Bytes:
        planes = np.unpackbits(answers, axis=1, count=2 * self._keys, bitorder="little")
        return np.asarray(planes[:, : self._keys] * PLUS + planes[:, self._keys :] * MINUS).reshape(-1)


def _packed(told: Bytes) -> Bytes:
    return np.packbits(np.concatenate([told == PLUS, told == MINUS], axis=1), axis=1, bitorder="little")


def report_loss(channel: Channel) -> float:
    """Return the exact loss of a PCKV-UE vector: another key changes two positions, another sign one."""
    up, down, sign = _position_ratios(channel)
    return max(log_ratio_up(up[0] * down[0], up[1] * down[1]), log_ratio_up(*sign))


def single_key_loss(channel: Channel) -> float:
    """Return the exact loss when there is one key only: one position changes, by key or by sign."""
    return max(log_ratio_up(*ratio) for ratio in _position_ratios(channel))


def _position_ratios(channel: Channel) -> tuple[tuple[int, int], tuple[int, int], tuple[int, int]]:
    """Return the largest Q(y|key)/Q(y|none), Q(y|none)/Q(y|key) and Q(y|sign)/Q(y|other sign) as fractions."""
    none, plus, minus = (channel.row(x) for x in range(3))
    up = _largest([(own, zero) for row in (plus, minus) for own, zero in zip(row, none, strict=True)])
    down = _largest([(zero, own) for row in (plus, minus) for own, zero in zip(row, none, strict=True)])
    pairs = list(zip(plus, minus, strict=True))
    return up, down, _largest(pairs + [(b, a) for a, b in pairs])


def _draw_symbols(samplers: Sequence[CellSampler], symbols: Bytes, bits: Bits) -> Bytes:
    """Draw the answer to every symbol; nearly all of them are 0, so their sampler draws for all of them first."""
    answers = samplers[0].draw(len(symbols), bits)
    for symbol in (PLUS, MINUS):
        places = np.flatnonzero(symbols == symbol)
        answers[places] = samplers[symbol].draw(len(places), bits)
    return answers


def _largest(ratios: Sequence[tuple[int, int]]) -> tuple[int, int]:
    best = (1, 1)
    for top, bottom in ratios:
        if top * best[1] > best[0] * bottom:
            best = (top, bottom)
    return best


def _signs(held: NDArray[np.float64], bits: Bits) -> NDArray[np.int64]:
    """Round values in [-1, 1] to plus (1) or minus (2) without bias; NaN, no such key, is 0."""
    # 53 bits are exact for a float's worth of probability; this draw shapes the answer's spread, not its privacy.
    units = (bits.words(len(held)) >> np.uint64(11)).astype(np.float64) / float(1 << 53)
    return np.where(np.isnan(held), 0, np.where(units < (1.0 + held) / 2.0, PLUS, MINUS)).astype(np.int64)
