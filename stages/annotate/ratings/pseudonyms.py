"""Annotators are known by pseudonyms: what comes after a delivery never sees a name.

In: a delivery, and optionally a list of people: CSV with the columns ``name`` (a name, e-mail address or user number of an annotation tool)
and ``pseudonym``, kept by the lead outside the run. Out: the delivery with every annotator replaced by the pseudonym; ratings of
somebody who is not on the list are set aside as ``annotator-not-listed``, without the name. Without a list ids are taken for
pseudonyms, and a file with an e-mail address among them is refused.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path, PurePath

from stages.annotate.formats import files
from stages.annotate.ratings.delivery import Broken, Delivered, Delivery


def read(path: str | Path) -> dict[str, str]:
    """Pseudonym of every name, and of itself. Raises ``ValueError`` for a list that is not sound."""
    name = PurePath(str(path)).name
    table = files.delimited(files.text(files.content(path), name), name)
    header = [column.strip().lower() for column in table.header]
    if not {"name", "pseudonym"} <= set(header) or table.broken:
        raise ValueError(
            f"{name} is no list of annotators: expected the columns name and pseudonym in every row, found {', '.join(header)}"
        )
    people: dict[str, str] = {}
    for number, cells in table.rows:
        person, pseudonym = (cells[header.index(column)].strip() for column in ("name", "pseudonym"))
        if not person or not pseudonym or "@" in pseudonym:
            raise ValueError(f"{name} line {number}: expected a name and a pseudonym that is no e-mail address")
        if people.setdefault(person, pseudonym) != pseudonym:
            raise ValueError(f"{name} line {number}: the person of this line has another pseudonym above; keep one")
    return {pseudonym: pseudonym for pseudonym in people.values()} | people


def apply(delivery: Delivery, people: Mapping[str, str] | None) -> Delivery:
    """The delivery with pseudonyms instead of names. Raises ``ValueError`` for an e-mail address when there is no list."""
    if people is None:
        for row in delivery.rows:
            if "@" in row.annotator_id:
                raise ValueError(
                    f"{delivery.at(row.number)}: an annotator is an e-mail address; give a list of name and pseudonym with --pseudonyms, "
                    "so that no address gets into the ledger"
                )
        return delivery
    rows: list[Delivered] = []
    broken = list(delivery.broken)
    for row in delivery.rows:
        if row.annotator_id in people or not row.annotator_id:
            rows.append(row._replace(annotator_id=people.get(row.annotator_id, "")))
        else:
            broken.append(
                Broken(row.number, "annotator-not-listed", "the annotator of this row is not on the list of pseudonyms; add the person")
            )
    listed = [one._replace(annotator_id=people[one.annotator_id]) for one in delivery.revisions if one.annotator_id in people]
    return replace(delivery, rows=rows, broken=broken, revisions=listed)
