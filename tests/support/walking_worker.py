"""python -m tests.support.walking_worker ...: `thaw` with record batches of any length walked by compiled code.

In a test most batches are too short for it.
"""

from __future__ import annotations

from streams.cli.main import main
from streams.kafka import batches

if __name__ == "__main__":
    batches.LEAST_WALKED = 1  # type: ignore[misc]
    main()
