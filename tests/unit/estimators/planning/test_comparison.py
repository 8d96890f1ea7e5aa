"""Mechanisms compared: errors are the papers' losses, and crossings are where they say."""

import math

import pytest

from estimators.channels.moments import most_values
from estimators.papers import yes_no
from estimators.planning import losses
from estimators.planning.comparison import (
    MIDDLE,
    Domain,
    best_theta,
    compare,
    contenders,
    crossings,
    name_of,
    theta_error,
    with_copies,
)

MEAN_DEVIATION = math.sqrt(2 / math.pi)


def errors(domain: Domain, epsilon: float) -> dict[str, float | None]:
    return {name_of(contender): contender.error(epsilon) for contender in contenders(domain)}


def test_errors_are_the_losses_of_the_paper_per_value() -> None:
    domain = Domain((0.4, 0.3, 0.2, 0.1), 2, 5_000)
    found = errors(domain, 1.5)
    assert found["urr"] == pytest.approx(losses.l1_urr(domain.shares, 2, 1.5, 5_000).approximate / 4)
    assert found["urap"] == pytest.approx(losses.l1_urap(domain.shares, 2, 1.5, 5_000).approximate / 4)
    assert found["grr"] == pytest.approx(losses.l1_urr(domain.shares, 4, 1.5, 5_000).approximate / 4)
    # The normal approximation of the paper, against De Moivre's exact mean deviation.
    assert found["oue"] == pytest.approx(losses.l1_urap(domain.shares, 4, 1.5, 5_000, theta=0.5).exact / 4, rel=1e-2)


@pytest.mark.parametrize("share", [0.1, 0.5])
def test_two_values_are_the_cards_and_coins_of_the_paper(share: float) -> None:
    users, epsilon = 1_000, 1.0
    found = errors(Domain((share, 1 - share), 1, users), epsilon)
    spread = share * (1 - share) / users
    warner = yes_no.best_warner_variance(users, epsilon) + spread
    assert found["grr"] == pytest.approx(MEAN_DEVIATION * math.sqrt(warner))
    drawn = yes_no.three_card_variance(users, epsilon, MIDDLE) + spread
    # The estimator inverts the channel by least squares; the paper takes the mean face.
    assert found[f"christofides, middle = {MIDDLE:g}"] == pytest.approx(MEAN_DEVIATION * math.sqrt(drawn), rel=3e-3)
    dealt = yes_no.dealt_card_variance(share, users, epsilon, MIDDLE) + spread
    # A deck has whole cards: about one in 270 of them.
    improved = found[f"improved_christofides, middle = {MIDDLE:g}"]
    assert improved == pytest.approx(MEAN_DEVIATION * math.sqrt(dealt), rel=1e-2)


def test_a_deck_that_is_too_small_has_no_error() -> None:
    assert errors(Domain((0.5, 0.5), 1, 3), 0.1)[f"improved_christofides, middle = {MIDDLE:g}"] is None


def test_the_best_theta_is_better_than_its_neighbours_and_the_default() -> None:
    domain = Domain((0.02,) * 20 + (0.6 / 80,) * 80, 20, 10_000)
    best = best_theta(domain, 3.0)
    least = theta_error(domain, 3.0, best)
    assert all(theta_error(domain, 3.0, best + shift) > least for shift in (-0.02, 0.02))
    found = compare(domain, 3.0)
    assert found.theta == best
    assert found.theta_gain == pytest.approx(1 - least / errors(domain, 3.0)["urap"])  # type: ignore[operator]


@pytest.mark.parametrize("epsilon", [0.5, 1.0])
def test_the_best_theta_is_never_worse_than_the_default(epsilon: float) -> None:
    """With two values, both sensitive, the default is the best one."""
    gain = compare(Domain((0.5, 0.5), 2, 200), epsilon).theta_gain
    assert 0.0 <= gain < 1e-6
    assert f"{gain:.1%}" == "0.0%"


def test_the_best_mechanism_is_the_one_with_the_smallest_error_among_those_that_protect_as_much() -> None:
    found = compare(Domain((1 / 50,) * 50, 5, 10_000), 1.0)
    local = [row for row in found.rows if row.protects == "all values" and row.error is not None]
    assert found.best == min(local, key=lambda row: row.error or math.inf).mechanism == "oue"
    assert found.best_sensitive == "urr"
    assert all(row.error is None or row.error >= found.counting for row in found.rows)


def test_grr_and_oue_change_places_at_their_crossing() -> None:
    domain = Domain((1 / 50,) * 50, 50, 10_000)
    grr, oue = (c for c in contenders(domain) if c.mechanism in ("grr", "oue"))
    [crossing] = crossings([grr, oue])
    assert (crossing.below, crossing.above) == ("oue", "grr")
    at, before, after = crossing.epsilon, 0.99 * crossing.epsilon, 1.01 * crossing.epsilon
    assert grr.error(at) == pytest.approx(oue.error(at), rel=1e-6)
    assert (grr.error(before) or 0) > (oue.error(before) or 0)
    assert (grr.error(after) or 0) < (oue.error(after) or 0)
    # For a rare value it lies at 3 e^eps + 2 values, and here not far from it.
    assert most_values(at) == pytest.approx(50, rel=0.3)


def test_copies_lower_the_error_and_cost_the_record_more() -> None:
    domain = Domain((0.1, 0.9), 1, 1_000)
    one, sixteen = with_copies(domain, math.log(2), 1), with_copies(domain, math.log(2), 16)
    # The worked example of the paper: 6.000 and 4.4225 records, beside the sampling of 1,000 people.
    spread = 0.09 / 1_000
    for found, records in ((one, 6.0), (sixteen, 4.42251)):
        expected = MEAN_DEVIATION * math.sqrt((records / 1_000) ** 2 + spread)
        assert found.error == pytest.approx(expected, rel=1e-4)
    assert (one.local_epsilon, sixteen.local_epsilon) == pytest.approx((3.3926, 25.736), rel=1e-3)


@pytest.mark.parametrize(("shares", "sensitive"), [((1.0,), 1), ((0.5, 0.5), 0), ((0.5, 0.5), 3)])
def test_impossible_questions_are_refused(shares: tuple[float, ...], sensitive: int) -> None:
    with pytest.raises(ValueError, match="values"):
        Domain(shares, sensitive, 100)
