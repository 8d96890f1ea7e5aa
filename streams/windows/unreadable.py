"""Windows with a report log that cannot be read: one of them is set aside, and all others go on."""

from __future__ import annotations

import logging

from streams.store.contract import Store, StoreCorruptError
from streams.worker_metrics import WorkerMetrics, worker_metrics

logger = logging.getLogger(__name__)


class UnreadableLogs:
    """Sets unreadable logs aside; the window is rebuilt from Kafka by `streams.repair.unreadable`.

    1. queue the window to be rebuilt: whatever comes next, it will be
    2. move the log away, so that reports can be counted in an empty one meanwhile; one whose entries can be read stays,
       and only its head and tally are made again

    Any set of genuine reports is a valid log, so what is counted between the two is right and only incomplete.
    """

    def __init__(self, store: Store, metrics: WorkerMetrics | None = None) -> None:
        self._store, self._metrics = store, metrics or worker_metrics()

    def set_aside(self, error: StoreCorruptError) -> None:
        """Set the logs aside that could not be read.

        Raises:
            StoreUnavailableError: repeat it; nothing is lost.
        """
        self._store.unreadable.put({(key.survey_id, key.window_ms) for key in error.logs})
        log = self._store.log
        moved = [
            key
            for key, seen in error.logs.items()
            if (log.distrust(key, seen) if key in error.readable else log.set_aside(key, seen))
        ]
        self._metrics.unreadable.labels("log").inc(len(moved))
        for key in moved:
            what = "was changed by somebody else" if key in error.readable else "cannot be read"
            logger.error(
                "%s, window %d, shard %d: its report log %s (%s); set aside, the window is counted again "
                "from Kafka and has no new estimate until then",
                *key,
                what,
                error,
            )
