"""Headers of a game without the names of people and places."""

from __future__ import annotations

import re
from collections.abc import Mapping

_PERSONAL = re.compile(
    r"(?:White|Black)?(?:Team|FideId|UscfId|NA|Url|Country|Club|Nick|Id|User|UserId)?"
    r"|Site|Link|Source|SourceTitle|SourceId|.*Annotator|Analyst|Commentator|Arbiter|Coach"
    r"|GameI[dD]|GameUrl|.*Url|.*Name|StudyName|ChapterName|Tournament|Transcriber|Owner",
    re.IGNORECASE,
)
_URL = re.compile(r"(?:https?://|www\.)\S*")
_SHORTEST_NAME = 3


def anonymous(headers: Mapping[str, str]) -> dict[str, str]:
    """The headers that tell nothing of who played, or where a copy can be found.

    Left out are headers for names, teams, annotators, sites and ids, and any whose value
    repeats a player's name (`Termination "ada won on time"`). Addresses are cut from the rest.
    """
    names = _names(headers)
    kept = {}
    for tag, value in headers.items():
        value = _URL.sub("", value).strip()
        if not value or _PERSONAL.fullmatch(tag) or any(name in value.lower() for name in names):
            continue
        kept[tag] = value
    return kept


def _names(headers: Mapping[str, str]) -> list[str]:
    """The players' names in lower case, whole and by family name."""
    whole = [headers.get(side, "").strip().lower() for side in ("White", "Black")]
    parts = {name for full in whole for name in (full, full.split(",")[0])}
    return sorted(name for name in parts if len(name) >= _SHORTEST_NAME)
