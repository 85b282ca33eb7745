"""Passes: out of memory and back, what is shared between trees, what a pass costs, how prepared edits travel."""

from __future__ import annotations

import io
import pickle
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from PIL import Image
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.utils.flop_counter import FlopCounterMode

import reward.model.model
from reward import EditSample, RewardModel, RewardModelConfig, SampleError, Score, score
from reward.config import BackboneConfig, PresentationConfig
from reward.inference.compute import PassCost, peak_of
from reward.inference.passes import Inference, MemoryNeedError, PassStats
from reward.inference.scorer import score_prepared
from reward.inputs.processor import Processor
from reward.model.backbone import encode

torch.set_num_threads(1)

WORDS = ["make the red circle blue", "put a green cross on the square", "remove the circle"]
KINDS = [("images", "words"), ("clip", "words"), ("images", "rubric_first"), ("images", "reference")]


def png(seed: int, size: tuple[int, int] = (20, 20)) -> bytes:
    buffer = io.BytesIO()
    Image.fromarray(np.random.default_rng(seed).integers(0, 256, (size[1], size[0], 3), np.uint8)).save(buffer, "PNG")
    return buffer.getvalue()


def make(layout: str = "images", prompt: str = "words", **backbone: Any) -> RewardModel:
    presentation = PresentationConfig.model_validate({"layout": layout, "prompt": prompt, "image_area": 1024, "min_image_area": 64})
    return RewardModel.from_config(RewardModelConfig(presentation=presentation, backbone=BackboneConfig(**backbone)), WORDS, seed=1).eval()


class SmallMemory:
    """Replaces the model's ``encode`` and raises what CUDA raises for rows of more than ``tokens``."""

    def __init__(self, tokens: int) -> None:
        self.tokens = tokens
        self.tried: list[int] = []

    def __call__(self, backbone: Any, batch: Any, **how: Any) -> Any:
        self.tried.append(len(batch.input_ids))
        if len(batch.input_ids) > self.tokens:
            raise torch.OutOfMemoryError("CUDA out of memory")
        return encode(backbone, batch, **how)


def samples() -> list[EditSample]:
    """Three sources with three edits each, then nine single ones."""
    groups = [EditSample(png(s), WORDS[s], png(10 * s + e)) for s in range(3) for e in range(1, 4)]
    return groups + [EditSample(png(100 + s), WORDS[s % 3], png(200 + s)) for s in range(9)]


def close(found: list[Any], expected: list[Any]) -> bool:
    pairs = [(a.overall_mean - b.overall_mean, a.overall_sigma - b.overall_sigma) for a, b in zip(found, expected, strict=True)]
    return bool(np.abs(pairs).max() < 1e-5)


@pytest.mark.parametrize("kind", KINDS)
def test_passes_that_do_not_fit_are_halved_and_the_scores_stay(kind: tuple[str, str], monkeypatch: pytest.MonkeyPatch) -> None:
    model = make(*kind)
    expected = score(model=model, samples=samples())
    one = max(len(model.prepare(source=s.source, candidates=[s.edited], instruction=s.instruction).tree) for s in samples())
    memory = SmallMemory(max(one, len(model.prompt.root)))
    monkeypatch.setattr(reward.model.model, "encode", memory)
    assert close(score(model=model, samples=samples()), expected)
    assert max(memory.tried) > memory.tokens


def test_what_did_not_fit_is_not_tried_again(monkeypatch: pytest.MonkeyPatch) -> None:
    model = make()
    spent: list[PassStats] = []
    inference = Inference(model, token_budget=400)
    memory = SmallMemory(150)
    monkeypatch.setattr(reward.model.model, "encode", memory)

    first = list(score_prepared(inference=inference, prepared=prepared_by(model), on_pass=spent.append))
    failed = sum(tokens > 150 for tokens in memory.tried)
    assert failed and sum(entry.out_of_memory for entry in spent) == failed and sum(entry.edits for entry in spent) == len(first)
    passes = [tokens for tokens in memory.tried if tokens <= 150]
    memory.tried.clear()
    assert list(score_prepared(inference=inference, prepared=prepared_by(model))) == first
    assert memory.tried == passes  # the same passes, without the failures before them: what is remembered changes no score


def test_samples_are_prepared_while_another_thread_has_the_model(monkeypatch: pytest.MonkeyPatch) -> None:
    """Else the model waits for every new slice."""
    model = make()
    inference = Inference(model, token_budget=400)
    alone = list(score_prepared(inference=inference, prepared=prepared_by(model)))
    computing, go_on, preparing = threading.Event(), threading.Event(), threading.Event()

    def slow(*given: Any, **named: Any) -> Any:
        computing.set()
        assert go_on.wait(120)
        return encode(*given, **named)

    def told() -> Iterator[Any]:
        preparing.set()
        yield from prepared_by(model)

    monkeypatch.setattr(reward.model.model, "encode", slow)
    with ThreadPoolExecutor(2) as threads:
        one = threads.submit(lambda: list(score_prepared(inference=inference, prepared=prepared_by(model))))
        try:
            assert computing.wait(120)
            other = threads.submit(lambda: list(score_prepared(inference=inference, prepared=told())))
            assert preparing.wait(120)
        finally:
            go_on.set()
        assert one.result() == other.result() == alone


def prepared_by(model: RewardModel) -> list[Any]:
    return [model.prepare(source=s.source, candidates=[s.edited], instruction=s.instruction) for s in samples()]


def test_one_edit_too_large_costs_no_other(monkeypatch: pytest.MonkeyPatch) -> None:
    """It is in a tree with two edits that fit, beside a file that is no image."""
    model = make()
    small = [EditSample(png(0, (10, 10)), WORDS[0], png(seed, (10, 10))) for seed in (1, 2)]
    large = EditSample(png(0, (10, 10)), WORDS[0], png(3, (32, 32)))
    damaged = EditSample(png(5), WORDS[1], b"none")
    whole = [small[0], large, small[1], damaged, EditSample(png(6, (10, 10)), WORDS[2], png(7, (10, 10)))]
    expected = score(model=model, samples=whole)
    limit = len(model.prepare(source=large.source, candidates=[large.edited], instruction=WORDS[0]).tree) - 1
    monkeypatch.setattr(reward.model.model, "encode", SmallMemory(limit))
    found = score(model=model, samples=whole)
    assert isinstance(found[1], MemoryNeedError) and f"the {limit + 1} tokens of this one edit do not fit" in str(found[1])
    assert isinstance(found[3], SampleError) and "cannot be decoded" in str(found[3])
    kept = [0, 2, 4]
    assert close([found[k] for k in kept], [expected[k] for k in kept]) and all(isinstance(found[k], Score) for k in kept)


@pytest.mark.parametrize("kind", KINDS)
def test_an_image_is_encoded_once_whatever_trees_show_it(kind: tuple[str, str]) -> None:
    model = make(*kind)
    sets = [model.prepare(source=png(0), candidates=[png(1), png(2)], instruction=words) for words in WORDS[:2]]
    sets.append(model.prepare(source=png(1), candidates=[png(0)], instruction=WORDS[2]))
    batch = model.collate(sets)
    pairs = kind[0] == "clip"
    assert sum(len(stack) for stack in batch.stacks) == 3  # three pictures; as clips: (0, 1), (0, 2), (1, 0)
    assert len(batch.placeholder) == len(batch.feature) and (pairs or len(batch.feature) > int(batch.feature.max()) + 1)
    together = model(batch).mean
    alone = torch.cat([model(model.collate([one])).mean for one in sets])
    assert (together - alone).abs().max() < 1e-5


@pytest.mark.parametrize("kind", KINDS)
def test_prepared_edits_travel_and_separate(kind: tuple[str, str], tmp_path: Path) -> None:
    model = make(*kind)
    model.save(tmp_path)
    processor = Processor.load(tmp_path)
    mine = model.prepare(source=png(0), candidates=[png(1), png(2, (24, 16))], instruction=WORDS[0])
    sent = pickle.loads(pickle.dumps(processor.prepare(source=png(0), candidates=[png(1), png(2, (24, 16))], instruction=WORDS[0])))
    assert sent.contents == mine.contents and sent.instruction == mine.instruction and sent.tree.items == mine.tree.items
    with torch.no_grad():
        expected = model(model.collate([mine])).mean
        assert torch.equal(model(model.collate([sent])).mean, expected)
        apart = processor.separated(sent)
        assert [len(one.tree.reads) for one in apart] == [1, 1]
        assert (model(model.collate(apart)).mean - expected).abs().max() < 1e-5


@pytest.mark.parametrize("family", ["qwen2_5_vl", "qwen3_vl"])
@pytest.mark.parametrize("cached", [False, True])
@pytest.mark.parametrize("kind", KINDS)
def test_the_cost_of_a_pass_is_what_torch_counts(kind: tuple[str, str], cached: bool, family: str) -> None:
    """All but the heads. The counter knows attention as products of matrices, not as the CPU's own kernel."""
    model = make(*kind, family=family, merge_size=2, patch_size=4)
    shown = model.prepare(source=png(0, (60, 24)), candidates=[png(1, (16, 16)), png(2, (30, 40))], instruction=WORDS[0])
    root = model.cached_root() if cached else None
    batch = model.collate([shown], root_cached=root is not None)
    linear = [part.weight.numel() for part in model.heads.modules() if isinstance(part, torch.nn.Linear)]
    heads = 2 * len(batch.reads) * sum(linear)
    with sdpa_kernel(SDPBackend.MATH), FlopCounterMode(display=False) as counter, torch.no_grad():
        model(batch, root)
    assert PassCost(model.backbone).flop(batch) == pytest.approx(counter.get_total_flops() - heads, rel=0.01)


def test_only_known_devices_have_a_peak() -> None:
    assert peak_of(torch.device("cpu")) is None
