"""python -m tests.bench.plain_worker ...: `thaw` with record batches that are decoded record by record."""

from __future__ import annotations

from streams.cli.main import main
from streams.kafka import batches

if __name__ == "__main__":
    batches.LEAST_WALKED = 1 << 31  # type: ignore[misc]  # more than a batch can hold
    main()
