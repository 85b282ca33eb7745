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
from stages.datasets.config import EditsInput, WorldConfig, WorldEdits
from stages.engine.config import BenchmarkName, Config, RayConfig
from stages.filter.gates.config import GatesConfig
from stages.filter.selection.config import SelectionConfig
from stages.generate.config import GenerateConfig


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


class BenchmarkConfig(Config):
    """A published benchmark, read from a local copy in its own layout (docs/benchmarks.md)."""

    name: BenchmarkName = Field(description="Which benchmark")
    path: str = Field(description="Folder of the local copy")
    revision: str = Field(min_length=1, description="Revision of the copy, e.g. its Hub commit; recorded beside the figures")


class EvaluateRewardConfig(Config):
    """Held-out evaluation of the reward model, and published benchmarks where a copy is at hand."""

    model: str | None = Field(None, description="Reward model directory; default: the one trained in this run")
    bootstrap: int = Field(1000, ge=100, description="Bootstrap resamples (clustered by source) for intervals")
    workers: int = Field(2, ge=1, description="Ray actors")
    unit_sources: int = Field(50, ge=1, description="Source groups per unit of resume")
    benchmarks: tuple[BenchmarkConfig, ...] = Field((), description="Benchmarks to score")
    compare_with: str | None = Field(None, description="Directory of another reward model to compare with on the benchmarks")

    @model_validator(mode="after")
    def _benchmarks_fit(self) -> EvaluateRewardConfig:
        names = [benchmark.name for benchmark in self.benchmarks]
        if len(set(names)) < len(names):
            raise ValueError(f"a benchmark is there twice: {', '.join(sorted(names))}")
        if self.compare_with is not None and not names:
            raise ValueError("compare_with compares two models on benchmarks: list benchmarks, or leave it out")
        return self


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


class EvaluateEditorConfig(Config):
    """Held-out benchmark of the base editor and of every arm."""

    items: int = Field(160, ge=2, description="Benchmark scenes")
    judge: Literal["world"] = Field("world", description="Who judges: the world's programmatic judge")
    reference_arm: str = Field("full", description="Arm that the differences are taken against")
    bootstrap: int = Field(10_000, ge=100, description="Paired bootstrap resamples")
    workers: int = Field(2, ge=1, description="Ray actors")


class FlowConfig(Config):
    """The whole flow."""

    name: str = Field(pattern=r"^\w[\w.-]*$", description="Name of the run: the default run directory is runs/<name>")
    seed: int = Field(0, ge=0, description="Seed of everything random; the seeds of models and trainings are counted from it")
    ray: RayConfig = Field(RayConfig(), description="Local Ray cluster")
    world: WorldConfig | None = Field(None, description="The built-in toy data set, where it is used")
    generate: GenerateConfig | None = Field(None, description="Candidates")
    annotate: AnnotateConfig = Field(AnnotateConfig(), description="Ratings")
    preferences: PreferencesConfig = Field(PreferencesConfig(), description="Preference pairs")
    reward: TrainRewardConfig = Field(TrainRewardConfig(), description="Reward model")
    evaluate_reward: EvaluateRewardConfig = Field(EvaluateRewardConfig(), description="Its evaluation")
    filter: FilterConfig | None = Field(None, description="Scoring, selection, shards")
    finetune: FinetuneConfig | None = Field(None, description="Editor arms")
    evaluate_editor: EvaluateEditorConfig | None = Field(None, description="Editor benchmark")
