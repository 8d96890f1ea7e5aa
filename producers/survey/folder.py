"""A folder of survey files that may grow while a process runs."""

from __future__ import annotations

import logging
import threading
from pathlib import Path
from typing import NamedTuple

from producers.survey.candidates import FIELD as CANDIDATES
from producers.survey.continuing import FIELD as CONTINUES
from producers.survey.editions import by_digest, newest, rival
from producers.survey.survey import Survey, SurveyError, load_survey

log = logging.getLogger(__name__)

RESCAN_MS = 5_000
"""How long a new file may stay unseen. Shorter costs a directory listing each time; longer delays new surveys."""
RESCAN_UNKNOWN_MS = 1_000
"""An unknown digest may be a survey that was just added, or garbage: scan at once, but not for every frame."""


class _Seen(NamedTuple):
    mtime_ns: int
    size_bytes: int
    candidates: tuple[int, int] = (0, 0)
    """The same of the file of candidates, where the survey names one."""


_NOWHERE = _Seen(-1, -1)
"""A link to a file that is not there, or cannot be reached."""


class SurveyFolder:
    """Surveys by the digest that frames carry; safe to share between threads.

    An invalid file is logged once per version and skipped; its last valid version stays known, and so does a survey
    whose file was removed: reports in transit must stay readable. `errors` holds the current error of each invalid
    file. Of surveys that continue each other the newest stands for all: it judges the frames of the others as well.

    Args:
        path: the folder with `*.toml` files.
        now_ms: the time of the first scan.
        keep_removed: list surveys whose file was removed or changed since; False for a process that only shows
            surveys, so that it shows what the folder holds.
    """

    def __init__(self, path: str | Path, now_ms: int, *, keep_removed: bool = True) -> None:
        self.path = Path(path)
        self._keep_removed = keep_removed
        self._digests: dict[Path, bytes] = {}
        self.errors: dict[str, SurveyError] = {}
        self._seen: dict[Path, _Seen] = {}
        self._surveys: dict[bytes, Survey] = {}
        self._by_digest: dict[bytes, Survey] = {}
        self._candidates: dict[Path, Path] = {}
        self._lock = threading.Lock()
        self._scanned_ms = now_ms
        self._complained = False
        self._scan()

    def get(self, digest: bytes, now_ms: int) -> Survey | None:
        """Return the survey of a digest, looking for new files if it is unknown (at most once a second)."""
        with self._lock:
            found = self._by_digest.get(digest)
            self._rescan(now_ms, RESCAN_MS if found else RESCAN_UNKNOWN_MS)
            return self._by_digest.get(digest)

    def surveys(self, now_ms: int) -> tuple[Survey, ...]:
        """Return all known surveys and what tiers may know of them, by name and id."""
        with self._lock:
            self._rescan(now_ms, RESCAN_MS)
            present = set(self._digests.values())
            kept = (s for digest, s in self._surveys.items() if self._keep_removed or digest in present)
            shown = list(newest(kept).values())
            shown += [tier for survey in shown for tier in survey.tier_surveys]
            return tuple(sorted(shown, key=lambda survey: survey.id))

    def files(self, now_ms: int) -> dict[Path, Survey]:
        """Return the surveys that the folder holds now, by file; without those that another one continues."""
        with self._lock:
            self._rescan(now_ms, RESCAN_MS)
            found = {file: self._surveys[digest] for file, digest in sorted(self._digests.items())}
            last = newest(found.values())
            return {file: survey for file, survey in found.items() if survey.digest == last[survey.id].digest}

    def _rescan(self, now_ms: int, after_ms: int) -> None:
        # A clock that was set back must not stop the scans.
        if not 0 <= now_ms - self._scanned_ms < after_ms:
            self._scanned_ms = now_ms
            self._scan()

    def _scan(self) -> None:
        try:
            files = sorted(file for file in self.path.iterdir() if file.suffix == ".toml")
        except OSError as error:
            if not self._complained:
                log.error("the survey folder %s cannot be read (%s); known surveys are kept", self.path, error.strerror)
            self._complained = True
            return
        self._complained = False
        for gone in self._seen.keys() - set(files):
            del self._seen[gone]
            self._digests.pop(gone, None)
            self._candidates.pop(gone, None)
            self.errors.pop(gone.name, None)
        for file in files:
            self._look_at(file)
        self._by_digest = by_digest(self._surveys.values())

    def _look_at(self, file: Path) -> None:
        try:
            status = file.stat()
            seen = _Seen(status.st_mtime_ns, status.st_size, _stamp(self._candidates.get(file)))
        except OSError:
            if not file.is_symlink():
                return  # removed since the folder was listed
            seen = _NOWHERE
        if self._seen.get(file) == seen:
            return
        self._seen[file] = seen
        try:
            survey = load_survey(file)
            other = rival(survey, self._surveys.values())
            if other is not None:
                remedy = f"{other.edition} continues {survey.id} with other levels; a chain has one continuation"
                raise SurveyError(str(file), CONTINUES, survey.edition, remedy)
        except SurveyError as error:
            if error.field.startswith(CANDIDATES):
                # Another file must change, perhaps one that is not there yet: this one is looked at again.
                del self._seen[file]
            if str(self.errors.get(file.name)) != str(error) or file in self._seen:
                log.error("survey file skipped: %s", error)
            self.errors[file.name] = error
            return
        self.errors.pop(file.name, None)
        before = self._surveys.get(survey.digest)
        if before is None:
            counted = f", counted as {survey.id}," if survey.continued else ""
            log.info("survey %s%s from %s", survey.edition, counted, file.name)
        elif before.candidates_hash != survey.candidates_hash:
            log.info("survey %s has %d candidates now", survey.id, len(survey.mechanism.labels))
        if survey.candidates:
            # Its stamp is taken before it is read: the first time, when its name was not known, it is read twice.
            self._candidates[file] = file.parent / survey.candidates
        else:
            self._candidates.pop(file, None)
        self._surveys[survey.digest] = survey
        self._digests[file] = survey.digest


def _stamp(file: Path | None) -> tuple[int, int]:
    if file is None:
        return (0, 0)
    try:
        status = file.stat()
    except OSError:
        return (-1, -1)
    return (status.st_mtime_ns, status.st_size)
