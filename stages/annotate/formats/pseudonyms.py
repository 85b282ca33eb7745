"""Pseudonyms: names of annotators are replaced before anything is stored.

In: a delivery, and optionally a list of people: CSV with the columns ``name`` (a name, e-mail address or user number of an annotation tool)
and ``pseudonym``, which the lead keeps outside the run. Out: the delivery with pseudonyms; ratings of somebody who is not on the list
become invalid rows ``annotator-not-listed``, without the name. One person may have several names, but no two names with one pseudonym may
have rated the same, in one file or in several of an ingest. Without a list, annotator ids are taken as pseudonyms, and a file with an
e-mail address among them is refused. Names count as equal whatever way Unicode spells their accents; two persons or pseudonyms on the list
that differ only in capital letters are refused.
"""

from __future__ import annotations

import unicodedata
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

from stages.annotate.formats.files import RatingFile, delimited
from stages.annotate.ratings.delivery import Delivery, InvalidRow, RawRating, spelled
from stages.annotate.ratings.rating_task import PRODUCTION


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
    spelt: dict[str, str] = {}
    of_name: dict[str, str] = {}
    for number, cells in table.rows:
        person, pseudonym = (_composed(cells[header.index(column)].strip()) for column in ("name", "pseudonym"))
        if not person or not pseudonym or "@" in pseudonym:
            raise ValueError(f"{name} line {number}: expected a name and a pseudonym that is not an e-mail address")
        if of_name.setdefault(person.casefold(), pseudonym) != pseudonym:
            raise ValueError(f"{name} line {number}: the person of this line has another pseudonym above; keep one")
        if (other := spelt.setdefault(pseudonym.casefold(), pseudonym)) != pseudonym:
            raise ValueError(f"{name} line {number}: pseudonym {pseudonym} is {other} above; spell one pseudonym in one way")
        people[person] = pseudonym
    return {pseudonym: pseudonym for pseudonym in people.values()} | people


Rated = dict[tuple[str, ...], tuple[str, str]]
"""By pseudonym, candidate, dimension and round: the name of who rated, and where."""


def apply(delivery: Delivery, people: Mapping[str, str] | None, rated: Rated) -> Delivery:
    """The delivery with pseudonyms instead of names; rated: of the deliveries before this one, completed here.

    Raises ``ValueError`` for an e-mail address when there is no list, and where two people have one pseudonym.
    """
    named = [row if row.annotator_id.isascii() else row._replace(annotator_id=_composed(row.annotator_id)) for row in delivery.rows]
    revised = [one._replace(annotator_id=_composed(one.annotator_id)) for one in delivery.revisions]
    delivery = replace(delivery, rows=named, revisions=revised)
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
    for row in delivery.rows:
        pseudonym = people.get(row.annotator_id)
        if pseudonym is not None:
            cell = (pseudonym, row.candidate_id, spelled(row.dimension), row.round.strip().lower() or PRODUCTION)
            name, place = rated.setdefault(cell, (row.annotator_id, delivery.at(row.number)))
            if name != row.annotator_id:
                raise ValueError(
                    f"{delivery.at(row.number)}: this and {place} rate the same, by two names with the pseudonym {pseudonym}; give "
                    "everybody a pseudonym of their own"
                )
        if pseudonym is not None or not row.annotator_id:
            rows.append(row._replace(annotator_id=people.get(row.annotator_id, "")))
        else:
            invalid.append(
                InvalidRow(row.number, "annotator-not-listed", "the annotator of this row is not on the list of pseudonyms; add the person")
            )
    listed = [one._replace(annotator_id=people[one.annotator_id]) for one in delivery.revisions if one.annotator_id in people]
    return replace(delivery, rows=rows, invalid=invalid, revisions=listed)


def _composed(name: str) -> str:
    """The name in one Unicode spelling: letters with accents can be one character or two."""
    return unicodedata.normalize("NFC", name)
