"""Claims about a graded class, each as one line of a table: the claim, the result, whether it holds."""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

from classroom import Submission
from hostile import SECRET
from runs import grades, verdicts
from tabulate import tabulate

SIGNED = re.compile(rf"(student\d+) {SECRET}")


class Claim(NamedTuple):
    """One line; `holds` is None for a figure that nothing was promised of."""

    what: str
    found: str
    holds: bool | None = None


def nobody_lost(submissions: Sequence[Submission], out: Path) -> Claim:
    """Hold that every submission is in the gradebook, once, and every student in the table."""
    document = json.loads((out / "grades.json").read_text())
    counted = Counter(grade["submission"] for grade in (*document["grades"], *document["ungraded"]))
    rows = Counter(line.split(",")[0] for line in (out / "grades.csv").read_text("utf-8-sig").splitlines()[1:])
    wrong = [each.label for each in submissions if counted[each.label] != 1 or rows[each.student] != 1]
    return Claim("submissions that are lost or there twice", _list(wrong), not wrong)


def verdicts_as_alone(submissions: Iterable[Submission], out: Path, alone: Mapping[Path, Path], quiet: Path) -> Claim:
    """Claim that every submission based on a known file got the verdicts of that file, beside any neighbours.

    Args:
        submissions: of the class.
        out: its gradebooks.
        alone: each known file, and where it is in the class without hostile neighbours.
        quiet: the gradebooks of that class.
    """
    found, among_themselves = grades(out), grades(quiet)
    known = {path: verdicts(among_themselves[str(label)]) for path, label in alone.items()}
    wrong = [
        f"{each.label} ({each.kind})"
        for each in submissions
        if each.based_on is not None and verdicts(found.get(each.label, {})) != known[each.based_on]
    ]
    return Claim("with other verdicts than among themselves", _list(wrong), not wrong)


def nothing_leaked(submissions: Iterable[Submission], out: Path) -> Claim:
    """Hold that no grade shows a line of somebody else's source, of a planted file or of the machine's."""
    found = grades(out)
    leaks = []
    for each in submissions:
        text = json.dumps(found.get(each.label, {}))
        signed = SIGNED.findall(text)
        if "root:x:" in text or set(signed) - {each.student} or text.count(SECRET) != len(signed):
            leaks.append(f"{each.label} ({each.told})")
    return Claim("grades that show what is not the student's", _list(leaks), not leaks)


def nothing_imported(folder: Path) -> Claim:
    """Hold that no Python file of a student's ran."""
    run = [path.parent.name for path in folder.rglob("was_imported")]
    return Claim("students whose Python files ran", _list(run), not run)


def points_by_kind(submissions: Iterable[Submission], out: Path) -> list[tuple[str, int, int, int, str]]:
    """Return kind, how many, how many of them graded, how many with full points, and the commonest findings."""
    found, rows = grades(out), []
    kinds: dict[str, list[Submission]] = {}
    for each in submissions:
        kinds.setdefault(each.kind, []).append(each)
    for kind, those in kinds.items():
        graded = [found[each.label] for each in those if "checks" in found.get(each.label, {})]
        full = sum(grade["points"] == grade["max_points"] > 0 for grade in graded)
        codes = Counter(_first_code(found.get(each.label, {})) for each in those)
        rows.append((kind, len(those), len(graded), full, ", ".join(f"{n} {code}" for code, n in codes.most_common(4))))
    return rows


def _first_code(grade: Mapping[str, object]) -> str:
    """Return the code of the first finding that is not about another check."""
    checks = grade.get("checks")
    if not isinstance(checks, list):
        return str(grade.get("code", "nothing"))
    codes = (found["code"] for check in checks for found in check["findings"] if not found["because"])
    return next(codes, "right")


def _list(wrong: Sequence[str]) -> str:
    return f"{len(wrong)}: {', '.join(wrong[:8])}" if wrong else "none"


def told(claims: Iterable[Claim]) -> str:
    """Return the table."""
    words = {True: "holds", False: "DOES NOT HOLD", None: ""}
    return tabulate([(claim.what, claim.found, words[claim.holds]) for claim in claims], disable_numparse=True)
