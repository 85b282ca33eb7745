"""The plan of the candidates: which editors make them, with which settings and seeds, and what forbids it.

Seeds that are listed hold for every source. Others are drawn per source: the seed of a candidate is a hash of the run's seed, the source,
the editor, its settings and the index of the candidate. So no candidate depends on the other editors, or on how many there are.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

from stages.config import FlowConfig
from stages.editors import catalogue
from stages.editors.editor import EditorSpec
from stages.engine.config import Config
from stages.engine.ids import content_id, settings_hash
from stages.generate.config import EditorChoice, GenerateConfig

CANDIDATES = 12
"""Per source in the paper (section 2.1)."""
SEEDS = 2**31
"""Seeds are below it: every library and every server takes such a number."""


@dataclass(frozen=True)
class PlannedEditor:
    """An editor with its settings. ``key``: where the configuration names it; ``count``: candidates of each source."""

    key: str
    choice: EditorChoice
    spec: EditorSpec
    settings: Config
    settings_hash: str
    count: int

    @property
    def name(self) -> str:
        """The editor's name, and the settings that the configuration changes."""
        changed = ", ".join(f"{name} {value}" for name, value in self.choice.settings.items())
        return f"{self.label} ({changed})" if changed else self.label

    @property
    def label(self) -> str:
        """What tables call it."""
        return self.choice.label or self.spec.name

    @property
    def id(self) -> str:
        """The editor with its settings, as the log of units names it."""
        return f"{self.spec.name} {self.spec.revision} {self.settings_hash}"

    def seeds(self, run_seed: int, source_id: str) -> list[int]:
        """Seeds of the candidates of a source, all different."""
        if self.choice.seeds:
            return [*self.choice.seeds]
        seeds: list[int] = []
        for index in range(self.count):
            seed = drawn_seed(run_seed, source_id, self.spec.name, self.settings_hash, index)
            while seed in seeds:
                seed = (seed + 1) % SEEDS
            seeds.append(seed)
        return seeds

    def new_seed(self, run_seed: int, source_id: str, seed: int, number: int) -> int:
        """The seed that takes the place of a planned one whose edit is flagged. ``number``: from 1."""
        return drawn_seed(run_seed, source_id, self.spec.name, self.settings_hash, seed, number)

    def candidate_id(self, source_id: str, seed: int) -> str:
        """Id of the candidate with that planned seed."""
        return content_id("candidate", source_id, self.spec.name, self.spec.revision, seed, self.settings_hash)


def drawn_seed(run_seed: int, *of: str | int) -> int:
    """A seed that is a hash of its parts."""
    return int(content_id("seed", run_seed, *of), 16) % SEEDS


def planned(flow: FlowConfig) -> list[PlannedEditor]:
    """The plan. Raises ``ValueError`` naming the key of an unknown editor or setting, and of numbers that do not fit together."""
    config = flow.generate
    assert config is not None, "the configuration has candidates to make"
    counts = counts_of(config)
    editors = []
    for number, (choice, count) in enumerate(zip(config.editors, counts, strict=True)):
        key = f"generate.editors.{number}"
        spec = catalogue.find(choice.name, f"{key}.name")
        settings = catalogue.settings_of(spec, choice.settings, f"{key}.settings")
        try:
            identity = spec.identity(settings, flow)
        except ValueError as error:
            raise ValueError(catalogue.under_key(error, key)) from error
        editors.append(PlannedEditor(key, choice, spec, settings, settings_hash(identity), count))
    _reject_equal_candidates(editors)
    _reject_equal_labels(editors)
    total = sum(counts)
    if total < config.annotate:
        raise ValueError(
            f"generate.annotate: {config.annotate} of {total} candidates per source cannot be drawn; add editors or candidates"
        )
    return editors


def obstacles(editors: Sequence[PlannedEditor], config: GenerateConfig) -> list[str]:
    """Why the plan cannot be carried out here, a sentence each: licences that are not accepted, and what is not installed."""
    found = []
    for editor in editors:
        licence = editor.spec.licence
        if not licence.open and licence.name not in config.accept_licences:
            terms = f": {licence.terms.rstrip('.')}" if licence.terms else ""
            found.append(
                f"{editor.key}: {editor.spec.name} has the licence {licence.name!r}{terms}; accept it by naming it in "
                "generate.accept_licences, or leave the editor out"
            )
        if missing := editor.spec.missing(editor.settings):
            found.append(catalogue.under_key(f"{editor.spec.name} cannot run here: {missing}", editor.key))
    return list(dict.fromkeys(found))


def counts_of(config: GenerateConfig) -> list[int]:
    """Candidates of each source, by editor. Raises ``ValueError`` when the numbers do not fit together."""
    own = [len(choice.seeds) or choice.candidates for choice in config.editors]
    open_ones = [choice.name for choice, count in zip(config.editors, own, strict=True) if count is None]
    total = config.candidates_per_source or (CANDIDATES if open_ones else sum(count or 0 for count in own))
    left = total - sum(count or 0 for count in own)
    if left < len(open_ones) or (left and not open_ones):
        raise ValueError(
            f"generate.candidates_per_source: {total} cannot be met, since the seeds and candidates of generate.editors make "
            f"{total - left}, and the editors without a number of their own are {len(open_ones)}; change one of them"
        )
    if open_ones and left % len(open_ones):
        raise ValueError(
            f"generate.candidates_per_source: {left} candidates cannot be shared evenly by {len(open_ones)} editors "
            f"({', '.join(open_ones)}); give one of them a number under candidates"
        )
    return [count if count is not None else left // len(open_ones) for count in own]


def _reject_equal_candidates(editors: Sequence[PlannedEditor]) -> None:
    made = Counter((editor.spec.name, editor.settings_hash, seed) for editor in editors for seed in editor.choice.seeds or ["drawn"])
    for (name, _, seed), times in made.most_common(1):
        if times > 1:
            what = "drawn seeds" if seed == "drawn" else f"seed {seed}"
            raise ValueError(f"generate.editors: {name} with {what} is there {times} times and would make equal candidates; name it once")


def _reject_equal_labels(editors: Sequence[PlannedEditor]) -> None:
    first: dict[str, PlannedEditor] = {}
    for editor in editors:
        other = first.setdefault(editor.label, editor)
        if (other.spec.name, other.settings_hash) != (editor.spec.name, editor.settings_hash):
            what = "other settings" if other.spec.name == editor.spec.name else f"the label of {other.spec.name}"
            raise ValueError(
                f"{editor.key}: {editor.label} is there with {what} in {other.key}, and the draw and all tables would count both as one "
                f"editor; give one of them a name of its own under label, e.g. label: {editor.spec.name}-2"
            )
