"""Strict reading of query parameters: a mistyped parameter is refused, not ignored."""

from __future__ import annotations

import re
from collections.abc import Sequence
from difflib import get_close_matches
from typing import Final, NoReturn

import msgspec
from aiohttp import web
from multidict import MultiMapping

from streams.exporter.api import Problem

LATEST_MS: Final = 2**53 - 1
"""The largest time; JavaScript reads no larger integer exactly."""


def problem(kind: type[web.HTTPError], text: str) -> web.HTTPError:
    """Return an error whose JSON body says what was expected and what was received."""
    return kind(text=msgspec.json.encode(Problem(text)).decode(), content_type="application/json")


def refuse(text: str) -> NoReturn:
    """Answer 400."""
    raise problem(web.HTTPBadRequest, text)


def check_names(query: MultiMapping[str], *allowed: str) -> None:
    """Refuse unknown and repeated parameters."""
    for name in query:
        if name not in allowed:
            near = get_close_matches(name, allowed, n=1)
            hint = f"; did you mean {near[0]}?" if near else ""
            refuse(f"unknown parameter {_shown(name)}{hint}; expected {', '.join(allowed) or 'none'}")
        if len(query.getall(name)) > 1:
            refuse(f"parameter {name} must be given once; got it {len(query.getall(name))} times")


def whole_number(query: MultiMapping[str], name: str, default: int, *, low: int, high: int) -> int:
    """Return a parameter, or the default if it is absent."""
    text = query.get(name)
    return default if text is None else number_in(name, text, low=low, high=high)


def chosen_word(query: MultiMapping[str], name: str, words: Sequence[str]) -> str | None:
    """Return a parameter that is one of some words; None if it is absent."""
    text = query.get(name)
    if text is not None and text not in words:
        refuse(f"{name} must be {' or '.join(words)}; got {_shown(text)}")
    return text


def number_in(name: str, text: str, *, low: int, high: int) -> int:
    """Read a whole number in decimal digits."""
    if not re.fullmatch(r"[0-9]{1,16}", text, flags=re.ASCII) or not low <= int(text) <= high:
        refuse(f"{name} must be a whole number from {low} to {high}; got {_shown(text)}")
    return int(text)


def _shown(text: str) -> str:
    return repr(text if len(text) <= 80 else text[:80] + "...")
