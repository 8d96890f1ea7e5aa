"""Shares where people declare further values as sensitive: the shares of tags are spread over the values."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from estimators.channels.bit_chain import BitChain
from estimators.estimates import Estimates, Floats, Method, Population
from estimators.estimation.estimator import Estimator
from estimators.estimation.uldp import reordered
from estimators.inference.personal import personal_matrix
from estimators.inference.pooling import combine_retention
from estimators.inference.pooling_bits import combine_bits
from estimators.inference.pooling_result import Combined, Pool
from estimators.inference.share_covariance import pooled_covariance
from estimators.intervals.one_look import check_alpha, two_sided_z
from estimators.mechanisms.pum import PUM
from estimators.tally import Tally


class PUMEstimator(Estimator[PUM]):
    """Shares over sensitive values, tags and other values, with the tags spread afterwards."""

    def estimate(
        self, tally: Tally, *, method: Method = "pooled", population: Population = "fleet", alpha: float = 0.05
    ) -> Estimates:
        """Estimate sensitive values, tags and others, then spread the tags; a wrong background is not detected."""
        mechanism = self.specification
        check_alpha(alpha)
        found, spread = self._spread(tally, method, population)
        if found.method == "mle":
            # At a corner of the simplex the background that is taken from the estimate is that of a single value.
            spread = self._spread(tally, "pooled", population)[1].inside(spread.shares)
        unknown = [tag for tag, row in zip(mechanism.tags, mechanism.background, strict=True) if row is None]
        notes = (f"no background for {', '.join(unknown)}: spread like the other values",) if unknown else ()
        combined = replace(
            found, labels=(*mechanism.sensitive, *mechanism.others), found=spread, notes=(*found.notes, *notes)
        )
        return reordered(combined.estimates(alpha), mechanism.labels, mechanism.places)

    def _spread(self, tally: Tally, method: Method, population: Population) -> tuple[Pool, Combined]:
        """Return what is known of the symbols, and the shares of values that follow from it."""
        mechanism = self.specification
        found, covariance = self._combined(tally, method, population)
        symbols = found.found
        spread = personal_matrix(symbols.shares, len(mechanism.sensitive), len(mechanism.tags), mechanism.background)
        slopes = self._slopes(symbols.shares, spread)
        tags = np.zeros(len(spread))
        if population == "fleet":
            tags = self._chance_of_tags(symbols.shares, spread) / max(found.users, 1)
        shares = spread @ symbols.shares
        variance = np.maximum(np.einsum("ij,jk,ik->i", slopes, covariance, slopes) + tags, 0)

        def ends(error: float) -> tuple[Floats, Floats]:
            """Combine the symbols' own distances, which do not vanish where a symbol was never told."""
            lower, upper = symbols.ends(error)
            least = two_sided_z(error) ** 2 * variance
            further = two_sided_z(error) ** 2 * tags
            down = np.maximum(slopes**2 @ (symbols.shares - lower) ** 2 + further, least)
            up = np.maximum(slopes**2 @ (upper - symbols.shares) ** 2 + further, least)
            return shares - np.sqrt(down), shares + np.sqrt(up)

        return found, Combined(shares, variance, ends)

    def _combined(self, tally: Tally, method: Method, population: Population) -> tuple[Pool, Floats]:
        """Return shares over all symbols, and their covariance."""
        symbols, chain = self.specification.symbols_in_order, self.specification.chain
        counts, users = tally.by_rung
        if isinstance(chain, BitChain):
            found = combine_bits(symbols, *chain.probabilities, counts, users, method=method, population=population)
            inside = np.clip(found.found.shares, 0, 1)
            # Bits are noised independently; only drawing people makes shares compete.
            covariance = -np.outer(inside, inside) / max(found.users, 1) if population == "sampling" else np.zeros(1)
            covariance = np.broadcast_to(covariance, (len(symbols), len(symbols))).copy()
            np.fill_diagonal(covariance, found.found.variance)
            return found, covariance
        channels = chain.retention_channels
        found = combine_retention(symbols, channels, counts, users, method=method, population=population)
        return found, pooled_covariance(channels, counts, users, method=found.method, population=population)

    def _slopes(self, combined: Floats, spread: Floats) -> Floats:
        """Return how each share moves with each symbol's share, also through a background taken from the estimate."""
        mechanism = self.specification
        first = len(mechanism.sensitive) + len(mechanism.tags)
        slopes = spread.copy()
        mass = np.maximum(combined[first:], 0)
        total = float(mass.sum())
        if total <= 0:
            return slopes
        shape = (np.eye(len(mechanism.others)) - (mass / total)[:, None]) / total * (mass > 0)
        for tag, row in enumerate(mechanism.background):
            if row is None:
                slopes[len(mechanism.sensitive) :, first:] += combined[len(mechanism.sensitive) + tag] * shape
        return slopes

    def _chance_of_tags(self, combined: Floats, spread: Floats) -> Floats:
        """Return, per person, the variance of the values behind the tags in this fleet around the background.

        A background describes a population. The devices of this fleet that used the tag are a sample of it; where it is
        taken from the other values, those are a sample as well.
        """
        mechanism = self.specification
        first = len(mechanism.sensitive) + len(mechanism.tags)
        rest = float(np.maximum(combined[first:], 0).sum())
        variance = np.zeros(len(spread))
        unknown = 0.0
        for tag, row in enumerate(mechanism.background):
            share = max(float(combined[len(mechanism.sensitive) + tag]), 0.0)
            column = spread[:, len(mechanism.sensitive) + tag]
            variance += share * column * (1 - column)
            if row is None:
                unknown += share
                variance += ((unknown**2 - (unknown - share) ** 2) / rest if rest > 0 else 1.0) * column * (1 - column)
        return variance
