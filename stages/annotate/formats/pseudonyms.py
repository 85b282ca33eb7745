"""Pseudonyms: names of annotators are replaced before anything is stored.

In: a delivery, and optionally a list of people: CSV with the columns ``name`` (a name, e-mail address or user number of an annotation tool)
and ``pseudonym``, which the lead keeps outside the run. Out: the delivery with pseudonyms; ratings of somebody who is not on the list
become invalid rows ``annotator-not-listed``, without the name. One person may have several names, but no two names with one pseudonym may
have rated the same. Without a list, annotator ids are taken as pseudonyms, and a file with an
e-mail address among them is refused.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

from stages.annotate.formats.files import RatingFile, delimited
from stages.annotate.ratings.delivery import Delivery, InvalidRow, RawRating, spelled


def read(path: str | Path) -> dict[str, str]:
    """Pseudonym by name; a pseudonym also maps to itself. Raises ``ValueError`` for an invalid list."""
    file = RatingFile(path)
    name, table = file.name, delimited(file.text, file.name)
    header = [column.strip().lower() for column in table.header]
    if not {"name", "pseudonym"} <= set(header) or table.invalid:
        raise ValueError(
            f"{name} is not a list of annotators: expected the columns name and pseudonym in every row, found {', '.join(header)}"
        )
    people: dict[str, str] = {}
    for number, cells in table.rows:
        person, pseudonym = (cells[header.index(column)].strip() for column in ("name", "pseudonym"))
        if not person or not pseudonym or "@" in pseudonym:
            raise ValueError(f"{name} line {number}: expected a name and a pseudonym that is not an e-mail address")
        if people.setdefault(person, pseudonym) != pseudonym:
            raise ValueError(f"{name} line {number}: the person of this line has another pseudonym above; keep one")
    return {pseudonym: pseudonym for pseudonym in people.values()} | people


def apply(delivery: Delivery, people: Mapping[str, str] | None) -> Delivery:
    """The delivery with pseudonyms instead of names.

    Raises ``ValueError`` for an e-mail address when there is no list, and where two people have one pseudonym.
    """
    if people is None:
        for row in delivery.rows:
            if "@" in row.annotator_id:
                raise ValueError(
                    f"{delivery.at(row.number)}: an annotator is an e-mail address; give a list of name and pseudonym with --pseudonyms, "
                    "so that no address gets into the ledger"
                )
        return delivery
    rows: list[RawRating] = []
    invalid = list(delivery.invalid)
    first: dict[tuple[str, ...], RawRating] = {}
    for row in delivery.rows:
        pseudonym = people.get(row.annotator_id)
        if pseudonym is not None:
            other = first.setdefault((pseudonym, row.candidate_id, spelled(row.dimension), row.round), row)
            if other.annotator_id != row.annotator_id:
                raise ValueError(
                    f"{delivery.at(row.number)}: this and {delivery.counts_in} {other.number} rate the same, by two names with the "
                    f"pseudonym {pseudonym}; give everybody a pseudonym of their own"
                )
        if pseudonym is not None or not row.annotator_id:
            rows.append(row._replace(annotator_id=people.get(row.annotator_id, "")))
        else:
            invalid.append(
                InvalidRow(row.number, "annotator-not-listed", "the annotator of this row is not on the list of pseudonyms; add the person")
            )
    listed = [one._replace(annotator_id=people[one.annotator_id]) for one in delivery.revisions if one.annotator_id in people]
    return replace(delivery, rows=rows, invalid=invalid, revisions=listed)
