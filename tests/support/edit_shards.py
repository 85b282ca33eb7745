"""A run whose filter step wrote shards of drawn edits: the real format, without scoring."""

from __future__ import annotations

import hashlib
import io
from collections.abc import Mapping, Sequence
from pathlib import Path

from PIL import Image

from stages.engine.rundir import Index, RunDir
from stages.shards import format as shards


def png(image: Image.Image) -> bytes:
    buffer = io.BytesIO()
    image.save(buffer, "png")
    return buffer.getvalue()


def sample(number: int, source: Image.Image, edited: Image.Image, instruction: str) -> shards.Sample:
    data = [png(source), png(edited)]
    facts = {"instruction": instruction, "scores": {"overall": {"mean": 0.0, "sigma": 1.0}}, "selection": {"rank": number}}
    hashes = [hashlib.sha256(one).hexdigest() for one in data]
    return shards.Sample(f"sample{number:03d}", data[0], hashes[0], data[1], hashes[1], facts)


def sharded_run(folder: Path, images: Sequence[tuple[Image.Image, Image.Image, str]], arms: Mapping[str, Sequence[int]]) -> RunDir:
    """`arms`: numbers of the images that a selection has; three samples per shard."""
    run = RunDir(folder)
    for arm, numbers in arms.items():
        where, written, tables = str(folder / "filter" / "shards" / arm), [], []
        Path(where).mkdir(parents=True, exist_ok=True)
        for first in range(0, len(numbers), 3):
            part = [sample(number, *images[number]) for number in numbers[first : first + 3]]
            shard, table = shards.write_shard(where, shards.shard_name(first // 3), part)
            written.append(shard)
            tables.append(table)
        import pyarrow as pa

        shards.publish(where, written, pa.concat_tables(tables).to_reader(), {"selection": arm, "key": f"key of {arm} {list(numbers)}"})
    results = {"selections": {arm: {"count": len(numbers)} for arm, numbers in arms.items()}}
    run.step("filter").publish(Index("filter", f"key {dict(arms)}", {}, {}, results=results))
    return run
