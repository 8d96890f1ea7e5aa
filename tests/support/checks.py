"""One battery of checks for every registered mechanism: a new one is checked as soon as it has an example."""

from __future__ import annotations

import json
import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from fractions import Fraction
from itertools import product
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from estimators.channels.bit_chain import BitChain
from estimators.channels.chain import Chain
from estimators.channels.channel import Channel, DenseChannel, RetentionChannel
from estimators.exact.randomness import SeededBits
from estimators.exact.rounding import GRID
from estimators.mechanism import ParameterError
from estimators.tally import Tally
from tests.support.mechanism import Mechanism, build
from tests.support.simulate import simulated_tally, simulated_values
from tests.support.stats import BUDGET, SHARE

Rows = tuple[tuple[Fraction, ...], ...]


@dataclass(frozen=True)
class Example:
    """How to build a mechanism for the battery."""

    name: str
    values: tuple[str, ...]
    ladder: tuple[float, ...] = (0.5, 1.0, 2.0)
    parameters: Mapping[str, Any] = field(default_factory=dict)
    sizes: tuple[int, ...] = ()
    """Numbers of values that must work too, for mechanisms that take any number."""
    strangers: tuple[Any, ...] = ("no such value", None, 3.5e300, ["no such value"], {"no such value": 0.5})
    """Values that nobody can have."""
    random_in_draw: bool = True
    """False where all randomness is in `encode` (a dealer hands out cards)."""

    def build(self, **changes: Any) -> Mechanism:
        """Return the mechanism, with some of the arguments of `build` replaced."""
        arguments = {"values": self.values, "ladder": self.ladder, "parameters": self.parameters, **changes}
        return build(self.name, **arguments)


def check_mechanism(example: Example) -> None:
    """Run everything that must hold for any mechanism, cheapest first."""
    mechanism = example.build()
    check_description(mechanism, example.name)
    check_cost(mechanism)
    for chain in symbol_chains(mechanism):
        check_integers(chain)
        check_chain_law(chain)
        for channel in chain.channels:
            check_inversion(channel)
    check_serialisation(example)
    check_draws(mechanism, random_in_draw=example.random_in_draw)
    check_refusals(example)
    check_edges(example)
    check_estimates(mechanism)


def check_description(mechanism: Mechanism, name: str) -> None:
    """The mechanism says what it is and what it promises."""
    assert mechanism.name == name
    assert mechanism.source, "name the paper"
    assert mechanism.guarantee.sentence.endswith(".")
    assert mechanism.guarantee.threat_model.endswith(".")
    assert mechanism.ladders.endswith(".")
    assert mechanism.rungs == len(mechanism.ladder)


def check_cost(mechanism: Mechanism) -> None:
    """Every prefix of a chain costs at most its declared level, and costs never fall."""
    assert len(mechanism.epsilons) == mechanism.rungs
    assert list(mechanism.epsilons) == sorted(mechanism.epsilons)
    if mechanism.guarantee.protects != "nothing":
        for exact, declared in zip(mechanism.epsilons, mechanism.ladder, strict=True):
            assert exact <= declared, f"costs {exact!r}, declared {declared!r}"
            assert exact >= declared * (1 - 1e-6), f"gives away precision: {exact!r} of {declared!r}"


def symbol_chains(mechanism: Mechanism) -> list[Chain]:
    """Return the chains of single symbols behind a mechanism; a vector of bits has one per run of equal bits."""
    chain = getattr(mechanism, "chain", None)
    if isinstance(chain, Chain):
        return [chain]
    if isinstance(chain, BitChain):
        blocks = range(len(chain.top.blocks))
        return [
            Chain(chain.top.blocks[i].channel, tuple(kernel.blocks[i].channel for kernel in chain.kernels))
            for i in blocks
        ]
    assert mechanism.guarantee.protects == "nothing" or mechanism.rungs == 1, "a mechanism with rungs needs a chain"
    return []


def check_integers(chain: Chain) -> None:
    """Rows sum to the denominator in integers, and everything that is drawn is on the grid."""
    for channel in (chain.top, *chain.kernels, *chain.channels):
        for x in range(channel.inputs):
            assert sum(channel.row(x)) == channel.denominator
            assert min(channel.row(x)) >= 0
    for drawn in (chain.top, *chain.kernels):
        assert drawn.denominator <= GRID
    for channel, kernel, lower in zip(chain.channels[1:], chain.kernels, chain.channels[:-1], strict=True):
        assert fractions_of(channel.then(kernel)) == fractions_of(lower)


def check_chain_law(chain: Chain) -> None:
    """Every prefix has the marginals of its channels, and tells exactly what its last answer tells, by enumeration.

    For every sequence: Pr(seq | x) Q(last | x') = Pr(seq | x') Q(last | x) for all x and x', in exact fractions. So
    any loss of the prefix, local or utility-optimised, is that of its last channel.
    """
    rungs = chain.rungs
    if chain.top.outputs**rungs > 20_000:
        return
    kernels = [fractions_of(kernel) for kernel in chain.kernels]
    for last in range(rungs):
        channel = fractions_of(chain.channels[last])
        for lowest in range(last):
            check_prefix(channel, kernels[lowest:last], fractions_of(chain.channels[lowest]))
    assert max_ratio(fractions_of(chain.top)) == max(max_ratio(fractions_of(c)) for c in chain.channels)


def check_prefix(last: Rows, kernels: Sequence[Rows], first: Rows) -> None:
    """Check the joint law of the answers from one rung up to another."""
    marginal: dict[tuple[int, int], Fraction] = {}
    for sequence, probabilities in joint_law(last, kernels):
        top = sequence[-1]
        for x, probability in enumerate(probabilities):
            key = (x, sequence[0])
            marginal[key] = marginal.get(key, Fraction(0)) + probability
        for x, other in product(range(len(last)), repeat=2):
            assert probabilities[x] * last[other][top] == probabilities[other] * last[x][top]
    for (x, answer), probability in marginal.items():
        assert probability == first[x][answer]


def joint_law(last: Rows, kernels: Sequence[Rows]) -> Iterator[tuple[tuple[int, ...], list[Fraction]]]:
    """Yield every sequence of answers, lowest first, with its exact probability per true value."""
    for sequence in product(*(range(len(kernel[0])) for kernel in kernels), range(len(last[0]))):
        down = math.prod((kernel[sequence[i + 1]][sequence[i]] for i, kernel in enumerate(kernels)), start=Fraction(1))
        yield sequence, [row[sequence[-1]] * down for row in last]


def fractions_of(channel: Channel) -> Rows:
    """Return the exact rows of a channel."""
    return tuple(tuple(Fraction(e, channel.denominator) for e in channel.row(x)) for x in range(channel.inputs))


def max_ratio(rows: Rows) -> Fraction | float:
    """Return e^epsilon of a channel by brute force."""
    worst: Fraction | float = Fraction(1)
    for column in zip(*rows, strict=True):
        if max(column) > 0:
            worst = max(worst, max(column) / min(column) if min(column) else math.inf)
    return worst


def check_inversion(channel: Channel) -> None:
    """The inverse undoes the channel; structured and dense forms agree; moments equal enumeration."""
    if isinstance(channel, RetentionChannel) and (channel.keep == 0 or channel.size > 40):
        return
    dense = DenseChannel(tuple(channel.row(x) for x in range(channel.inputs)))
    shares = np.arange(1, channel.inputs + 1) / sum(range(1, channel.inputs + 1))
    expected = shares @ channel.matrix
    if np.linalg.matrix_rank(channel.matrix) < channel.inputs:
        return
    scale = float(np.abs(dense.inverse).max())
    np.testing.assert_allclose(channel.unbias(expected, 1), shares, atol=1e-12 * scale)
    for population in ("fleet", "sampling"):
        structured = channel.covariance(shares, 7, population=population)
        general = dense.covariance(shares, 7, population=population)
        np.testing.assert_allclose(structured, general, rtol=1e-7, atol=1e-12 * scale**2)
        np.testing.assert_allclose(channel.variances(shares, 7, population=population), np.diagonal(structured))
    if channel.outputs <= 4:
        check_moments(channel)


def check_moments(channel: Channel) -> None:
    """Mean and covariance of the estimate of three people equal the sum over everything they could answer."""
    people = [0, channel.inputs - 1, channel.inputs - 1]
    shares = np.bincount(people, minlength=channel.inputs) / len(people)
    mean, square = enumerate_moments(channel, [np.eye(channel.inputs)[x] for x in people])
    scale = float(np.abs(channel.inverse).max()) ** 2
    np.testing.assert_allclose(mean, shares, atol=1e-12 * scale)
    fleet = channel.covariance(shares, len(people), population="fleet")
    np.testing.assert_allclose(square - np.outer(mean, mean), fleet, atol=1e-12 * scale)
    mean, square = enumerate_moments(channel, [shares] * 3)
    sampling = channel.covariance(shares, 3, population="sampling")
    np.testing.assert_allclose(square - np.outer(mean, mean), sampling, atol=1e-12 * scale)


def enumerate_moments(
    channel: Channel, people: Sequence[NDArray[np.float64]]
) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Return mean and second moment of the estimate when each person's value has the given law."""
    laws = [law @ channel.matrix for law in people]
    mean, square = np.zeros(channel.inputs), np.zeros((channel.inputs, channel.inputs))
    for answers in product(range(channel.outputs), repeat=len(people)):
        chance = math.prod(float(law[answer]) for law, answer in zip(laws, answers, strict=True))
        counts = np.bincount(answers, minlength=channel.outputs)
        estimate = channel.unbias(counts, len(people))
        mean += chance * estimate
        square += chance * np.outer(estimate, estimate)
    return mean, square


def check_serialisation(example: Example) -> None:
    """All that decoding depends on survives JSON, and a changed level shows in it."""
    canonical = example.build().canonical()
    text = json.dumps(canonical, sort_keys=True, allow_nan=False)
    assert json.loads(text) == canonical
    assert json.dumps(example.build().canonical(), sort_keys=True) == text
    changed = example.build(ladder=(*example.ladder[:-1], example.ladder[-1] * 1.25))
    assert json.dumps(changed.canonical(), sort_keys=True) != text


def check_draws(mechanism: Mechanism, *, random_in_draw: bool) -> None:
    """Answers have the form of the wire, a correct device could have sent each, and the seed alone decides."""
    inputs = simulated_inputs(mechanism, 1000, 5)
    drawn = mechanism.draw(inputs, SeededBits(5, "draw"))
    again = mechanism.draw(inputs, SeededBits(5, "draw"))
    other = mechanism.draw(inputs, SeededBits(6, "draw"))
    assert np.array_equal(drawn.answers, again.answers)
    assert np.array_equal(drawn.groups, again.groups)
    assert np.array_equal(drawn.answers, other.answers) != random_in_draw
    shape = (mechanism.rungs, len(inputs))
    if mechanism.answer.kind == "bits":
        assert drawn.answers.shape == (*shape, mechanism.answer.width)
        assert drawn.answers.dtype == np.uint8
    else:
        assert drawn.answers.shape == shape
        assert drawn.answers.dtype == np.dtype(mechanism.symbol_dtype)
    assert drawn.groups.shape == (len(inputs),)
    assert drawn.groups.dtype == np.uint16
    assert drawn.groups.max() < mechanism.groups
    for answers in drawn.answers:
        assert mechanism.valid(answers).all()
    assert mechanism.draw(inputs[:0], SeededBits(1)).answers.shape[1] == 0


def check_refusals(example: Example) -> None:
    """Bad input is refused where it comes in, and the message says what to do."""
    with pytest.raises(ParameterError, match=r".+; got "):
        example.build(parameters={**example.parameters, "no_such_parameter": 1})
    refused = [(), (-1.0,), (2.0, 1.0), (math.nan,)]
    if example.build().guarantee.protects != "nothing":
        refused.append((41.0,))
    for ladder in refused:
        with pytest.raises(ValueError, match=r"\w+.*[;:]"):
            example.build(ladder=ladder)
    mechanism = example.build()
    for stranger in example.strangers:
        with pytest.raises(ParameterError, match=r".+; got "):
            mechanism.encode([stranger], SeededBits(1))


def check_edges(example: Example) -> None:
    """Equal rungs repeat the answer, extreme levels and numbers of values work."""
    top = example.ladder[-1]
    if len(example.ladder) > 1:
        equal = example.build(ladder=(top, top))
        answers = equal.draw(simulated_inputs(equal, 500, 3), SeededBits(4)).answers
        assert np.array_equal(answers[0], answers[1])
        assert equal.epsilons[0] == equal.epsilons[1]
    if example.build().guarantee.protects != "nothing":
        extreme = (1e-6, 20.0) if len(example.ladder) > 1 else (20.0,)
        check_cost_only_upwards(example.build(ladder=extreme))
    for size in example.sizes:
        sized = example.build(values=tuple(f"v{i}" for i in range(size)), parameters=resized(example, size))
        check_cost_only_upwards(sized)
        check_draws_are_valid(sized)


def resized(example: Example, size: int) -> dict[str, Any]:
    """Return the parameters with lists of values adapted to `size` values called v0, v1, ..."""
    return {
        key: [f"v{i}" for i in range(max(size // 2, 1))] if key == "sensitive" else value
        for key, value in example.parameters.items()
    }


def check_cost_only_upwards(mechanism: Mechanism) -> None:
    """Costs stay within the levels, however coarse the grid is there."""
    for exact, declared in zip(mechanism.epsilons, mechanism.ladder, strict=True):
        assert 0 <= exact <= declared


def check_draws_are_valid(mechanism: Mechanism) -> None:
    """Drawn answers are answers."""
    inputs = simulated_inputs(mechanism, 50, 8)
    for answers in mechanism.draw(inputs, SeededBits(9)).answers:
        assert mechanism.valid(answers).all()


def simulated_inputs(mechanism: Mechanism, count: int, seed: int) -> NDArray[Any]:
    """Return chain inputs of a simulated fleet."""
    return mechanism.encode(simulated_values(mechanism, count, seed), SeededBits(seed, "inputs"))


def check_estimates(mechanism: Mechanism, *, devices: int = 20_000) -> None:
    """Intervals at a tiny alpha hold the truth of a fleet on all rungs, by every method; nobody gives no numbers."""
    values = simulated_values(mechanism, devices, 11)
    tally = simulated_tally(mechanism, values, 11)
    truth = mechanism.truth(values)
    alpha = SHARE / len(mechanism.labels)
    BUDGET.take(2 * len(mechanism.methods))
    for method in mechanism.methods:
        for population in ("fleet", "sampling"):
            found = mechanism.estimate(tally, method=method, population=population, alpha=alpha)
            assert found.labels == mechanism.labels
            assert found.users == devices
            known = np.isfinite(found.lower) & np.isfinite(truth)
            assert known.any(), f"{method} gives no interval at all"
            inside = (found.lower <= truth) & (truth <= found.upper)
            assert inside[known].all(), (
                f"{method}, {population}: {truth} not inside {found.lower} .. {found.upper}, alpha {alpha:.1e}"
            )
    nobody = mechanism.estimate(Tally.empty(mechanism.rungs, mechanism.groups, mechanism.answer.cells))
    assert nobody.users == 0
    assert np.isnan(nobody.value).all()
    assert np.isnan(nobody.lower).all()
