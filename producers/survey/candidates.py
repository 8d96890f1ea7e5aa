"""Candidates: the strings that filters of a survey are decoded with, in a text file beside the survey file.

No answer depends on them, so the file may change while the survey runs: its id stays, and stored counts are decoded
again.
"""

from __future__ import annotations

import os
from pathlib import Path

from estimators.mechanism import ParameterError, Specification

FIELD = "values.candidates"
MAX_CHARACTERS = 8 << 20
"""Longer files are not read: a worker reads them whenever they change."""


def candidates_path(source: str, name: str) -> Path:
    """Return the file that a survey file names; ParameterError if it is not a name in the same folder."""
    if not name or name in (".", "..") or Path(name).name != name or os.sep in name or "\0" in name:
        raise ParameterError(FIELD, name, "must be the name of a file in the folder of the survey file, without a path")
    return Path(source).parent / name


def read_candidates(source: str, name: str) -> list[str]:
    """Return the strings of a candidates file, one per line; blank lines are left out.

    Raises:
        ParameterError: it cannot be read: field, value, remedy.
    """
    path = candidates_path(source, name)
    try:
        with path.open(encoding="utf-8-sig", newline=None) as file:
            text = file.read(MAX_CHARACTERS + 1)
    except UnicodeDecodeError:
        raise ParameterError(FIELD, str(path), "save the file as UTF-8, one candidate per line") from None
    except OSError as error:
        remedy = f"the file cannot be read ({error.strerror}); put it beside the survey file, one candidate per line"
        raise ParameterError(FIELD, str(path), remedy) from None
    if len(text) > MAX_CHARACTERS:
        raise ParameterError(FIELD, str(path), f"the file has more than {MAX_CHARACTERS:,} characters; shorten it")
    found = [line.strip() for line in text.split("\n")]
    return [line for line in found if line]


def check_candidates(mechanism: Specification) -> None:
    """Refuse candidates for a mechanism whose answers depend on the list of values."""
    if not mechanism.open_strings:
        remedy = "needs a mechanism that answers about any string (rappor with open_list = true); list the values"
        raise ParameterError(FIELD, mechanism.name, remedy)
