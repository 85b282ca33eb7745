"""The editor library: codec, text, denoiser, objective, shards, sampling, training and its resume."""

import hashlib
import io
import tarfile
from contextlib import suppress
from pathlib import Path

import numpy as np
import pytest
import torch
import two_processes
from hypothesis import given
from hypothesis import strategies as st
from paths import SHARED
from PIL import Image
from pydantic import ValidationError

from finetune import codec as codecs
from finetune.config import CodecConfig, DenoiserConfig, EditorConfig, EditorTrainingConfig, ObjectiveConfig, SamplerConfig
from finetune.data import EditSamples, squared
from finetune.denoiser import Denoiser
from finetune.editor import Editor, noise_seed, starting_noise
from finetune.editor import seeded as starting_generator
from finetune.rectified_flow import flow_loss, interpolate, sampling_times, shift_time
from finetune.text import TextEncoder, Vocabulary, content_words
from finetune.training.small import train

SIZE = 16
REAL = SHARED / "sharegpt4o-mini"
COLOURS = {"red": (220, 40, 40), "green": (40, 180, 60), "blue": (50, 70, 220), "white": (240, 240, 240)}


@pytest.fixture(scope="module", autouse=True)
def one_thread():
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


def squares(count: int, seed: int = 0) -> EditSamples:
    """A coloured square in one quadrant of a slightly noisy gray ground, to be given another colour."""
    rng = np.random.default_rng(seed)
    source = rng.integers(105, 115, (count, SIZE, SIZE, 3)).astype(np.uint8)
    edited = source.copy()
    instructions = []
    for row in range(count):
        before, after = rng.choice(list(COLOURS), 2, replace=False)
        y, x = 1 + rng.integers(0, 2, 2) * (SIZE // 2)
        source[row, y : y + 6, x : x + 6] = COLOURS[before]
        edited[row, y : y + 6, x : x + 6] = COLOURS[after]
        instructions.append(f"make the {before} square {after}")
    return EditSamples(source, edited, instructions, [f"s{row}" for row in range(count)])


def small_config(**denoiser) -> EditorConfig:
    sizes = {"heads": 2, "head_dim": 8, "rope_axes": (4, 2, 2), "single_blocks": 1, "text_dim": 8}
    return EditorConfig(
        image_size=SIZE,
        codec=CodecConfig(channels=8),
        denoiser=DenoiserConfig(**{**sizes, **denoiser}),
        sampler=SamplerConfig(steps=2, batch_size=3),
    )


def small_editor(samples: EditSamples, **denoiser) -> Editor:
    config = small_config(**denoiser)
    return Editor.from_config(config, codecs.fit(samples.source, config.codec), samples.instructions)


def small_training(**values) -> EditorTrainingConfig:
    return EditorTrainingConfig(**{"steps": 12, "batch_size": 4, "warmup_steps": 2, "checkpoint_every": 4, "report_every": 3, **values})


def digest(editor: Editor) -> str:
    state = hashlib.sha256()
    for name, tensor in editor.state_dict().items():
        state.update(name.encode() + tensor.numpy().tobytes())
    return state.hexdigest()


# --- configuration ---------------------------------------------------------------------------------------------------------


def test_config_rejects_sizes_that_do_not_fit():
    with pytest.raises(ValidationError, match="sum to head_dim"):
        DenoiserConfig(head_dim=24)
    with pytest.raises(ValidationError, match="even"):
        DenoiserConfig(head_dim=9, rope_axes=(3, 3, 3))
    with pytest.raises(ValidationError, match=r"multiple of codec\.patches_per_side"):
        EditorConfig(image_size=33)
    with pytest.raises(ValidationError, match="exceeds the 48 values"):
        EditorConfig(image_size=8)


def test_every_lazy_name_resolves():
    import finetune

    assert all(getattr(finetune, name) is not None for name in finetune.__all__)
    assert finetune.train is train
    with pytest.raises(AttributeError, match="no_such_name"):
        _ = finetune.no_such_name


# --- codec -----------------------------------------------------------------------------------------------------------------


def test_codec_is_the_best_linear_code_of_its_size():
    """Eckart-Young: no rank-k affine code has a smaller squared error; numpy's SVD is the oracle."""
    images = squares(60).source
    fitted = codecs.fit(images, CodecConfig(channels=5))
    patches = images.reshape(60, 2, 8, 2, 8, 3).transpose(0, 1, 3, 2, 4, 5).reshape(240, -1) / 127.5 - 1
    spectrum = np.linalg.svd(patches - patches.mean(0), compute_uv=False)
    latents = fitted.encode(images)
    assert latents.shape == (60, 4, 5)
    rebuilt = ((latents / fitted.scale) @ fitted.basis + fitted.mean).reshape(240, -1).numpy()
    assert ((rebuilt - patches) ** 2).sum() == pytest.approx((spectrum[5:] ** 2).sum(), rel=1e-4)


def test_codec_latents_are_half_whitened_to_unit_scale():
    images = squares(200).source
    latents = codecs.fit(images, CodecConfig(channels=12)).encode(images).reshape(-1, 12).double()
    variances = latents.var(0, unbiased=False)
    assert variances.mean().item() == pytest.approx(1, rel=1e-4)
    assert latents.mean(0).abs().max() < 1e-4
    spectrum = codecs.fit(images, CodecConfig(channels=12)).scale.double() ** -2  # proportional to the standard deviations
    assert torch.allclose(variances / spectrum, (variances / spectrum)[0].expand(12), rtol=1e-3)


def test_codec_with_all_components_is_lossless():
    images = np.random.default_rng(0).integers(0, 256, (60, 8, 8, 3), dtype=np.uint8)
    fitted = codecs.fit(images, CodecConfig(channels=48))
    assert np.array_equal(fitted.decode(fitted.encode(images)), images)


def test_codec_sign_does_not_depend_on_the_order_of_images():
    images = squares(80).source
    a, b = codecs.fit(images, CodecConfig(channels=6)), codecs.fit(images[::-1].copy(), CodecConfig(channels=6))
    assert torch.allclose(a.basis, b.basis, atol=1e-4)
    assert (a.basis.gather(1, a.basis.abs().argmax(1, keepdim=True)) > 0).all()


def test_codec_refuses_too_few_images_and_wrong_sizes():
    images = squares(40).source
    with pytest.raises(ValueError, match=r"hold only \d+ independent patch components"):
        codecs.fit(images[:1], CodecConfig(channels=8))
    with pytest.raises(ValueError, match="expects uint8 images"):
        codecs.fit(images, CodecConfig(channels=4)).encode(np.zeros((1, 8, 8, 3), np.uint8))


# --- text ------------------------------------------------------------------------------------------------------------------


def test_content_words_drop_function_words_only():
    assert content_words("Change the background to SKY, at the 2nd try") == ["change", "background", "sky", "2nd", "try"]


def test_vocabulary_numbers_words_and_refuses_what_it_cannot_hold():
    vocabulary = Vocabulary.build(["make the red circle blue", "remove the circle"])
    assert vocabulary.words == ("<pad>", "<unk>", "blue", "circle", "make", "red", "remove")
    assert vocabulary.encode(["remove the zebra"]).tolist() == [[6, 1, 0, 0]]
    with pytest.raises(ValueError, match="5 content words"):
        vocabulary.encode(["make the big red circle blue"])
    with pytest.raises(ValueError, match="0 content words"):
        vocabulary.encode(["to the"])
    with pytest.raises(ValueError, match="no instruction contains a word"):
        Vocabulary.build(["the"])


@pytest.mark.parametrize("conditioning", ["sequence", "channel"])
def test_word_order_is_visible_only_through_the_position_vectors(conditioning):
    """All text tokens share one rotary position in FLUX: without the added vectors swapped colours give the same velocity."""
    samples = squares(20)
    editor = small_editor(samples, conditioning=conditioning)
    latents = torch.randn(1, 4, 8, generator=torch.Generator().manual_seed(0))
    source = editor.codec.encode(samples.source[:1])
    words = editor.vocabulary.encode(["make the red square blue", "make the blue square red"])

    def velocities():
        with torch.no_grad():
            return [editor(latents, torch.tensor([0.5]), source, row[None]) for row in words]

    a, b = velocities()
    assert (a - b).abs().max() > 1e-3
    torch.nn.init.zeros_(editor.text.position)
    a, b = velocities()
    assert torch.allclose(a, b, atol=1e-5)


def test_pooled_text_ignores_padding():
    vocabulary = Vocabulary.build(["remove circle", "make the red circle blue"])
    encoder = TextEncoder(vocabulary, 8)
    ids = vocabulary.encode(["remove circle"])
    before = encoder(ids)[1]
    torch.nn.init.constant_(encoder.embedding.weight[0].unsqueeze(0), 7.0)
    assert torch.equal(before, encoder(ids)[1])


# --- denoiser --------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("conditioning", "image_tokens", "in_channels"), [("sequence", 8, 6), ("channel", 4, 12)])
def test_denoiser_layouts(conditioning, image_tokens, in_channels):
    """`sequence` doubles the tokens and marks the source by rotary axis 0; `channel` doubles the channels."""
    torch.manual_seed(0)
    config = small_config(conditioning=conditioning).denoiser
    model = Denoiser(config, channels=6, patches_per_side=2)
    assert model.transformer.config.in_channels == in_channels
    assert model.positions.shape == (image_tokens, 3)
    assert model.positions[:4].tolist() == [[0, 0, 0], [0, 0, 1], [0, 1, 0], [0, 1, 1]]
    if conditioning == "sequence":
        assert model.positions[4:].tolist() == [[1, 0, 0], [1, 0, 1], [1, 1, 0], [1, 1, 1]]
    latents, source = torch.randn(2, 4, 6), torch.randn(2, 4, 6)
    words, pooled = torch.randn(2, 3, 8), torch.randn(2, 8)
    time = torch.tensor([0.2, 0.7])
    with torch.no_grad():
        reference = model(latents, time, source, words, pooled)
        assert reference.shape == latents.shape
        for changed in (
            model(latents, time, source + 1, words, pooled),
            model(latents, time + 0.1, source, words, pooled),
            model(latents, time, source, words + 1, pooled),
            model(latents, time, source, words, pooled + 1),
            model(latents, time, source.flip(1), words, pooled),
        ):
            assert (changed - reference).abs().max() > 1e-4


def test_every_parameter_of_the_denoiser_learns():
    """A parameter without gradient would stop distributed training."""
    samples = squares(20)
    editor = small_editor(samples)
    source = editor.codec.encode(samples.source[:3])
    editor(torch.randn_like(source), torch.rand(3), source, editor.vocabulary.encode(samples.instructions[:3])).square().sum().backward()
    assert [name for name, weight in editor.named_parameters() if weight.grad is None] == []


# --- objective -------------------------------------------------------------------------------------------------------------


def test_flow_end_points_and_velocity():
    x0, noise = torch.randn(3, 4, 5), torch.randn(3, 4, 5)
    assert torch.equal(interpolate(x0, noise, torch.zeros(3)), x0)
    assert torch.equal(interpolate(x0, noise, torch.ones(3)), noise)
    t, dt = torch.tensor([0.1, 0.5, 0.8]), 0.1
    slope = (interpolate(x0, noise, t + dt) - interpolate(x0, noise, t)) / dt
    assert torch.allclose(slope, noise - x0, atol=1e-4)
    assert flow_loss(noise - x0, x0, noise) == 0
    assert flow_loss(noise - x0 + 2, x0, noise).item() == pytest.approx(4, rel=1e-5)


@given(st.floats(0.05, 20), st.lists(st.floats(0, 1), min_size=2, max_size=20))
def test_time_shift_is_monotone_between_zero_and_one(shift, values):
    u = torch.tensor(sorted(values), dtype=torch.float64)
    t = shift_time(u, shift)
    assert (t.diff() >= -1e-12).all()
    assert ((t >= 0) & (t <= 1 + 1e-12)).all()
    assert torch.allclose(shift_time(u, 1.0), u)
    assert torch.allclose(shift_time(t, 1 / shift), u, atol=1e-9)
    assert shift_time(torch.tensor([0.0, 1.0]), shift).tolist() == pytest.approx([0, 1])


def test_time_shift_published_values():
    """Shift 2 moves 1/2 to 2/3; Step1X-Edit's resolution shift e^mu is its own inverse at 1/s."""
    assert shift_time(torch.tensor(0.5), 2.0).item() == pytest.approx(2 / 3)
    assert shift_time(torch.tensor(0.5), 3.1582).item() == pytest.approx(3.1582 / 4.1582)
    assert sampling_times(4, 2.0).tolist() == pytest.approx([1, 6 / 7, 2 / 3, 2 / 5, 0])


# --- shards ----------------------------------------------------------------------------------------------------------------


def test_images_are_squashed_to_a_square() -> None:
    tall = np.zeros((40, 10, 3), np.uint8)
    tall[:20] = 200  # bright upper half
    found = squared(Image.fromarray(tall), SIZE)
    assert found.shape == (SIZE, SIZE, 3) and found[2].min() > 180 and found[-3].max() < 20
    assert np.array_equal(squared(Image.fromarray(found), SIZE), found)


@pytest.mark.skipif(not REAL.is_dir(), reason="no real photos in ../shared/data/sharegpt4o-mini")
def test_real_photos_pass_the_codec() -> None:
    """The codec explains most of what it sees of photos of many sizes."""
    with tarfile.open(REAL / "text_and_image_to_image_part_0.tar") as archive:
        files = [archive.extractfile(member).read() for member in archive.getmembers() if member.isfile()][:24]
    both = np.stack([squared(Image.open(io.BytesIO(data)).convert("RGB"), 32) for data in files])
    fitted = codecs.fit(both, CodecConfig(channels=32))
    error = np.abs(fitted.decode(fitted.encode(both)).astype(int) - both).mean()
    assert error < 0.25 * np.abs(both - both.mean(axis=(0, 1, 2))).mean()


def test_samples_must_agree_in_number_and_shape():
    samples = squares(3)
    with pytest.raises(ValueError, match="do not describe the same samples"):
        EditSamples(samples.source, samples.edited, samples.instructions[:2], samples.sample_ids)
    with pytest.raises(ValueError, match="must be uint8"):
        EditSamples(samples.source / 255, samples.edited, samples.instructions, samples.sample_ids)


# --- editor ----------------------------------------------------------------------------------------------------------------


def test_an_edit_does_not_depend_on_its_batch():
    samples = squares(20)
    editor = small_editor(samples)
    five = editor.edit(samples.source[:5], samples.instructions[:5], seed=3, sample_ids=samples.sample_ids[:5])
    assert five.dtype == np.uint8 and five.shape == (5, SIZE, SIZE, 3)
    for row in (0, 4):
        alone = editor.edit(
            samples.source[row : row + 1], samples.instructions[row : row + 1], seed=3, sample_ids=samples.sample_ids[row : row + 1]
        )
        assert np.abs(alone[0].astype(int) - five[row]).max() <= 1
    other = editor.edit(samples.source[:5], samples.instructions[:5], seed=4, sample_ids=samples.sample_ids[:5])
    seeds = [noise_seed(3, sample_id) for sample_id in samples.sample_ids[:5]]
    assert np.array_equal(five, editor.edit(samples.source[:5], samples.instructions[:5], seeds=seeds))
    assert np.abs(other.astype(int) - five).mean() > 1
    with pytest.raises(ValueError, match="must be as many"):
        editor.edit(samples.source[:5], samples.instructions[:4])


def test_starting_noise_is_a_function_of_seed_and_id():
    a, b = noise_seed(0, "a"), noise_seed(0, "b")
    noise = starting_noise([a, b, a], 4, 8)
    assert torch.equal(noise[0], noise[2]) and not torch.equal(noise[0], noise[1])
    assert not torch.equal(noise[0], starting_noise([noise_seed(1, "a")], 4, 8)[0])
    assert starting_noise([noise_seed(0, str(index)) for index in range(200)], 4, 64).std().item() == pytest.approx(1, abs=0.01)


def test_euler_integrates_a_straight_flow_exactly(monkeypatch):
    """With the true velocity of one image as model, any number of steps lands on that image: time runs from 1 to 0."""
    samples = squares(20)
    editor = small_editor(samples)
    goal = editor.codec.encode(samples.edited[:1])
    seen = []

    def true_velocity(latents, time, source, words, pooled):
        seen.append(time.item())
        return (latents - goal) / time[:, None, None]  # noise - x0, as latents = (1-t) x0 + t noise

    monkeypatch.setattr(editor.denoiser, "forward", true_velocity)
    assert np.array_equal(editor.edit(samples.source[:1], samples.instructions[:1]), editor.codec.decode(goal))
    assert seen == pytest.approx([1, 2 / 3])


def test_save_is_deterministic_and_load_is_exact(tmp_path):
    samples = squares(20)
    editor = small_editor(samples)
    editor.save(tmp_path / "a")
    again = Editor.from_directory(tmp_path / "a")
    again.save(tmp_path / "b")
    for name in ("config.json", "model.safetensors"):
        assert (tmp_path / "a" / name).read_bytes() == (tmp_path / "b" / name).read_bytes()
    small_editor(samples).save(tmp_path / "c")  # same seed, same initial weights
    assert (tmp_path / "a" / "model.safetensors").read_bytes() == (tmp_path / "c" / "model.safetensors").read_bytes()
    sources, instructions = samples.source[:2], samples.instructions[:2]
    assert np.array_equal(editor.edit(sources, instructions), again.edit(sources, instructions))


def test_a_damaged_editor_folder_is_refused(tmp_path):
    editor = small_editor(squares(20))
    with pytest.raises(ValueError, match="contains no readable editor"):
        Editor.from_directory(tmp_path / "nothing")
    editor.save(tmp_path)
    weights = tmp_path / "model.safetensors"
    weights.write_bytes(weights.read_bytes()[:-1])
    with pytest.raises(ValueError, match="contains no readable editor"):
        Editor.from_directory(tmp_path)


def test_editor_refuses_a_codec_of_other_sizes():
    samples = squares(20)
    with pytest.raises(ValueError, match="the codec was fitted for"):
        Editor.from_config(small_config(), codecs.fit(samples.source, CodecConfig(channels=4)), samples.instructions)


# --- training --------------------------------------------------------------------------------------------------------------


def test_training_learns_to_recolour(tmp_path):
    """The loss falls, and edits of unseen images come far closer to their targets (noise: 2 of 255) than the sources are."""
    samples, unseen = squares(400), squares(40, seed=1)
    config = small_config(conditioning="channel", heads=4, head_dim=16, rope_axes=(4, 6, 6), text_dim=16)
    config = config.model_copy(update={"sampler": SamplerConfig(steps=8)})
    editor = Editor.from_config(config, codecs.fit(samples.source, config.codec), samples.instructions)
    before, reports = digest(editor), []
    training = EditorTrainingConfig(steps=125, learning_rate=5e-3, warmup_steps=20, ema_decay=0.9)
    trained = train(editor=editor, samples=samples, config=training, checkpoint_dir=tmp_path, on_metrics=reports.append)
    assert digest(editor) == before
    assert [report["step"] for report in reports] == [25, 50, 75, 100, 125]
    assert reports[-1]["loss"] < 0.2 * reports[0]["loss"]
    untouched, untrained, edited = (
        np.abs(images.astype(int) - unseen.edited).mean()
        for images in (unseen.source, editor.edit(unseen.source, unseen.instructions), trained.edit(unseen.source, unseen.instructions))
    )
    assert edited < 0.4 * untouched < untrained


class Killed(Exception):
    pass


@pytest.mark.parametrize("killed_at", [[3], [6, 9], [12]])
def test_killed_training_ends_identical(tmp_path, killed_at):
    """Killed in a report and started again, training ends with the same bits and delivers the same reports."""
    samples = squares(24)
    editor, config = small_editor(samples), small_training()
    reports: list[dict] = []
    calm = train(editor=editor, samples=samples, config=config, checkpoint_dir=tmp_path / "calm", on_metrics=reports.append)
    for step in killed_at:

        def kill(report, step=step):
            if report["step"] == step:
                raise Killed

        with pytest.raises(Killed):
            train(editor=editor, samples=samples, config=config, checkpoint_dir=tmp_path / "killed", on_metrics=kill)
    again: list[dict] = []
    killed = train(editor=editor, samples=samples, config=config, checkpoint_dir=tmp_path / "killed", on_metrics=again.append)
    assert digest(killed) == digest(calm)
    assert again == reports
    assert sorted(path.name[:13] for path in (tmp_path / "killed").iterdir()) == ["step-00000008", "step-00000012"]


def test_resume_starts_at_the_checkpoint_and_steps_over_a_damaged_one(tmp_path, monkeypatch, caplog):
    samples = squares(24)
    editor, config = small_editor(samples), small_training()
    calm = train(editor=editor, samples=samples, config=config, checkpoint_dir=tmp_path, on_metrics=lambda _: None)
    drawn = []
    monkeypatch.setattr(
        "finetune.training.small.seeded", lambda *key: drawn.extend(key[2:] if key[0] == "flow" else []) or starting_generator(*key)
    )

    def resume():
        drawn.clear()
        return train(editor=editor, samples=samples, config=config, checkpoint_dir=tmp_path, on_metrics=lambda _: None)

    assert digest(resume()) == digest(calm) and drawn == []  # finished: nothing is done again
    newest = max(tmp_path.iterdir()) / "__0_0.distcp"
    content = bytearray(newest.read_bytes())
    content[len(content) // 2] ^= 1
    newest.write_bytes(content)
    assert digest(resume()) == digest(calm) and drawn == [8, 9, 10, 11]
    assert f"checkpoint {newest.parent} is damaged: falling back" in caplog.text
    for path in tmp_path.glob("*/__0_0.distcp"):
        path.write_bytes(path.read_bytes()[:50])
    assert digest(resume()) == digest(calm) and drawn == list(range(12))


def test_checkpoints_of_another_training_are_refused(tmp_path):
    samples = squares(24)
    editor, config = small_editor(samples), small_training()

    def run(**changes):
        given = {"editor": editor, "samples": samples, "config": config, **changes}
        return train(**given, checkpoint_dir=tmp_path, on_metrics=lambda _: None)

    run()
    run(config=small_training(checkpoint_every=5, keep_checkpoints=3, threads=2))  # does not change the result
    for changes in (
        {"config": small_training(seed=1)},
        {"samples": squares(24, seed=1)},
        {"editor": small_editor(samples, double_blocks=2)},
    ):
        with pytest.raises(ValueError, match="belongs to other settings or data"):
            run(**changes)


def test_diverged_training_stops_with_a_sentence(tmp_path):
    samples = squares(24)
    with pytest.raises(ValueError, match=r"loss is (nan|inf) at step"):
        trained(samples, tmp_path, learning_rate=1e30, warmup_steps=0)


def trained(samples: EditSamples, folder: Path, editor: Editor | None = None, **changes) -> Editor:
    config = small_training(**changes)
    given = {"editor": editor or small_editor(samples), "samples": samples, "config": config}
    return train(**given, checkpoint_dir=folder, on_metrics=lambda _: None)


def test_passes_are_added_up(tmp_path):
    """A token budget that holds three samples, of batches of four, learns what one pass learns, up to rounding."""
    samples, weights, sizes = squares(24), [], []
    tokens = small_editor(samples).vocabulary.max_words + 8
    for budget in (16384, 3 * tokens):
        editor = small_editor(samples)
        editor.text.register_forward_hook(lambda module, given, out: sizes.append(len(given[0])))
        weights.append(trained(samples, tmp_path / str(budget), editor, token_budget=budget).state_dict())
    assert sizes == [4] * 12 + [3, 1] * 12
    assert_close(*weights, 1e-3)


def test_recomputed_activations_give_the_same_bits(tmp_path):
    samples = squares(24)
    again = trained(samples, tmp_path / "again", activation_checkpointing=True)
    assert digest(again) == digest(trained(samples, tmp_path / "kept"))


def test_bf16_computes_in_bf16_over_float32_weights(tmp_path):
    samples, types = squares(24), set()
    editor = small_editor(samples)
    editor.denoiser.transformer.x_embedder.register_forward_hook(lambda module, given, out: types.add(out.dtype))
    half = trained(samples, tmp_path / "half", editor, precision="bf16")
    assert types == {torch.bfloat16} and {weight.dtype for weight in half.parameters()} == {torch.float32}
    exact = trained(samples, tmp_path / "single")
    assert digest(half) != digest(exact)
    assert_close(half.state_dict(), exact.state_dict(), 2e-2)


def test_time_is_not_rounded_before_its_embedding():
    """In bf16 0.777 * 1000 would be 776, and times between 0.775 and 0.778 the same."""
    editor = small_editor(squares(20))
    seen = []
    editor.denoiser.transformer.time_text_embed.time_proj.register_forward_pre_hook(lambda module, given: seen.append(given[0]))
    latents, words = torch.zeros(1, 4, 8), editor.vocabulary.encode(["make the red square blue"])
    with torch.autocast("cpu", dtype=torch.bfloat16), torch.no_grad():
        editor(latents, torch.tensor([0.777]), latents, words)
    assert seen[0].dtype == torch.float32 and seen[0].item() == pytest.approx(777, abs=1e-3)


def two_training(**values) -> EditorTrainingConfig:
    return small_training(**{"steps": 6, "checkpoint_every": 2, "report_every": 1, **values})


def train_cases(folder):
    """What one of two processes does: weights (None where the other one has collected them) and reports by case."""
    samples = squares(24)

    def run(name, on_metrics, **changes):
        given = {"editor": small_editor(samples), "samples": samples, "config": two_training(**changes)}
        trained = train(**given, checkpoint_dir=folder / name, on_metrics=on_metrics)
        return None if any(weight.is_meta for weight in trained.parameters()) else trained.state_dict()

    def kill(report):
        if report["step"] == 5:
            raise Killed

    found = {}
    for name, changes, killed in (
        ("ddp", {}, True),
        ("fsdp", {"parallel": "fsdp"}, True),
        ("uneven", {"parallel": "fsdp", "batch_size": 5, "token_budget": 40}, False),
        ("bf16", {"parallel": "fsdp", "precision": "bf16", "activation_checkpointing": True}, False),
    ):
        reports, again = [], []
        found[name] = run(name, reports.append, **changes), reports
        if killed:
            with suppress(Killed):
                run(name + "-killed", kill, **changes)
            found[name + "-killed"] = run(name + "-killed", again.append, **changes), again
    return found


def assert_close(a: dict, b: dict, tolerance: float) -> None:
    assert list(a) == list(b)
    assert [name for name in a if not torch.allclose(a[name], b[name], atol=tolerance)] == []


@pytest.mark.xdist_group("two workers")
def test_two_workers_train_as_one(tmp_path):
    """Whole or sharded weights: the bits of an undisturbed run also after a kill, and a single process's weights up to rounding."""
    joined = two_processes.start(train_cases, tmp_path)
    samples = squares(24)
    alone, alone_reports = {}, {}
    for size in (4, 5):
        reports: list[dict] = []
        given = {"editor": small_editor(samples), "samples": samples, "config": two_training(batch_size=size)}
        one = train(**given, checkpoint_dir=tmp_path / f"one{size}", on_metrics=reports.append)
        alone[size], alone_reports[size] = one.state_dict(), [report["loss"] for report in reports]
    assert joined() == [0, 0]
    first, second = (torch.load(tmp_path / f"rank{rank}.pt", weights_only=True) for rank in range(2))
    for name, (weights, reports) in first.items():
        assert reports == second[name][1]
        assert (second[name][0] is None) == (not name.startswith("ddp"))  # the shards are collected by the first worker alone
        size, tolerance = 5 if name == "uneven" else 4, 2e-2 if name == "bf16" else 2e-3
        assert_close(weights, alone[size], tolerance)
        assert [report["loss"] for report in reports] == pytest.approx(alone_reports[size], rel=1e-2 if name == "bf16" else 1e-3)
    for name in ("ddp", "fsdp"):
        (calm, reports), (killed, again) = first[name], first[f"{name}-killed"]
        assert all(torch.equal(calm[part], killed[part]) for part in calm) and again == reports
    assert all(torch.equal(first["ddp"][0][part], second["ddp"][0][part]) for part in first["ddp"][0])
    files = {path.name for path in max((tmp_path / "fsdp").iterdir()).iterdir()}
    assert files == {"__0_0.distcp", "__1_0.distcp", ".metadata", "contents.json"}


def test_a_batch_has_at_least_a_sample_for_each_worker(tmp_path, monkeypatch):
    monkeypatch.setattr("reward.trainer.workers.rank_and_world", lambda: (0, 3))
    with pytest.raises(ValueError, match="a batch of 2 cannot be shared by 3 workers"):
        trained(squares(24), tmp_path, batch_size=2)


def test_objective_configuration_changes_what_is_learnt(tmp_path):
    """The time shift reaches training: another shift, other weights."""
    samples, found = squares(24), set()
    for shift in (1.0, 2.0):
        config = small_config().model_copy(update={"objective": ObjectiveConfig(time_shift=shift)})
        editor = Editor.from_config(config, codecs.fit(samples.source, config.codec), samples.instructions)
        found.add(digest(trained(samples, tmp_path / str(shift), editor)))
    assert len(found) == 2
