"""Behaviour of a simulated fleet: how its values change, which devices take part and stop early, network faults.

Everything is a function of numbers that are passed in; the fleet draws them from a counter-based generator, so that a
scenario replays exactly.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]
Shares = Callable[[int, Floats], Floats]
"""(window number, phases in [0, 1) of n devices) -> shares of the values, shape (values,) or (n, values)."""


@dataclass(frozen=True)
class Scenario:
    """How a fleet behaves. Probabilities in [0, 1], times in milliseconds."""

    name: str
    summary: str
    drift: float = 0.0
    """How far log-shares swing from window to window."""
    drift_period_windows: int = 24
    within: float = 0.0
    """How far log-shares swing inside one window (gradual release assumes that they do not)."""
    presence: float = 1.0
    """Chance that a device takes part in a window; below 1 the fleet churns."""
    stop_early: float = 0.0
    """Share of devices that stop at a random lower rung, permanently and whatever their value."""
    delay_ms: int = 0
    """Mean of an exponential delay of every report."""
    duplicate: float = 0.0
    """Chance that a report is sent a second time, later."""
    withdraw: float = 0.0
    """Chance that a device takes its answers of a window back, whatever its value."""
    needs: str = ""
    """Field of the survey file that must be true, or hold tiers, with its table."""
    jump_window: int | None = None
    """Window number (counted from the fleet's first) from which on `jump_value` has `jump_share`."""
    jump_value: int = 0
    jump_share: float = 0.5

    def shares(self, base: Floats, window_number: int, first_window: int, phases: Floats) -> Floats:
        """Return the shares of the values: one row for all devices, or one each if they differ inside a window."""
        values = len(base)
        angles = 2 * np.pi * np.arange(values) / values
        log_shares = np.log(np.maximum(base, 1e-12))
        if self.drift:
            log_shares = log_shares + self.drift * np.sin(
                2 * np.pi * (window_number % self.drift_period_windows) / self.drift_period_windows + angles
            )
        if self.within:
            log_shares = log_shares[None, :] + self.within * np.sin(2 * np.pi * phases[:, None] + angles[None, :])
        shares = np.exp(log_shares)
        shares /= shares.sum(axis=-1, keepdims=True)
        if self.jump_window is not None and window_number - first_window >= self.jump_window:
            rest = np.delete(np.arange(values), self.jump_value)
            shares = shares.copy()
            shares[..., rest] *= (1 - self.jump_share) / shares[..., rest].sum(axis=-1, keepdims=True)
            shares[..., self.jump_value] = self.jump_share
        return shares


SCENARIOS: dict[str, Scenario] = {
    scenario.name: scenario
    for scenario in (
        Scenario("steady", "constant shares, all devices take part, no network faults"),
        Scenario("drift", "shares change from window to window", drift=0.5),
        Scenario(
            "within", "shares change inside a window: rung 0 shows the change, later rungs the whole window", within=0.8
        ),
        Scenario("churn", "in each window another 60 % of the devices take part", presence=0.6),
        Scenario("stoppers", "half of the users stop at a random rung", stop_early=0.5),
        Scenario("delays", "reports arrive late, by two seconds on average", delay_ms=2_000),
        Scenario("duplicates", "every fifth report is sent twice", duplicate=0.2),
        Scenario(
            "city",
            "drift, churn, stoppers, delays and duplicates together; some withdraw, where they can",
            drift=0.4,
            presence=0.8,
            stop_early=0.3,
            delay_ms=150,
            duplicate=0.05,
            withdraw=0.1,
        ),
        Scenario(
            "withdrawals",
            "a fifth of the devices take their answers back, at any time; delays and duplicates besides",
            withdraw=0.2,
            needs="withdrawable",
            delay_ms=150,
            duplicate=0.1,
        ),
        Scenario(
            "standing",
            "people keep a value for twenty windows and repeat its answers meanwhile; delays and duplicates besides",
            needs="window.standing",
            delay_ms=150,
            duplicate=0.1,
        ),
        Scenario(
            "tiers",
            "three audiences, each with the answers up to a rung of its own; a third of the users stop early",
            stop_early=0.3,
            needs="tiers",
            delay_ms=150,
            duplicate=0.1,
        ),
        Scenario("jump", "one value jumps to half of the fleet after five windows", jump_window=5),
    )
}


def scenario_named(name: str, *, jump: tuple[int, int, float] | None = None) -> Scenario:
    """Return a scenario by name; `jump` = (window, value index, share) overrides the jump."""
    try:
        scenario = SCENARIOS[name]
    except KeyError:
        raise ValueError(f"scenario must be one of {', '.join(SCENARIOS)}; got {name!r}") from None
    if jump is not None:
        window, value, share = jump
        scenario = replace(scenario, jump_window=window, jump_value=value, jump_share=share)
    return scenario


def falling_shares(values: int) -> Floats:
    """Return shares that fall like 1/rank, as in many real data sets."""
    shares = 1.0 / np.arange(1, values + 1)
    return np.asarray(shares / shares.sum())


def uniform(words: NDArray[np.uint64]) -> Floats:
    """Return numbers in [0, 1) with 53 random bits each."""
    return np.asarray((words >> np.uint64(11)) * 2.0**-53, dtype=np.float64)


def pick(shares: Floats, words: NDArray[np.uint64]) -> NDArray[np.int64]:
    """Return one value index per word, drawn from shares of shape (values,) or (n, values)."""
    chances = uniform(words)
    cumulative = np.cumsum(shares, axis=-1)
    if shares.ndim == 1:
        picked = np.searchsorted(cumulative, chances, side="right")
    else:
        picked = (chances[:, None] >= cumulative).sum(axis=1)
    return np.asarray(np.minimum(picked, shares.shape[-1] - 1), dtype=np.int64)
