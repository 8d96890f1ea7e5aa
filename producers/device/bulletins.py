"""What bulletins have opened, as a device remembers it: only ever more, by the newest bulletin it was given."""

from __future__ import annotations

from collections.abc import Callable

import msgspec

from producers.device.ledger import Ledger
from producers.survey.bulletin import Bulletin, BulletinError, opened_bulletin
from producers.survey.document import Verify
from producers.survey.survey import Survey

Verifier = Callable[[str], Verify]
"""Makes the check of signatures of a public key, such as `producers.survey.signing.verifier`."""


class Bulletins:
    """The bulletins of a ledger."""

    def __init__(self, ledger: Ledger, verifier: Verifier | None) -> None:
        self._ledger, self._verifier = ledger, verifier

    def take(self, survey: Survey, raw: bytes) -> Bulletin:
        """Store what a bulletin opens. The one that is known already changes nothing; BulletinError for all others.

        Windows that had expired when it was issued are forgotten, unless this device still holds answers of them: by
        its own clock it may still release what was opened.
        """
        if survey.stop is None:
            raise BulletinError(f"{survey.id}: its levels are not opened by bulletins; do not fetch any")
        if self._verifier is None:
            raise BulletinError("this device cannot check signatures; pass verifier= to Device")
        found = opened_bulletin(raw, survey, self._verifier(survey.stop.key))
        with self._ledger.transaction():
            number, before = self._known(survey.id)
            after = before | {start: max(rung, before.get(start, 0)) for start, rung in found.open.items()}
            held = self._held(survey.id)
            after = {
                start: rung
                for start, rung in after.items()
                if found.issued_ms <= survey.expiry_ms(int(start)) or int(start) in held
            }
            # What is known may be more: it was opened by earlier bulletins, or has been forgotten since.
            if found.number < number or (found.number == number and not after.items() <= before.items()):
                raise BulletinError(
                    f"{survey.id}: bulletin {found.number} came after bulletin {number}; it changes nothing: fetch the "
                    "newest one"
                )
            self._ledger.connection.execute(
                "INSERT OR REPLACE INTO bulletins (survey_id, number, open) VALUES (?, ?, ?)",
                (survey.id, found.number, msgspec.json.encode(after)),
            )
        return found

    def rung(self, survey_id: str, window_ms: int) -> int:
        """Return the highest rung of a window that was opened."""
        return self._known(survey_id)[1].get(str(window_ms), 0)

    def _held(self, survey_id: str) -> set[int]:
        """Return the windows of a survey whose answers still exist."""
        rows = self._ledger.connection.execute(
            "SELECT window_ms FROM chains WHERE answers IS NOT NULL AND survey_id = ?", (survey_id,)
        )
        return {window_ms for (window_ms,) in rows}

    def _known(self, survey_id: str) -> tuple[int, dict[str, int]]:
        row = self._ledger.connection.execute(
            "SELECT number, open FROM bulletins WHERE survey_id = ?", (survey_id,)
        ).fetchone()
        return (-1, {}) if row is None else (row[0], msgspec.json.decode(row[1], type=dict[str, int]))
