"""Configuration of the steps. The flow composes what `reward` and `finetune` own; a YAML file reads like an experiment section.

Nothing heavier than pydantic is imported here, so that the command line's help is quick.
"""

from __future__ import annotations

from typing import Literal

from pydantic import Field, model_validator

from finetune.config import BASE_TRAINING, EditorConfig, EditorTrainingConfig
from reward.config import TOKEN_BUDGET, RewardConfig
from stages.annotate.config import AnnotateConfig
from stages.contamination.config import ContaminationConfig
from stages.datasets.config import EditsInput, WorldEdits
from stages.engine.config import Config, RayConfig
from stages.evaluate_editor.config import EvaluateEditorConfig
from stages.evaluate_reward.config import EvaluateRewardConfig
from stages.filter.gates.config import GatesConfig
from stages.filter.selection.config import SelectionConfig

EditKind = Literal["recolour", "remove", "background", "add", "replace", "resize", "move", "style"]
ALL_KINDS: tuple[EditKind, ...] = ("recolour", "remove", "background", "add", "replace", "resize", "move", "style")


class WorldConfig(Config):
    """The embedded procedural world: what it draws."""

    size: int = Field(32, ge=16, description="Side of the images in pixels")
    kinds: tuple[EditKind, ...] = Field(ALL_KINDS, min_length=1, description="Edit kinds that occur")
    jitter: float = Field(0.0, ge=0, description="Jitter of object positions in world units (the image is 32 units wide)")


class WorldSources(Config):
    """Sources drawn by the embedded world."""

    dataset: Literal["world"]
    train: int = Field(1200, ge=2, description="Source groups to rate for training")
    validation: int = Field(150, ge=2, description="Held-out source groups")


class SourceTable(Config):
    """One table of sources: JSON Lines with the columns image, instruction and optionally id, task, language, split."""

    name: str = Field(description="Name of the data set")
    path: str = Field(description="The .jsonl file; image paths in it are relative to its folder")
    expected: int | None = Field(None, ge=1, description="Rows it should have; another number is refused")


class TableSources(Config):
    """Sources of your own."""

    dataset: Literal["table"]
    tables: tuple[SourceTable, ...] = Field(min_length=1, description="The tables, in order")
    validation_share: float = Field(0.1, gt=0, lt=1, description="Share of split groups held out where a row names no split")


class EditorChoice(Config):
    """One editor and its seeds."""

    name: str = Field(description="Name of the editor, e.g. world/quill")
    seeds: tuple[int, ...] = Field((0, 1), min_length=1, description="One candidate per seed")


class GenerateConfig(Config):
    """Candidates: every editor edits every source (paper 2.1: 12 candidates, 7 annotated)."""

    sources: WorldSources | TableSources = Field(
        WorldSources(dataset="world"), discriminator="dataset", description="Where sources come from"
    )
    editors: tuple[EditorChoice, ...] = Field(min_length=1, description="Editors and their seeds")
    annotate: int = Field(7, ge=2, description="Candidates per source that are sampled for annotation")
    unit_sources: int = Field(150, ge=1, description="Sources per unit of resume")
    workers: int = Field(2, ge=1, description="Ray actors")


class PreferencesConfig(Config):
    """Preference pairs from ratings."""

    ties: Literal["opposed", "all", "soft", "off"] = Field(
        "opposed",
        description="Overall ties whose dimensions disagree (paper 3.3): opposed: two pairs with opposite labels; all: every overall tie "
        "so, as the released data; soft: one pair with target 0.5; off: a tie",
    )


class TrainRewardConfig(RewardConfig):
    """The reward model and its training (model, loss, pretraining, training are the library's)."""

    caption_items: int = Field(4000, ge=0, description="World items (source, exact edit, instruction) for the stand-in; no ratings")
    workers: int = Field(1, ge=1, description="Processes of the Ray Train worker group")


class ShardsConfig(Config):
    """Webdataset shards."""

    samples_per_shard: int = Field(1000, ge=1, description="Samples in one tar at most")
    bytes_per_shard: int | None = Field(
        None, ge=1, description="Bytes of images in one tar at most, where that comes first; a larger sample has a tar of its own"
    )
    shuffle_seed: int | None = Field(0, description="Order of the samples; null keeps the order of the selection (best first)")
    target: str | None = Field(None, description="Folder or URL to write to; default: the run directory")


class FilterConfig(Config):
    """Score once, select, write shards (paper 4.4)."""

    input: EditsInput = Field(description="The noisy edits")
    model: str | None = Field(None, description="Reward model directory; default: the one trained in this run")
    selections: tuple[SelectionConfig, ...] = Field(min_length=1, description="What to keep; each becomes a set of shards")
    gates: GatesConfig = Field(GatesConfig(), description="Checks before scoring (docs/gates.md)")
    contamination: ContaminationConfig = Field(ContaminationConfig(), description="Edits whose sources a benchmark or the model knows")
    shards: ShardsConfig = Field(ShardsConfig(), description="Shard layout")
    token_budget: int = Field(TOKEN_BUDGET, ge=1, description="Tokens in one forward pass, formed inside a unit")
    unit_rows: int = Field(500, ge=1, description="Edits per unit of resume")
    inspect_workers: int = Field(2, ge=1, description="Ray actors that decode and measure before scoring")
    workers: int = Field(2, ge=1, description="Ray actors that score")
    num_gpus: float = Field(0.0, ge=0, description="GPUs per scoring actor; 0: one each, or an even share where there are fewer GPUs")
    prepare_workers: int | None = Field(
        None, ge=0, description="Tasks per slice in work that read, decode and resize; 0: its actor does; default: 2 with GPUs, else 0"
    )
    note: str = Field("", description="Remark shown wherever these scores are shown")

    @model_validator(mode="after")
    def _distinct_names(self) -> FilterConfig:
        names = [selection.name for selection in self.selections]
        if len(set(names)) < len(names):
            raise ValueError(f"two selections have the same name: {', '.join(sorted(names))}")
        for place, selection in enumerate(self.selections):
            if selection.like is not None and selection.like not in names[:place]:
                raise ValueError(f"selection {selection.name} is like {selection.like}, which is not listed before it")
        return self


class BaseTraining(Config):
    """Stand-in for the editor's pretraining: the same network trained on another noisy set."""

    edits: WorldEdits = Field(WorldEdits(dataset="world-edits", split="base"), description="Its noisy set, disjoint from all others")
    training: EditorTrainingConfig = Field(BASE_TRAINING, description="Optimisation")


class FinetuneConfig(Config):
    """Arms: every selection fine-tunes a copy of the base editor with the same steps."""

    editor: EditorConfig = Field(EditorConfig(), description="Codec, text encoder, denoiser, objective, sampler")
    base: BaseTraining = Field(BaseTraining(), description="Stand-in for pretraining")
    training: EditorTrainingConfig = Field(EditorTrainingConfig(), description="Optimisation of every arm")
    arms: tuple[str, ...] = Field(("full", "selected", "random", "naive"), min_length=1, description="Selections to train on")
    parallel_arms: int = Field(2, ge=1, description="Arms trained at the same time")
    workers: int = Field(1, ge=1, description="Processes per training group")


class FlowConfig(Config):
    """The whole flow."""

    name: str = Field(pattern=r"^\w[\w.-]*$", description="Name of the run: the default run directory is runs/<name>")
    seed: int = Field(0, ge=0, description="Seed of everything random; the seeds of models and trainings are counted from it")
    ray: RayConfig = Field(RayConfig(), description="Local Ray cluster")
    world: WorldConfig | None = Field(None, description="The embedded world, where it is used")
    generate: GenerateConfig | None = Field(None, description="Candidates")
    annotate: AnnotateConfig = Field(AnnotateConfig(), description="Ratings")
    preferences: PreferencesConfig = Field(PreferencesConfig(), description="Preference pairs")
    reward: TrainRewardConfig = Field(TrainRewardConfig(), description="Reward model")
    evaluate_reward: EvaluateRewardConfig = Field(EvaluateRewardConfig(), description="Its evaluation")
    filter: FilterConfig | None = Field(None, description="Scoring, selection, shards")
    finetune: FinetuneConfig | None = Field(None, description="Editor arms")
    evaluate_editor: EvaluateEditorConfig | None = Field(None, description="Editor benchmark")
