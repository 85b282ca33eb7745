"""Typical mistakes of a user, one row each: one sentence that names the thing and the remedy, exit code 1 or 2, and nothing left behind."""

from __future__ import annotations

from pathlib import Path

import pytest
from click.testing import CliRunner

from pipeline.cli import main

FILTER = """name: mine
filter:
  input: {dataset: triplets, path: edits.jsonl}
  model: nope
  selections: [{name: s, rule: top, fraction: 0.4}]
"""
SMALL = ("--config", "demo-small")
IMPORT = ("reward", "import", "nope", "out", "--reference-prompts", "p")

MISTAKES: dict[str, tuple[tuple[str, ...], dict[str, str | bytes], int, str]] = {
    "no such configuration": (("plan", "--config", "nope.yaml"), {}, 1, "nope.yaml does not exist; the shipped ones are demo,"),
    "a folder as configuration": (("plan", "--config", "d"), {"d/x": ""}, 1, "file d cannot be read (Is a directory)"),
    "an empty --config": (("plan", "--config", ""), {}, 2, "--config is empty; name it"),
    "an empty --run": (("run", "generate", *SMALL, "--run", ""), {}, 2, "--run is empty; name it, or leave the option out"),
    "a tab": (("plan", "--config", "m"), {"m": "name: x\nfilter:\n\tinput: 3\n"}, 1, "m, line 3: not valid YAML"),
    "a tab, the remedy": (("plan", "--config", "m"), {"m": "name: x\nfilter:\n\tinput: 3\n"}, 1, "indent with spaces, not with tabs"),
    "a key twice": (("plan", "--config", "m"), {"m": FILTER + "name: y\n"}, 1, "m, line 6: duplicate key name; keep one of the two"),
    "a misspelt key": (("plan", "--config", "m"), {"m": FILTER.replace("selections", "selectoins")}, 1, "did you mean selections?"),
    "a misspelt reader": (
        ("plan", "--config", "m", "filter.input.dataset=tripplets"),
        {"m": FILTER},
        1,
        "command line (filter.input.dataset=tripplets): there is no filter.input.dataset tripplets; did you mean triplets?",
    ),
    "no reader": (("plan", "--config", "m"), {"m": FILTER.replace("dataset: triplets, ", "")}, 1, "key filter.input.dataset is missing"),
    "a configuration without --config": (("plan", "m"), {"m": FILTER}, 2, "for a configuration give --config m"),
    "Windows line ends and a byte order mark": (
        ("plan", "--config", "m"),
        {"m": b"\xef\xbb\xbf" + FILTER.replace("model", "modle").replace("\n", "\r\n").encode()},
        1,
        "m, line 4: unknown key filter.modle; did you mean model?",
    ),
    "UTF-16": (("plan", "--config", "m"), {"m": FILTER.encode("utf-16")}, 1, "m is not UTF-8 text; save it again as UTF-8"),
    "a huge number": (("plan", *SMALL, "seed=1e400"), {}, 1, "command line (seed=1e400): seed: input should be a valid integer"),
    "not a number": (("plan", *SMALL, "reward.training.learning_rate=.nan"), {}, 1, "learning_rate: input should be greater than 0"),
    "a negative number": (("plan", "--config", "m", "filter.selections.0.fraction=-1"), {"m": FILTER}, 1, "greater than 0 (given: -1)"),
    "a percentage": (("plan", "--config", "m", "filter.selections.0.fraction=43"), {"m": FILTER}, 1, "less than or equal to 1 (given: 43)"),
    "a fraction as text": (("plan", "--config", "m", "filter.selections.0.fraction=43%"), {"m": FILTER}, 1, "(given: '43%')"),
    "more workers than items": (("plan", *SMALL, "reward.workers=64"), {}, 1, "raise the first or lower the second"),
    "no reward model": (("run", "filter", "--config", "m"), {"m": FILTER, "edits.jsonl": "{}"}, 1, "or name its directory"),
    "a file as run": (("run", "generate", *SMALL, "--run", "f"), {"f": ""}, 1, "not writable (File exists); choose another directory"),
    "a run below a file": (("run", "generate", *SMALL, "--run", "f/r"), {"f": ""}, 1, "not writable (Not a directory)"),
    "a URL as run": (("run", "generate", *SMALL, "--run", "s3://b/r"), {}, 1, "a run directory must be on a (shared) file system"),
    "status of no run": (("status", "--run", "nope"), {}, 1, "--run nope: there is no run; give --config FILE as well"),
    "a misspelt key to explain": (("config", "explain", "reward.trainning"), {}, 1, "did you mean training?"),
    "a price that is no number": (("rehearse", *SMALL, "--price", "nan"), {}, 2, "'nan' is not a finite number"),
    "endless speed": (("rehearse", *SMALL, "--peak-tflops", "inf"), {}, 2, "'inf' is not a finite number"),
    "an unknown editor": (("editors", "install", "omnigen"), {}, 1, "there is no editor 'omnigen'; known: flux-kontext"),
    "a file as folder": (("editors", "install", "omnigen2", "--folder", "f"), {"f": ""}, 1, "--folder f is a file; name a directory"),
    "no such interpreter": (("editors", "install", "omnigen2", "--python", "nope"), {}, 1, "--python nope is not a program"),
    "a folder without a model": (
        ("reward", "score", "d", "--source", "a", "--instruction", "x", "--edited", "b"),
        {"d/x": ""},
        1,
        "no reward model at d (it has no config.json); name the folder",
    ),
    "judges of no run": (("editor-bench", "agreement", "--run", "nope"), {}, 1, "--run nope: there is no run directory"),
    "no shards": (("shards", "verify", "nope"), {}, 1, "nope has no index.json: it was not finished, or is no folder of shards; name one"),
    "shards of another index": (("shards", "verify", "d"), {"d/index.json": "{}"}, 1, "error: d/index.json is no index of shards"),
    "shards without credentials": (("shards", "verify", "s3://b/x"), {}, 1, "error: s3:// cannot be used (Unable to locate credentials);"),
    "shards of an unknown scheme": (("shards", "verify", "gopher://x/y"), {}, 1, "gopher"),
    "an unknown layout": (("shards", "export", "--format", "parquet", "a", "b"), {}, 2, "'parquet' is not one of 'step1x'"),
    "import into a file": (IMPORT, {"out": ""}, 1, "out is a file; name a new directory"),
    "import into a full folder": (IMPORT, {"out/x": ""}, 1, "out is not empty; name a new directory"),
    "an area in words": ((*IMPORT, "--image-area", "big"), {}, 2, "expected two numbers of pixels, e.g. 200704-200704"),
    "groups of no candidates": (("annotate", "export", *SMALL), {}, 1, "run `pipeline run generate` first"),
    "ratings that are not there": (("annotate", "qc", *SMALL), {}, 1, "run `pipeline annotate ingest --file FILE` first"),
    "a page of no run": (("annotate", "roster", "list", "--run", "nope"), {}, 1, "`pipeline annotate export` makes one"),
    "a nameless person": (("annotate", "roster", "add", "", "--run", "r"), {"r/x": ""}, 1, "give the name of the person"),
    "an address without scheme": (("annotate", "roster", "add", "A", "--home", "lab.org", "--run", "r"), {"r/x": ""}, 2, "http://"),
    "a page open to all": (("annotate", "start", *SMALL, "--annotator", "A", "--host", "0.0.0.0"), {}, 1, "give --expose as well"),
    "a selection of no run": (("select", "--run", "nope", "--name", "x", "--rule", "top"), {}, 1, "there is no run"),
    "a threshold that is no number": (("select", "--name", "x", "--rule", "top", "--threshold", "nan"), {}, 2, "not a finite number"),
}


@pytest.mark.usefixtures("no_credentials")
@pytest.mark.parametrize("mistake", MISTAKES)
def test_a_mistake_is_one_sentence(mistake: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    arguments, files, code, sentence = MISTAKES[mistake]
    for name, content in files.items():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_bytes(content if isinstance(content, bytes) else content.encode())
    before = sorted(tmp_path.rglob("*"))
    monkeypatch.chdir(tmp_path)
    result = CliRunner().invoke(main, arguments, terminal_width=1000)
    assert (result.exit_code, isinstance(result.exception, SystemExit)) == (code, True), result.output
    assert sentence in result.output and "Traceback" not in result.output
    assert sorted(tmp_path.rglob("*")) == before, "something was left behind"
