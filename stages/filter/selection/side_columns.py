"""Columns beside the scores that quotas and clusters name: the kind of edit, its source, what the data set says of it.

| name | what it is |
| --- | --- |
| ``task``, ``language``, ``dataset``, ``licence``, ``instruction`` | the column of the scores |
| ``source`` | the hash of the source image |
| ``metadata.KEY`` | a key of the JSON text in ``metadata``; edits without it, or with null, have the value "", and some must have one |
| ``source_sha256``, ``edited_phash`` and the other hashes | the column of the scores |
| ``flag.NAME`` | yes or no: whether ``flags`` has the name of a gate, or ``contamination`` |
"""

from __future__ import annotations

from collections.abc import Collection

import pyarrow as pa

from stages.engine.tables import Tables, text
from stages.filter.schemas import SCORED

NAMED = ("task", "language", "dataset", "licence", "instruction")
METADATA = "metadata."
FLAG = "flag."
SOURCE_HASH = "source_sha256"
HASHES = tuple(name for name in SCORED.names if name.endswith(("_sha256", "_phash")))


def side_column(name: str, wanted_by: str, flags: Collection[str]) -> str:
    """The column of that name as an expression in SQL: text, or of :func:`is_hash` uint64. Raises ``ValueError`` where there is none.

    flags: names of those that the scores can have.
    """
    if name.startswith(METADATA) and len(name) > len(METADATA):
        key = name.removeprefix(METADATA).replace("~", "~0").replace("/", "~1")
        return f"coalesce(json_extract_string(metadata, {text('/' + key)}), '')"
    if name.startswith(FLAG):
        return f"if({has_any([name.removeprefix(FLAG)], wanted_by, flags)}, 'yes', 'no')"
    if name == "source":
        name = SOURCE_HASH
    if name not in (*NAMED, *HASHES):
        known = ", ".join([*NAMED, "source", "metadata.KEY", "flag.NAME", *HASHES])
        raise ValueError(f"{wanted_by}: there is no column {name}; it can be {known}")
    return name if is_hash(name) else f"coalesce({name}, '')"


def require_key(database: Tables, name: str, column: str, wanted_by: str) -> None:
    """Raise ``ValueError`` when ``name`` is a key of the metadata that no edit has; ``column``: of its values in the table ``ordered``."""
    if name.startswith(METADATA) and not database.number(f"SELECT count(*) FROM ordered WHERE {column} <> ''"):
        keys = database.table("SELECT DISTINCT unnest(json_keys(metadata)) AS key FROM scored ORDER BY key LIMIT 12")["key"].to_pylist()
        raise ValueError(f"{wanted_by}: no scored edit has {name}; keys of metadata are {', '.join(keys) or 'none'}")


def is_hash(name: str) -> bool:
    """Whether the column is of perceptual hashes."""
    return name in HASHES and pa.types.is_uint64(SCORED.field(name).type)


def has_any(names: Collection[str], wanted_by: str, flags: Collection[str]) -> str:
    """Whether an edit has one of these flags, as an expression. Raises ``ValueError`` for one that the scores cannot have."""
    for name in names:
        if not flags:
            off = "the scores of this run have no flags, because all gates are off; set their actions in filter.gates"
            raise ValueError(f"{wanted_by}: {off}")
        if name not in flags:
            there = ", ".join(sorted(flags))
            raise ValueError(f"{wanted_by}: there is no flag {name}, its gate is off, or it has no references; flags are {there}")
    return f"list_has_any(flags, [{', '.join(map(text, names))}])"
