"""What all tests of a device use."""

from pathlib import Path

import pytest


@pytest.fixture
def ledger(tmp_path: Path) -> Path:
    """The path of a ledger that does not exist yet."""
    return tmp_path / "ledger.sqlite"
