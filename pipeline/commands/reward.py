"""`pipeline reward`: import a published checkpoint, score single edits. Needs no run directory and no Ray."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import click

from pipeline import words

if TYPE_CHECKING:
    from reward import Score
    from reward.model.released import ImportNeeds


@click.group()
def reward() -> None:
    """Import a published checkpoint; score single edits.

    \b
    Example:
      pipeline reward score runs/demo/train-reward/model \\
        --source a.png --instruction "make it red" --edited b.png
    """


@reward.command(name="import")
@click.argument("checkpoint")
@click.argument("out", type=click.Path(path_type=Path))
@click.option(
    "--reference-prompts", required=True, metavar="PATH", help="Your clone of TIGER-AI-Lab/EditReward; its rubrics are read, not executed."
)
@click.option("--base", metavar="ID", help="Model whose config and tokenizer the checkpoint needs; default: those beside it.")
@click.option("--revision", help="Hub revision of the checkpoint.")
@click.option(
    "--positions", type=click.Choice(["flat", "mrope"]), default="flat", show_default=True, help="Published scores need flat positions."
)
@click.option("--image-area", metavar="LEAST-MOST", default="200704-200704", show_default=True, help="Pixels that images are resized to.")
def import_(
    checkpoint: str, out: Path, reference_prompts: str, base: str | None, revision: str | None, positions: str, image_area: str
) -> None:
    """Read a published EditReward checkpoint (directory or Hub id); write a reward model directory OUT.

    \b
    Example:
      pipeline reward import TIGER-Lab/EditReward-Qwen2.5-VL-7B \\
        models/editreward-7b --base Qwen/Qwen2.5-VL-7B-Instruct \\
        --reference-prompts ../EditReward
    """
    from typing import Any

    from reward.model.reference_prompts import read_reference_prompts, unknown_revision
    from reward.model.released import import_needs, import_released

    if out.exists() and (not out.is_dir() or any(out.iterdir())):
        raise ValueError(f"{out} is {'not empty' if out.is_dir() else 'a file'}; name a new directory")
    least, _, most = image_area.partition("-")
    if not (least.isdigit() and most.isdigit()):
        raise click.UsageError(f"--image-area {image_area}: expected two numbers of pixels, e.g. 200704-200704")
    kind: Any = positions
    prompts = read_reference_prompts(reference_prompts)
    facts = {"imported from": f"{Path(checkpoint).name}, a published EditReward checkpoint, with {positions} positions"}
    other = unknown_revision(prompts)
    if other is not None:
        facts["rubrics"] = f"of another revision than the published ones (hash {other})"
        click.echo(
            f"warning: the rubrics in {reference_prompts} have hash {other}, which is no published revision; scores will not be the "
            "published ones (restore the files, or name another clone)",
            err=True,
        )
    _check_room(import_needs(checkpoint, base=base, revision=revision), out)
    model = import_released(checkpoint, prompts=prompts, base=base, revision=revision, positions=kind, image_area=(int(least), int(most)))
    model.save(out, facts=facts)
    print(f"{out}: use it with `pipeline reward score {out} ...` or filter.model={out}")


def _check_room(needs: ImportNeeds, out: Path) -> None:
    """Print what an import needs; warn of little memory. Raises ``ValueError`` where a disk is too small."""
    import shutil

    from huggingface_hub.constants import HF_HUB_CACHE

    print(
        f"fetches {words.size(needs.fetched)}, reads {words.size(needs.read)}, writes {words.size(needs.written)}; "
        f"needs {words.size(needs.memory)} of memory",
        flush=True,
    )
    wanted: dict[int, tuple[Path, int]] = {}
    for place, size in ((Path(HF_HUB_CACHE), needs.fetched), (out, needs.written)):
        folder = next(parent for parent in (place.absolute(), *place.absolute().parents) if parent.exists())
        device = folder.stat().st_dev
        wanted[device] = (folder, wanted.get(device, (folder, 0))[1] + size)
    for folder, size in wanted.values():
        free = shutil.disk_usage(folder).free
        if free < size:
            raise ValueError(
                f"the disk of {folder} has {words.size(free)} free, and {words.size(size)} are needed; make room, or name an OUT on "
                "another disk (HF_HUB_CACHE moves what is fetched)"
            )
    available = _available_memory()
    if available is not None and available < needs.memory:
        click.echo(f"warning: {words.size(available)} of memory are available, so the import may be stopped by the system", err=True)


def _available_memory() -> int | None:
    """Bytes; None where the system is not Linux."""
    try:
        lines = Path("/proc/meminfo").read_text().splitlines()
    except OSError:
        return None
    return next((1024 * int(line.split()[1]) for line in lines if line.startswith("MemAvailable:")), None)


@reward.command(name="score")
@click.argument("model")
@click.option("--source", required=True, metavar="FILE", help="The image before the edit.")
@click.option("--instruction", required=True, help="The instruction given to the editor.")
@click.option("--edited", required=True, multiple=True, metavar="FILE", help="The edited image; repeat it to compare several.")
def score_(model: str, source: str, instruction: str, edited: tuple[str, ...]) -> None:
    """Read a reward model and edits of one source; print mean and sigma per dimension, best edit first.

    \b
    Example:
      pipeline reward score models/editreward-7b \\
        --source a.png --instruction "make it red" --edited b.png --edited c.png
    """
    import torch

    from reward import EditSample, RewardModel, SampleError, score

    on_gpu = torch.cuda.is_available()
    loaded = RewardModel.load(model, device="cuda" if on_gpu else "cpu", dtype=torch.bfloat16 if on_gpu else torch.float32)
    results = score(model=loaded, samples=[EditSample(Path(source), instruction, Path(file)) for file in edited])
    found: list[tuple[str, Score]] = []
    for file, result in zip(edited, results, strict=True):
        if isinstance(result, SampleError):
            raise ValueError(f"{file}: {result}") from result
        found.append((file, result))
    found.sort(key=lambda entry: (-entry[1].overall_mean, entry[0]))
    if loaded.origin is not None:
        print("the model's training: " + "; ".join(f"{name}: {text}" for name, text in loaded.origin.lines().items()))
    _print_scores(found)


def _print_scores(found: list[tuple[str, Score]]) -> None:
    from reward import better, preference

    best = found[0][1]
    for file, result in found:
        likert = result.likert or {}
        parts = [f"overall {result.overall_mean:.3f} ± {result.overall_sigma:.3f}"]
        for name, mean in result.mean.items():
            scale = f", {likert[name]:.2f} of the raters' scale" if name in likert else ""
            parts.append(f"{name} {mean:.3f} ± {result.sigma[name]:.3f}{scale}")
        print(f"{file}: {'; '.join(parts)}")
    for file, result in found[1:]:
        if result.tie_threshold is None:
            print(f"{found[0][0]} is better than {file} with P = {preference(best, result):.3f}")
        else:
            outcome = better(best, result)
            print(f"{found[0][0]} against {file}: better {outcome.a_better:.3f}, equal {outcome.tie:.3f}, worse {outcome.b_better:.3f}")
