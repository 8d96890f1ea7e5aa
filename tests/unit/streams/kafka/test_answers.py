"""Answers of Kafka's client that do not come are errors of Kafka, which every caller expects."""

from concurrent.futures import Future
from typing import Any

import pytest
from confluent_kafka import KafkaError, KafkaException

from streams.kafka.errors import Troubles, answer_of
from streams.settings import Settings


def test_an_answer_that_does_not_come_is_an_error_of_kafka() -> None:
    never: Future[Any] = Future()
    with pytest.raises(KafkaException) as error:
        answer_of(never, 0.01)
    assert error.value.args[0].code() == KafkaError._TIMED_OUT
    explained = Troubles(Settings()).explained(error.value.args[0])
    assert (explained.exit_status, "no answer within 0.01 s" in str(explained)) == (75, True)


def test_an_answer_that_is_there_is_returned() -> None:
    done: Future[Any] = Future()
    done.set_result(5)
    assert answer_of(done, 0.01) == 5
