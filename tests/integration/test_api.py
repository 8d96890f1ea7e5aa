"""The API against its own OpenAPI description, on a real exporter.

schemathesis asks whatever the description allows, and what it does not: boundary values first, then random ones. Every
answer must have a status and a body that the description promises, and no question may hurt the exporter.
"""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import schemathesis
from hypothesis import HealthCheck, settings
from schemathesis.config import GenerationConfig, SchemathesisConfig

from producers.clock import system_clock
from producers.survey.survey import Survey, parse_survey
from streams.exporter import openapi
from streams.store.redis import RedisStore
from streams.windows.history import encode_point
from tests.support.clock import later
from tests.support.deadline import END_SECONDS
from tests.support.exporter import record_of
from tests.support.exporter_process import start_exporter
from tests.support.services import fresh_name
from tests.support.surveys import survey_text

pytestmark = pytest.mark.real

QUESTIONS = 15
"""Random questions per path and kind; boundary values come on top."""

configuration = SchemathesisConfig()
configuration.projects.default.generation = GenerationConfig(deterministic=True, with_security_parameters=False)
# The stream never ends by itself; tests of its own listen to it.
schema = schemathesis.openapi.from_dict(openapi.description(), config=configuration).exclude(path="/api/v1/events")


class Served:
    """A real exporter, the survey it knows, and a window that has an estimate."""

    def __init__(self, url: str, survey: Survey, window_ms: int) -> None:
        self.url, self.survey, self.window_ms = url, survey, window_ms


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory, request: pytest.FixtureRequest) -> Iterator[Served]:
    redis_url: str = request.getfixturevalue("redis_server").url
    folder = tmp_path_factory.mktemp("surveys")
    (folder / "colour.toml").write_text(survey_text())
    colour = parse_survey(survey_text(), "colour.toml")
    prefix = fresh_name() + "."
    window_ms = colour.windows.latest(system_clock())
    store = RedisStore.connect(redis_url, prefix=prefix)
    secret = store.queue.lock(colour.id, window_ms, 60_000)
    assert secret is not None
    record = record_of(colour, window_ms, [0.5, 0.3, None])
    expires_ms = later()
    assert store.estimates.save(colour.id, window_ms, secret, record.encode(), expires_ms, point=encode_point(record))
    store.close()
    child, url = start_exporter(folder, redis_url=redis_url, prefix=prefix)
    try:
        yield Served(url, colour, window_ms)
        child.check()
        log = Path(folder / "exporter.log").read_text()
        assert "Traceback" not in log, log
    finally:
        child.terminate(END_SECONDS)


@schema.parametrize()
@settings(max_examples=QUESTIONS, suppress_health_check=list(HealthCheck))
def test_every_answer_is_one_that_the_description_promises(case: "schemathesis.Case[Any]", served: Served) -> None:
    case.call_and_validate(base_url=served.url)


@schema.include(path_regex=r"\{survey\}").parametrize()
@settings(max_examples=QUESTIONS, suppress_health_check=list(HealthCheck))
def test_and_so_it_is_for_a_survey_and_a_window_that_exist(case: "schemathesis.Case[Any]", served: Served) -> None:
    case.path_parameters["survey"] = served.survey.id
    if "start_ms" in case.path_parameters:
        case.path_parameters["start_ms"] = served.window_ms
    response = case.call(base_url=served.url)
    case.validate_response(response)
    if case.method == "GET" and not case.query:
        assert response.status_code == 200
