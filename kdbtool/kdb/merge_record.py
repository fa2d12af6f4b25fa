"""What a merged database says of its making (docs/kdb-format.md).

What its inputs agree on, and what they were.
"""

from __future__ import annotations

from collections.abc import Sequence

from kdbtool import __version__
from kdbtool.errors import KdbtoolError
from kdbtool.kdb.merge import Account
from kdbtool.kdb.reader import KdbReader
from kdbtool.kdb.writer import OWN_KEYS

_SOURCE = "source "
_MIOPEN = "miopen"
_OWN = {*OWN_KEYS, "kdbtool", "merged"}


def merged_record(
    readers: Sequence[KdbReader], account: Account, *, allow_mixed: bool
) -> tuple[dict[str, str], list[str]]:
    """The provenance of a merge, and what is to be said about it.

    A statement is kept where all inputs make it; one about a kernel source, where all make it that have
    rows of that source. KdbtoolError where inputs say different MIOpen versions or source texts, unless
    `allow_mixed`: a kdb belongs to one MIOpen.
    """
    records: list[dict[str, str]] = []
    notes: list[str] = []
    for number, reader in enumerate(readers):
        record = reader.provenance() or {}
        right = {"rows": str(account.rows[number]), "content_sha256": account.content[number]}
        if record and any(record.get(key) != value for key, value in right.items()):
            notes.append(f"{reader.path}: its provenance was written for other rows, and is not taken over")
            record = {}
        records.append(record)
    _same(readers, records, _MIOPEN, "MIOpen versions", allow_mixed, notes)
    if any(_MIOPEN in record for record in records):
        notes += [
            f"{reader.path}: does not say which MIOpen it is for, so the merged one does not either"
            for reader, record in zip(readers, records, strict=True)
            if _MIOPEN not in record
        ]
    out = {}
    for key in sorted({key for record in records for key in record} - _OWN):
        concerned = records
        if key.startswith(_SOURCE):
            name = key.removeprefix(_SOURCE)
            _same(readers, records, key, f"texts of {name}", allow_mixed, notes)
            concerned = [r for r, have in zip(records, account.sources, strict=True) if name in have]
        values = {record.get(key) for record in concerned}
        if len(values) == 1 and (value := values.pop()) is not None:
            out[key] = value
    out["kdbtool"] = __version__
    out["merged"] = " ".join(f"sha256:{content}" for content in sorted(set(account.content)))
    return out, notes


def _same(
    readers: Sequence[KdbReader],
    records: Sequence[dict[str, str]],
    key: str,
    what: str,
    allow_mixed: bool,
    notes: list[str],
) -> None:
    said = {
        record[key]: reader.path
        for reader, record in reversed(list(zip(readers, records, strict=True)))
        if key in record
    }
    if len(said) < 2:
        return
    shown = " and ".join(f"{value[:80]} ({said[value]})" for value in sorted(said))
    if not allow_mixed:
        raise KdbtoolError(
            f"databases of different {what}",
            why=shown,
            hint="merge those of one MIOpen, or add --allow-mixed: a row of another can give wrong results",
        )
    notes.append(f"databases of different {what}: {shown}")
