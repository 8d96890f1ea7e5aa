"""The bipartite graph of people and keys: its edges, their weights, and averages of them (Ma & Wang, section 4).

A person is connected with every key that they have; the weight of the edge is the value. What is counted is the graph
of the devices that answered.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from estimators.estimates import Derived, DerivedKind, Population
from estimators.inference.key_value import GraphAverages, KeyValueEstimate, graph_averages
from estimators.intervals.one_look import two_sided_z

# How sure it must be that the mean number of keys is no whole number before its spread is taken out.
_CLEAR = 3.0


@dataclass(frozen=True)
class GraphEstimate:
    """Estimated averages of a bipartite graph, with the variances that go with them."""

    users: int
    keys: int
    averages: GraphAverages
    edges: float
    edges_variance: float
    weight: float
    weight_variance: float
    edge_weight_variance: float
    edge_weight_lower: float
    """Bounds of the mean edge weight; NaN where there may be no edge at all."""
    edge_weight_upper: float
    z: float
    """Standard errors to either side of an interval."""

    def derived(self) -> tuple[Derived, ...]:
        """Return totals and averages with their intervals, for the record of a window."""
        users, keys = self.users, self.keys
        known = math.isfinite(self.edge_weight_lower)
        return (
            self._edges("edges", "total", "number of pairs of a device and a key that it has", 1.0),
            self._edges("keys per device", "mean", "mean number of keys of a device", 1.0 / users),
            self._edges("average degree", "mean", "mean number of edges of a device or a key", 2.0 / (users + keys)),
            self._edges("density", "share", "share of all pairs of a device and a key that exist", 1.0 / users / keys),
            self._derived("weight", "total", "sum of all values", self.weight, self.weight_variance),
            Derived(
                "mean edge weight",
                "mean",
                "mean value of the pairs that exist",
                self.averages.edge_weight if known else math.nan,
                self.edge_weight_variance if known else math.nan,
                self.edge_weight_lower,
                self.edge_weight_upper,
            ),
        )

    def _edges(self, name: str, kind: DerivedKind, meaning: str, factor: float) -> Derived:
        return self._derived(name, kind, meaning, factor * self.edges, factor**2 * self.edges_variance)

    def _derived(self, name: str, kind: DerivedKind, meaning: str, value: float, variance: float) -> Derived:
        half = self.z * math.sqrt(variance)
        return Derived(name, kind, meaning, value, variance, value - half, value + half)


def estimate_graph(
    users: int,
    estimate: KeyValueEstimate,
    *,
    population: Population = "sampling",
    alpha: float = 0.05,
    together: bool = False,
) -> GraphEstimate:
    """Add up the keys of a graph.

    Where each person is asked about one key (LPP), different people answered for different keys, so variances add. With
    `together` (PCKV-UE) the answers of a person about all keys count; they go apart, except that weights of opposite
    sign may go together, which is added.

    For the fleet, the spread of how many keys a person has is no error. How large it is depends on which keys go
    together, and nobody is asked about two keys: only the least that a whole number with this mean can have is taken
    out. The spread of weights is not taken out at all. Both are on the safe side; with one key nothing is given away.
    """
    share, total = np.asarray(estimate.share), np.asarray(estimate.total)
    spreads = (estimate.share_variance, estimate.total_variance, estimate.covariance)
    share_variance, total_variance, covariance = (float(part.sum()) for part in spreads)
    if together:
        total_variance += max(float((total**2).sum() - total.sum() ** 2), 0.0) / max(users, 1)
    if population == "fleet":
        least = _least_spread(float(share.sum()), _CLEAR * math.sqrt(share_variance)) / max(users, 1)
        share_variance = max(share_variance - least, 0.0)
    sums = (share.sum(), total.sum(), share_variance, total_variance, covariance)
    whole = KeyValueEstimate(*(np.asarray(number) for number in sums))
    z = two_sided_z(alpha)
    lower, upper = whole.interval(z)
    return GraphEstimate(
        users=users,
        keys=share.size,
        averages=graph_averages(users, (users * share).tolist(), (users * total).tolist()),
        edges=users * float(whole.share),
        edges_variance=users**2 * share_variance,
        weight=users * float(whole.total),
        weight_variance=users**2 * total_variance,
        edge_weight_variance=float(whole.mean_variance),
        edge_weight_lower=float(lower),
        edge_weight_upper=float(upper),
        z=z,
    )


def _least_spread(mean: float, error: float) -> float:
    """Return the least variance of whole numbers, not negative, whose mean is within `error` of `mean`."""
    low, high = mean - error, mean + error
    if not 0.0 <= low <= high or math.floor(low) != math.floor(high):
        return 0.0
    parts = (low - math.floor(low), high - math.floor(high))
    return min(part * (1.0 - part) for part in parts)
