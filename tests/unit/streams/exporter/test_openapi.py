"""The description of the API: complete, consistent with what is served, and in the docs."""

import json
import re

from deploy.docs import DOCS, generated_block
from streams.exporter import openapi
from streams.exporter.reader import Reader
from streams.exporter.server import make_app
from tests.support.exporter import Known
from tests.support.memory_store import MemoryStore

DESCRIPTION = json.loads(json.dumps(openapi.description()))


def test_every_path_of_the_api_is_described_and_no_other() -> None:
    app = make_app(Reader(MemoryStore(), Known()), value_limit=1)
    served = {resource.canonical for resource in app.router.resources()}
    api = {path for path in served if path.startswith("/api/v1/")}
    assert api == set(DESCRIPTION["paths"])
    assert served - api == {"/", "/static/{path}", "/runbooks/{name}", "/metrics", "/healthz", "/api/openapi.json"}


def test_every_reference_leads_somewhere() -> None:
    schemas = DESCRIPTION["components"]["schemas"]
    references = re.findall(r'"#/components/schemas/(\w+)"', json.dumps(DESCRIPTION))
    assert references
    assert set(references) <= set(schemas)


def test_the_keys_of_answers_are_these() -> None:
    """A key that vanishes breaks programs: this list only grows."""
    schemas = DESCRIPTION["components"]["schemas"]
    stable = {
        "SurveyInfo": "id name question mechanism guarantee values epsilons opens_ms window_size_ms window_step_ms "
        "retention_ms method population alpha jitter_ms quantities canary settles_after_ms rungs end_ms "
        "units meanings names subjects lows highs sensitive protects copies views z grid "
        "attributes adds_up candidates registry tier",
        "RegistryInfo": "owner purpose expires_ms review",
        "GridInfo": "south north west east rows columns degrees cells",
        "Windows": "survey windows truncated",
        "Window": "version survey window_start_ms window_end_ms read_ms computed_ms users users_per_rung epsilons "
        "method population alpha homogeneity_p notes values alerts truth state settles_ms "
        "assumption contradicted proof withheld unexplained devices derived withdrawn",
        "ShareViews": "survey window_start_ms computed_ms views",
        "ShareView": "name title about state shares kept distance unbiased_distance closer note progress",
        "Withheld": "reason devices least_devices text",
        "Proof": "thaw survey topic topic_id offsets tally winners shard_offsets",
        "ValueEstimate": "value estimate variance lower upper simultaneous_lower simultaneous_upper always_valid_lower "
        "always_valid_upper",
        "DerivedEstimate": "name kind meaning estimate variance lower upper",
        "UnexplainedShare": "estimate variance lower upper",
        "AlertBound": "value side threshold alpha bound",
        "Truth": "shares devices settled",
        "History": "survey window_start_ms window_end_ms values openings_ms epsilons points",
        "HistoryPoint": "time_ms users_per_rung values estimate lower upper",
        "Health": "now_ms status reasons reports_per_second rates reports rejected rejected_per_second lag_records "
        "dirty_windows workers last_estimate_ms canary surveys store kafka lag_seconds lag_limit_seconds workers_alive "
        "workers_dead warnings epsilon_audits",
        "Worker": "name time_ms alive lag_records last_batch_ms latency_p50_seconds latency_p99_seconds "
        "kafka lag_seconds metrics_port clock_offset_seconds uncommitted_records transaction_open_seconds",
        "CanaryScore": "survey window_start_ms value z limit",
        "EpsilonAudit": "survey rungs answers alpha updated_ms exceeded",
        "RungEpsilon": "rung declared lower_bound",
        "SurveyHealth": "survey last_estimate_ms stale stale_after_ms state end_ms",
        "Alerts": "source alerts",
        "Alert": "name state survey value window summary since_ms runbook",
        "Problem": "error",
    }
    for name, keys in stable.items():
        assert set(keys.split()) == set(schemas[name]["properties"]), name
    assert set(stable) == set(schemas)


def test_the_documented_table_is_the_one_in_force() -> None:
    assert generated_block(DOCS / "dashboard.md", "api") == openapi.documentation()
