"""A `thaw` of which Faust believes that it runs since ten minutes: `python -m tests.support.old_worker KIND worker`.

Every few seconds Faust looks whether it reads from each of its partitions, and compares with the start of the process:
the kind `stock` is what it makes of that, `ours` what a worker does. Here it looks also as soon as it has taken over
partitions, when none of them has answered yet. Each look is logged, so that a test can wait for it.
"""

import logging
import sys
from typing import Any

from faust.transport.drivers import aiokafka as driver

from streams.cli.main import main
from streams.worker.faust_batches import BatchConsumer, BatchThread

LOOKED = "Faust looked at its partitions"
_RUN_SECONDS = 600
_started, _look = driver.AIOKafkaConsumerThread.on_start, BatchConsumer.verify_all_partitions_active
_take_over = BatchConsumer.seek_to_committed


async def _long_ago(thread: Any) -> None:
    await _started(thread)
    thread.time_started -= _RUN_SECONDS


async def _told(consumer: Any) -> None:
    await _look(consumer)
    logging.getLogger(__name__).info(LOOKED)


async def _looked_at_once(consumer: Any) -> Any:
    starts = await _take_over(consumer)
    await consumer.verify_all_partitions_active()
    return starts


if __name__ == "__main__":
    driver.AIOKafkaConsumerThread.on_start = _long_ago  # type: ignore[method-assign, assignment]  # the very purpose
    BatchConsumer.verify_all_partitions_active = _told  # type: ignore[method-assign, assignment]
    BatchConsumer.seek_to_committed = _looked_at_once  # type: ignore[method-assign, assignment]
    if sys.argv.pop(1) == "stock":
        del BatchThread.verify_event_path
    main()
