"""Where the weights of an editor are, and what names them: the commit on the Hub, or a fingerprint of a local directory."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING

from finetune.complete_folder import check_pipeline

if TYPE_CHECKING:
    from stages.editors.native.settings import NativeSettings

SAMPLES = 16
SAMPLE_BYTES = 65536


def identity(editor: str, hub: str, pipeline: str, settings: NativeSettings) -> dict[str, str]:
    """What the edits depend on, known before anything is loaded. Raises ``ValueError`` for a directory that :func:`check` refuses."""
    if settings.path is None:
        return {"hub": hub, "revision": settings.revision}
    folder = _directory(editor, settings.path)
    check(f"{editor}: settings.path", folder, pipeline)
    return {"fingerprint": fingerprint(folder)}


def locate(editor: str, hub: str, settings: NativeSettings) -> tuple[Path, str]:
    """The directory of the weights, downloaded where needed, and their revision: a commit of the Hub, or ``local-`` and a fingerprint.

    Raises ``ValueError`` saying what to do where there are none or the Hub does not give them.
    """
    if settings.path is not None:
        folder = _directory(editor, settings.path)
        return folder, f"local-{fingerprint(folder)}"
    from diffusers import DiffusionPipeline

    try:
        folder = Path(DiffusionPipeline.download(hub, revision=settings.revision))  # .../snapshots/<commit>
    except Exception as error:  # the Hub's, the network's and the cache's own kinds of errors
        raise ValueError(
            f"{editor}: the weights {hub} (revision {settings.revision}) cannot be had from the Hub; accept their terms at "
            f"https://huggingface.co/{hub} and log in with `hf auth login`, or name a directory that has them in settings.path "
            f"({first_line(error)})"
        ) from error
    return folder, folder.name


def check(what: str, folder: Path, pipeline: str) -> None:
    """Raises ``ValueError`` naming a file that is missing or damaged, or the other pipeline of diffusers that the directory is of.

    ``what``: how its sentence begins.
    """
    try:
        check_pipeline(folder, pipeline)
    except ValueError as error:
        raise ValueError(f"{what}: {error}") from None


def fingerprint(folder: Path) -> str:
    """`fingerprint_of` all files of a directory."""
    files = (path for path in folder.rglob("*") if path.is_file() and not _hidden(path.relative_to(folder)))
    return fingerprint_of({file.relative_to(folder).as_posix(): file for file in files})


def fingerprint_of(files: Mapping[str, Path]) -> str:
    """Short hash of names, sizes and samples of files: weights of many GB are not read in full."""
    digest = hashlib.sha256()
    for name, file in sorted(files.items()):
        size = file.stat().st_size
        digest.update(f"{name} {size}\n".encode())
        with file.open("rb") as stream:
            if size <= SAMPLES * SAMPLE_BYTES:
                digest.update(stream.read())
                continue
            for index in range(SAMPLES):
                stream.seek((size - SAMPLE_BYTES) * index // (SAMPLES - 1))
                digest.update(stream.read(SAMPLE_BYTES))
    return digest.hexdigest()[:16]


def first_line(error: Exception) -> str:
    """Of its message; its kind where it has none."""
    return next(iter(str(error).strip().splitlines()), type(error).__name__)


def _directory(editor: str, path: str) -> Path:
    folder = Path(path).expanduser()
    if not (folder / "model_index.json").is_file():
        raise ValueError(f"{editor}: settings.path: {path} has no model_index.json; give the directory of a diffusers pipeline")
    return folder


def _hidden(path: Path) -> bool:
    return any(part.startswith(".") for part in path.parts)
