"""The client for browsers, in Node: the vectors of the specification, and what its README says of it."""

from __future__ import annotations

import gzip
import json
import re
from pathlib import Path

import msgspec
import pytest

from producers.survey.document import document_of
from tests.support.continuing import LONGER
from tests.support.web_client import FOLDER, MODULES, VECTORS, run_node

README = (FOLDER / "README.md").read_text()


def test_every_vector_passes_in_node() -> None:
    done = run_node(FOLDER / "test" / "run.js")
    assert done.returncode == 0, done.stdout + done.stderr
    passed = re.fullmatch(r"(\d+) passed, 0 failed\n", done.stdout)
    assert passed, done.stdout
    assert int(passed[1]) > 100


KINDS = json.loads(VECTORS.read_text(encoding="utf-8")).keys() - {"version"}


@pytest.mark.parametrize("key", sorted(KINDS))
def test_a_wrong_vector_fails(key: str, tmp_path: Path) -> None:
    vectors = json.loads(VECTORS.read_text(encoding="utf-8"))
    changes = {
        "below": ("drawn", ["0"]),
        "draws": ("answers", ["ff"]),
        "bloom": ("positions", [1]),
        "costs": ("units", "1"),
        "windows": ("starts", [0]),
        "keys": ("token", "00"),
        "surveys": ("canonical_sha256", "00"),
        "tokens": ("shard", 16),
        "frames": ("frame", "00"),
        "envelopes": ("taken", False),
        "stories": ("steps", [vectors["stories"][0]["steps"][0] | {"spent_units": "1"}]),
    }
    name, wrong = changes[key]
    first = vectors[key]["grr"] if key == "surveys" else vectors[key][0]
    first[name] = wrong
    path = tmp_path / "vectors.json"
    path.write_text(json.dumps(vectors))
    done = run_node(FOLDER / "test" / "run.js", str(path))
    assert done.returncode == 1
    assert done.stdout.endswith(" passed, 1 failed\n"), done.stdout


def test_a_survey_that_charges_less_than_it_takes_is_refused(tmp_path: Path) -> None:
    script = tmp_path / "refuse.mjs"
    script.write_text(f"""
import {{ readFileSync }} from "node:fs";
import {{ Survey }} from "{FOLDER}/index.js";
const served = JSON.parse(readFileSync("{VECTORS}", "utf-8")).surveys;
for (const [name, survey] of Object.entries(served)) {{
  for (const rung of survey.client.epsilons.keys()) {{
    const epsilons = survey.client.epsilons.map((epsilon, at) => (at === rung ? epsilon * (1 - 1e-6) : epsilon));
    const changed = {{ ...survey, client: {{ ...survey.client, epsilons }} }};
    const refused = await Survey.of(changed).then(() => "taken", (error) => error.message);
    console.log(`${{name}} ${{rung}} ${{refused.includes("costs")}}`);
  }}
}}
""")
    done = run_node(script)
    lines = done.stdout.splitlines()
    assert len(lines) > 20, done.stderr
    assert all(line.endswith(" true") for line in lines), done.stdout


def test_a_survey_whose_chains_would_have_to_go_on_is_refused(tmp_path: Path) -> None:
    document = document_of(LONGER, "", 0, 1)
    (tmp_path / "document.json").write_bytes(msgspec.json.encode(document))
    script = tmp_path / "refuse.mjs"
    script.write_text(f"""
import {{ readFileSync }} from "node:fs";
import {{ Survey }} from "{FOLDER}/index.js";
const document = JSON.parse(readFileSync("{tmp_path}/document.json", "utf-8"));
await Survey.of(document).catch((error) => console.log(error.message));
""")
    assert "it continues an earlier survey, whose chains would have to go on" in run_node(script).stdout


def test_the_switch_takes_back_what_was_answered_to_a_survey_that_the_device_is_no_longer_given(tmp_path: Path) -> None:
    # So does the demo's page: each survey's page makes a device of its own survey, on the ledger of all.
    script = tmp_path / "switch.mjs"
    script.write_text(f"""
import {{ readFileSync }} from "node:fs";
import {{ Device, Survey }} from "{FOLDER}/index.js";
import {{ FileStore }} from "{FOLDER}/node.js";
const {{ surveys: served, frames }} = JSON.parse(readFileSync("{VECTORS}", "utf-8"));
const [answered, other] = [await Survey.of(served["taken-back"]), await Survey.of(served.grr)];
const windowMs = frames[0].window_ms;
const [store, sent] = [new FileStore("{tmp_path}/ledger.json"), []];
const transport = {{ send: async (some) => void sent.push(...some) }};
const born = (survey) => new Device(store, [survey], transport, {{ clock: () => windowMs }});
const first = born(answered);
await first.observe(answered, "red");
await first.tick();
const second = born(other);
await second.consent(false);
await second.tick();
const {{ chains, outbox }} = await store.read();
const [rungs, versions] = [64, 3].map((place) => sent.map((frame) => frame[place]));
console.log(JSON.stringify([rungs, versions, answered.rungs, chains, outbox]));
""")
    done = run_node(script)
    assert done.returncode == 0, done.stderr
    rungs, versions, top, chains, outbox = json.loads(done.stdout)
    assert (rungs, versions, chains, outbox) == ([0, top], [2, 2], [], []), "the answer, and the withdrawal of it"


def test_its_size_is_as_stated() -> None:
    raw = b"".join(path.read_bytes() for path in MODULES if path.name != "node.js")
    stated = re.search(r"(\d+) kB, (\d+) kB compressed", README)
    assert stated, "the README states the size"
    for bytes_, kilobytes in ((len(raw), int(stated[1])), (len(gzip.compress(raw)), int(stated[2]))):
        assert 0.9 < bytes_ / (1_000 * kilobytes) < 1.1, f"it has {bytes_} bytes now"
