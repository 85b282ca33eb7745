"""The run directory: one folder per step, each with an index that is published last.

``runs/<name>/<step>/index.json`` lists what the step made (files, rows, hashes), its inputs and its settings. A step is up to date when
its index has the wanted key and every listed file has its hash (``hashed_files``). The index and the listed files depend on content only;
times, machines and versions go to ``manifest.json`` and to the unit logs.
"""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
import shutil
import sys
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Self, TypedDict, Unpack

import pyarrow as pa

from stages.engine import hashed_files, storage
from stages.engine.contracts import SCHEMAS
from stages.engine.ids import settings_hash
from stages.engine.steps import COMMANDS, REMEDIES, RUN_AGAIN


@dataclass(frozen=True)
class Part:
    """One published table file of an artifact."""

    path: str
    rows: int
    sha256: str


class Tables(TypedDict, total=False):
    """Tables that a step made, in parts, and its counted rows; ``quarantined``: rows by reason."""

    artifacts: dict[str, list[Part]]
    counts: dict[str, int]
    quarantined: dict[str, int]


class Content(Tables, total=False):
    """What a step made: tables, sha256 of every other file, and a few numbers to show."""

    files: dict[str, str]
    results: dict[str, Any]


@dataclass(frozen=True)
class Index:
    """From which inputs and with which settings a step was made, and its :class:`Content`."""

    step: str
    key: str
    settings: dict[str, Any]
    inputs: dict[str, str]
    artifacts: dict[str, list[Part]] = field(default_factory=dict)
    files: dict[str, str] = field(default_factory=dict)
    counts: dict[str, int] = field(default_factory=dict)
    quarantined: dict[str, int] = field(default_factory=dict)
    results: dict[str, Any] = field(default_factory=dict)

    @property
    def fingerprint(self) -> str:
        """Hash of the content that later steps read. Settings are not part of it."""
        content = {name: [part.sha256 for part in parts] for name, parts in self.artifacts.items()}
        return settings_hash(content, self.files)

    def to_json(self) -> dict[str, Any]:
        """Plain values for ``index.json``."""
        artifacts = {
            name: {"contract": _contract(name), "rows": sum(p.rows for p in parts), "parts": [vars(p) for p in parts]}
            for name, parts in self.artifacts.items()
        }
        return {**vars(self), "artifacts": artifacts}

    @classmethod
    def from_json(cls, value: dict[str, Any]) -> Self:
        """Inverse of :meth:`to_json`."""
        parts = {name: [Part(**part) for part in entry["parts"]] for name, entry in value["artifacts"].items()}
        return replace(cls(**value), artifacts=parts)


@dataclass(frozen=True)
class StepFolder:
    """The folder of one step of a run."""

    path: Path
    name: str

    def index(self) -> Index | None:
        """The published index, or None before the step is done."""
        path = self.path / "index.json"
        if not path.exists():
            return None
        try:
            return Index.from_json(storage.read_checked(path, REMEDIES.get(self.name, RUN_AGAIN)))
        except (KeyError, TypeError, AttributeError) as error:
            remedy = REMEDIES.get(self.name, "delete the step's folder")
            raise ValueError(f"{path} does not have the layout of a step index ({error}); {remedy}") from None

    def published(self) -> int:
        """When the index was published, in nanoseconds since 1970; 0 before the step is done."""
        path = self.path / "index.json"
        return path.stat().st_mtime_ns if path.exists() else 0

    def begin(self, *, settings: Mapping[str, Any], inputs: Mapping[str, str], force: bool) -> tuple[Index, Index | None]:
        """Start the step: an index without content for :meth:`publish`, and the published index if the step is up to date.

        Raises ``ValueError`` when the step was made with other settings or inputs and ``force`` is off: nothing finished is overwritten
        without ``--force``.
        """
        key = settings_hash(dict(settings), dict(inputs), self.name)
        index = self.index()
        draft = Index(self.name, key, dict(settings), dict(inputs))
        if index is not None and index.key == key and not self.damage(index):
            return draft, index
        if index is not None and index.key != key and not force:
            raise ValueError(
                f"step {self.name} in {self.path.parent} was made with {_difference(index, settings, inputs)}; "
                "repeat with --force to redo what depends on the change, or choose another --run directory"
            )
        self.path.mkdir(parents=True, exist_ok=True)
        _remove(self.path.rglob(f"{storage.TEMPORARY}*"))
        return draft, None

    def remove_scratch(self) -> None:
        """Remove what commands that were killed were sorting or writing, but for units. For whoever holds the run directory."""
        for folder in ("", "*/"):
            _remove(self.path.glob(f"{folder}{storage.TEMPORARY}*"))

    def publish(self, index: Index, *, keep: Collection[str] = (), **content: Unpack[Content]) -> Index:
        """Publish the index with its content, which completes the step, and remove unit folders that it does not list.

        keep: keys of units that stay although the index does not list them, because a later run may use them.
        """
        index = replace(index, **content)
        storage.publish_checked(self.path / "index.json", index.to_json())
        hashed_files.remember(self.path, _hashes(index).items())
        listed = {Path(part.path).parent.name for parts in index.artifacts.values() for part in parts}
        for folder in (self.path / "units").glob("*"):
            if folder.name not in listed and folder.name not in keep:
                shutil.rmtree(folder, ignore_errors=True)
        return index

    def damage(self, index: Index) -> str | None:
        """The first file of the index that is missing or changed, or None."""
        return next((name for name, sha256 in _hashes(index).items() if not self.has(name, sha256)), None)

    def has(self, name: str, sha256: str) -> bool:
        """Whether the folder has a file of that name and content; a file that was hashed before is known by size and times."""
        return hashed_files.has(self.path, name, sha256)

    def read(self, artifact: str, columns: list[str] | None = None, schema: pa.Schema | None = None) -> pa.Table:
        """All rows of an artifact in the order of its parts. Raises ``ValueError`` before the step is done."""
        return self.read_table(artifact, self.require().artifacts.get(artifact, []), columns, schema)

    def column(self, artifact: str, key: str, name: str) -> dict[str, Any]:
        """A column of an artifact by another: ``column("sources", "source_id", "task")`` is the task of every source."""
        return dict(zip(*(column.to_pylist() for column in self.read(artifact, [key, name]).columns), strict=True))

    def read_table(
        self, artifact: str, parts: Sequence[Part], columns: Sequence[str] | None = None, schema: pa.Schema | None = None
    ) -> pa.Table:
        """Rows of the given parts in their order, cast to the artifact's schema, or to a ``schema`` that completes it: further columns of
        the files are left out. The index need not be published."""
        schema = schema or SCHEMAS[artifact]
        if columns is not None:
            schema = pa.schema([schema.field(name) for name in columns], metadata=schema.metadata)
        tables = [storage.read_table(self.path / part.path, schema.names).cast(schema) for part in parts]
        return pa.concat_tables(tables) if tables else schema.empty_table()

    def rows(self, artifact: str, columns: Sequence[str], batch_size: int = 16) -> Iterator[dict[str, Any]]:
        """Rows of an artifact one by one; ``batch_size`` of them are in memory together, for columns with images, and their row group."""
        for part in self.require().artifacts.get(artifact, []):
            for batch in storage.read_batches(self.path / part.path, batch_size, columns):
                yield from batch.to_pylist()

    def require(self) -> Index:
        """The index. Raises ``ValueError`` naming the command to run when the step is not done."""
        index = self.index()
        if index is None:
            raise ValueError(f"step {self.name} is not done in {self.path.parent}; run `pipeline {self._command}` first")
        return index

    def sound(self, *, files: bool = True) -> Index:
        """The index, while the tables that it lists, and its other ``files``, are as they were published.

        Raises ``ValueError`` naming the command to run when one is missing or changed, and when the step is not done."""
        index = self.require()
        damaged = self.damage(index if files else replace(index, files={}))
        if damaged is not None:
            raise ValueError(f"{self.path / damaged} is missing or changed since it was published; run `pipeline {self._command}` again")
        return index

    @property
    def _command(self) -> str:
        return COMMANDS.get(self.name, f"run {self.name}")


def _remove(leftovers: Iterable[Path]) -> None:
    for leftover in leftovers:
        if leftover.is_dir():
            shutil.rmtree(leftover, ignore_errors=True)
        else:
            leftover.unlink(missing_ok=True)


class RunDir:
    """``runs/<name>``. As a context manager it locks the directory against a second writer."""

    def __init__(self, path: str | Path) -> None:
        if "://" in str(path):
            raise ValueError(f"--run {path}: a run directory must be on a (shared) file system; inputs and shards may be URLs")
        self.path = Path(path).absolute()
        self._lock: Any = None
        self._new: list[Path] = []  # folders that this command makes: the run directory, then those above it

    def step(self, name: str) -> StepFolder:
        """Folder of a step (it need not exist yet)."""
        return StepFolder(path=self.path / name, name=name)

    def __enter__(self) -> Self:
        self._new = [path for path in (self.path, *self.path.parents) if not path.exists()]
        try:
            self.path.mkdir(parents=True, exist_ok=True)
            self._lock = open(self.path / ".lock", "a+")
        except (FileExistsError, FileNotFoundError, NotADirectoryError, PermissionError) as error:
            raise ValueError(f"--run {self.path}: not writable ({error.strerror}); choose another directory") from None
        try:
            fcntl.flock(self._lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            self._lock.seek(0)
            holder = self._lock.read().strip() or "another process"
            self._lock.close()
            raise ValueError(f"run directory {self.path} is in use by {holder}; wait for it or choose another --run") from None
        self._lock.truncate(0)
        self._lock.write(f"process {os.getpid()} on {os.uname().nodename}")
        self._lock.flush()
        return self

    def __exit__(self, *_: object) -> None:
        """Unlock; a directory that this command made and wrote no work into goes again."""
        if self._new and not any(path.is_file() and path.name not in (".lock", "config.yaml") for path in self.path.rglob("*")):
            shutil.rmtree(self.path, ignore_errors=True)  # on a network disk the open lock file stays for a moment
            for path in self._new[1:]:
                with contextlib.suppress(OSError):  # another run is in it
                    path.rmdir()
        self._lock.close()

    def note(self, step: str, facts: Mapping[str, Any]) -> None:
        """Record times, machine and versions of a step in the manifest."""
        manifest = self.manifest()
        manifest.setdefault("steps", {})[step] = dict(facts)
        storage.publish_checked(self.path / "manifest.json", manifest)

    def manifest(self) -> dict[str, Any]:
        """The manifest so far; empty before the first step, and with a warning where it is damaged: no result depends on it."""
        path = self.path / "manifest.json"
        if not path.exists():
            return {}
        remedy = "the times and versions of earlier steps are lost"
        try:
            found = storage.read_checked(path, remedy)
            if not isinstance(found.get("steps", {}), dict):
                raise ValueError(f"{path} is damaged; {remedy}")
        except ValueError as error:
            print(f"warning: {error}", file=sys.stderr, flush=True)
            return {}
        return found

    def artifact_hashes(self) -> dict[str, str]:
        """sha256 of every file that a repeated run must reproduce: the indexes and the files that they list."""
        hashes: dict[str, str] = {}
        for path in sorted(self.path.glob("*/index.json")):
            folder = self.step(path.parent.name)
            index = folder.require()
            hashes[f"{folder.name}/index.json"] = storage.sha256_of(path)
            hashes |= {f"{folder.name}/{name}": storage.sha256_of(folder.path / name) for name in _hashes(index)}
        return hashes


def _hashes(index: Index) -> dict[str, str]:
    """sha256 of every file that an index lists, by its path in the step's folder."""
    return {part.path: part.sha256 for parts in index.artifacts.values() for part in parts} | index.files


def _contract(artifact: str) -> str:
    return (SCHEMAS[artifact].metadata or {})[b"contract"].decode()


def _difference(index: Index, settings: Mapping[str, Any], inputs: Mapping[str, str]) -> str:
    """What changed since the index was made, as a phrase. Settings come first: inputs made from settings change with them."""
    old, new = _flat(index.settings), _flat(settings)
    changed = sorted(key for key in old.keys() | new.keys() if old.get(key) != new.get(key))
    if not changed:
        others = [name for name, fingerprint in inputs.items() if index.inputs.get(name) != fingerprint]
        return f"another version of its input {others[0]}" if others else "an earlier version of the step"
    key = changed[0]
    more = f" and {len(changed) - 1} more" if len(changed) > 1 else ""
    return f"other settings ({key}: {old.get(key)!r} then, {new.get(key)!r} now{more})"


def _flat(value: Any, prefix: str = "") -> dict[str, Any]:
    plain = json.loads(json.dumps(value))
    if not isinstance(plain, (dict, list)):
        return {prefix: plain}
    items = plain.items() if isinstance(plain, dict) else enumerate(plain)
    flat: dict[str, Any] = {}
    for key, entry in items:
        flat |= _flat(entry, f"{prefix}.{key}" if prefix else str(key))
    return flat
