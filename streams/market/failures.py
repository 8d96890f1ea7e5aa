"""What the market refuses, with the reason; nothing is changed."""

from __future__ import annotations

from streams.failures import OutsideError


class MarketError(OutsideError):
    """An offer, a purchase or a delivery is refused; the message says why, and what to do."""


class ContradictionError(MarketError):
    """Books, Redis, receipts and deliveries do not agree: somebody changed one of them, or restored an old copy."""
