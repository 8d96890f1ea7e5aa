"""Standing values: a chain belongs to the value of a person, and every window repeats its answers under a new token.

Windows with the same value cost together what one of them costs. A value that comes back gets the answers that it had:
two chains of one value would tell more than their level. So the ledger remembers which value a chain belongs to, as a
keyed hash; whoever has the file can try out values.
"""

from __future__ import annotations

import hashlib
import hmac
from collections.abc import Callable
from dataclasses import replace
from typing import Any

from producers.device.ledger import Ledger, StoredChain
from producers.device.values import same_bytes
from producers.survey.survey import Survey

Draw = Callable[[Survey, int, Any, int], StoredChain]


def standing_chain(ledger: Ledger, survey: Survey, window_ms: int, value: Any, now_ms: int, draw: Draw) -> StoredChain:
    """Return a chain for a window with the answers of its value, drawing them if there are none.

    Inside the caller's transaction. Jitter is drawn for every window: equal delays would link them.
    """
    mark = mark_of(ledger.secret, survey, value)
    fresh = draw(survey, window_ms, value, now_ms)
    known = ledger.standing(survey.id, mark)
    if known is None:
        ledger.keep_standing(survey.id, mark, fresh)
        return replace(fresh, standing=mark)
    return replace(fresh, answers=known.answers, groups=known.groups, standing=mark)


def mark_of(secret: bytes, survey: Survey, value: Any) -> bytes:
    """Return what a ledger remembers of a value: a hash of it under the secret of the device."""
    return hmac.digest(secret, b"standing" + survey.digest + same_bytes(value), hashlib.sha256)
