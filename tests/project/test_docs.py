"""Checks of the documents: commands parse, configurations load, links lead somewhere, named files, names and printed lines exist."""

from __future__ import annotations

import ast
import re
import shlex
from collections.abc import Iterator
from pathlib import Path
from pkgutil import resolve_name

import click
import pytest
from paths import ROOT
from pydantic import BaseModel

from benchmarks import results
from pipeline import config, config_keys
from pipeline.cli import main
from stages.config import FlowConfig

DOCUMENTS = [*sorted(ROOT.glob("*.md")), ROOT / "benchmarks" / "RESULTS.md", *sorted((ROOT / "docs").glob("*.md"))]
FOLDERS = [path.name for path in ROOT.iterdir() if path.is_dir()]

_FENCE = re.compile(r"^```(\w*)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
_INLINE = re.compile(r"`([^`\n]+)`")
_LINK = re.compile(r"\]\(([^)\s]+)\)")
_COMMAND = re.compile(r"^(?:\$ |#\s+)?(?:\.venv/bin/)?(pipeline .*)$")

documents = pytest.mark.parametrize("document", DOCUMENTS, ids=lambda path: path.name)
undated = pytest.mark.parametrize("document", [path for path in DOCUMENTS if path.name != "log.md"], ids=lambda path: path.name)
"""The dated log is history: it names files as they were called then."""


def blocks(text: str, language: str) -> list[str]:
    return [content for name, content in _FENCE.findall(text) if name == language]


def inline(text: str) -> list[str]:
    return _INLINE.findall(_FENCE.sub("", text))


def commands(block: str) -> Iterator[list[str]]:
    """Command lines of a block as words, continued lines joined."""
    for line in block.replace("\\\n", " ").splitlines():
        found = _COMMAND.match(line.strip())
        if found:
            yield shlex.split(found[1], comments=True)[1:]


def leaf(words: list[str]) -> tuple[click.Command, list[str]]:
    """The command that words name, and the words after it. Raises ``ValueError`` for a command that does not exist."""
    command: click.Command = main
    rest = list(words)
    while isinstance(command, click.Group) and rest and not rest[0].startswith("-"):
        if rest[0] not in command.commands:
            raise ValueError(f"there is no command {' '.join(words)}")
        command = command.commands[rest.pop(0)]
    return command, rest


def check_command(words: list[str], configurations: dict[str, Path]) -> None:
    """Parse with the program's own parser; load the configuration that is named, with the overrides."""
    command, rest = leaf(words)
    parsed = command.make_context(" ".join(words), list(rest)).params
    named = parsed.get("config_path")
    overrides = parsed.get("overrides") or ()
    if named is not None:
        config.load(configurations.get(named) or (ROOT / named if "/" in named else named), overrides)
    elif overrides:
        config.load(ROOT / "configs" / "demo.yaml", overrides)  # of a run's own configuration, at least the keys can be known


def check_mention(words: list[str]) -> None:
    """A command named in a sentence may be incomplete, but it exists and its options do."""
    command, rest = leaf(words)
    known = {name for parameter in command.params for name in (*parameter.opts, *parameter.secondary_opts)}
    for word in rest:
        if word.startswith("-") and word.partition("=")[0] not in known | {"--help"}:
            raise ValueError(f"{' '.join(words)}: there is no option {word}")


def own_configurations(text: str, folder: Path) -> dict[str, Path]:
    """YAML blocks whose first line is a comment with a file name, written there."""
    found = {}
    for block in blocks(text, "yaml"):
        name = re.match(r"# (\S+\.yaml)\n", block)
        assert name, f"a YAML block begins with its file name:\n{block}"
        found[name[1]] = folder / name[1]
        found[name[1]].write_text(block)
    return found


@documents
def test_commands_parse_and_their_configurations_load(document: Path, tmp_path: Path) -> None:
    text = document.read_text(encoding="utf-8")
    written = own_configurations(text, tmp_path)
    for path in written.values():
        config.load(path)
    elsewhere = {
        path.name: path for other in DOCUMENTS for path in own_configurations(other.read_text(encoding="utf-8"), tmp_path).values()
    }
    for block in blocks(text, ""):
        for words in commands(block):
            check_command(words, elsewhere | written)
    for code in inline(text):
        if code.startswith("pipeline "):
            check_mention(shlex.split(code)[1:])


def test_commands_in_configurations_examples_and_help_parse() -> None:
    count = 0
    for path in [*(ROOT / "configs").glob("*.yaml")]:
        for words in commands(path.read_text(encoding="utf-8")):
            check_command(words, {})
            count += 1
    for path in (ROOT / "examples").glob("*.py"):
        for code in inline(path.read_text(encoding="utf-8")):
            if code.startswith("pipeline "):
                check_mention(shlex.split(code)[1:])
                count += 1
    for words in all_commands(main, []):
        command, _ = leaf(words)
        text = command.get_help(click.Context(command, info_name=" ".join(["pipeline", *words])))
        for block in commands(text):
            check_command(block, {})
            count += 1
    assert count > 15


def all_commands(group: click.Group, words: list[str]) -> Iterator[list[str]]:
    for name, command in group.commands.items():
        if isinstance(command, click.Group):
            yield from all_commands(command, [*words, name])
        else:
            yield [*words, name]


def test_every_command_is_in_the_list_of_commands() -> None:
    text = (ROOT / "docs" / "commands.md").read_text(encoding="utf-8")
    mentioned = [leaf(shlex.split(code)[1:])[0] for code in inline(text) if code.startswith("pipeline ")]
    for words in all_commands(main, []):
        assert leaf(words)[0] in mentioned, f"docs/commands.md does not name pipeline {' '.join(words)}"


def test_the_status_marks_what_a_public_clone_cannot_check() -> None:
    needs_data = re.compile(r"\bshared_data\b|REAL\.is_dir|\bneeds_shared\b")
    for line in (ROOT / "docs" / "status.md").read_text(encoding="utf-8").splitlines():
        named = [ROOT / name for name in re.findall(r"`(tests/[\w/]+\.py)`", line)]
        if line.startswith("| ") and named:
            assert any(needs_data.search(path.read_text(encoding="utf-8")) for path in named) == line.endswith(" † |"), line


def test_the_readme_is_short_and_the_index_has_every_page() -> None:
    assert len((ROOT / "README.md").read_text(encoding="utf-8").split()) <= 700
    linked = {target.partition("#")[0] for target in _LINK.findall((ROOT / "docs" / "README.md").read_text(encoding="utf-8"))}
    assert {path.name for path in (ROOT / "docs").glob("*.md")} - {"README.md"} <= linked


def test_every_section_of_the_results_names_the_code_that_it_measures() -> None:
    assert list(results.sections()) == list(results.MEASURES)
    assert not [path for paths in results.MEASURES.values() for path in paths if not (ROOT / path).exists()]


def test_the_configuration_reference_is_the_one_of_the_schema() -> None:
    text = (ROOT / "docs" / "configuration-reference.md").read_text(encoding="utf-8")
    assert text == config_keys.reference(), "run: pipeline config explain --all > docs/configuration-reference.md"


@pytest.mark.parametrize(
    "line",
    [
        "pipeline run al --config configs/demo.yaml",
        "pipeline plan --confg configs/demo.yaml",
        "pipeline plan --config configs/demo.yaml sead=3",
        "pipeline plan --config configs/nowhere.yaml",
        "pipeline select --run runs/demo --name x --rule best",
        "pipeline select --run runs/demo --name x",
        "pipeline shards verify",
    ],
)
def test_the_checks_find_a_bad_command(line: str) -> None:
    (words,) = commands(f"{line}\n")
    with pytest.raises((ValueError, click.UsageError)):
        check_command(words, {})


@pytest.mark.parametrize("line", ["run al", "plan --confg x", "select --nmae x"])
def test_the_checks_find_a_bad_mention(line: str) -> None:
    with pytest.raises(ValueError):
        check_mention(line.split())


@documents
def test_links_lead_somewhere(document: Path) -> None:
    for target in _LINK.findall(_FENCE.sub("", document.read_text(encoding="utf-8"))):
        if target.startswith("https://"):
            continue
        assert "://" not in target, f"{document.name}: {target} is no https link"
        name, _, anchor = target.partition("#")
        path = document.parent / name if name else document
        assert path.exists(), f"{document.name}: {target} is not there"
        if anchor:
            titles = re.findall(r"^#+ (.+)$", path.read_text(encoding="utf-8"), re.MULTILINE)
            assert anchor in [re.sub(r"[^\w -]", "", title.lower()).replace(" ", "-") for title in titles], f"{target} has no such title"


@undated
def test_named_files_and_names_exist(document: Path) -> None:
    """Paths that begin with a folder of the repository, dotted names of configuration keys, and make's targets."""
    targets = set(re.findall(r"^([\w-]+):", (ROOT / "Makefile").read_text(), re.MULTILINE))
    for code in inline(document.read_text(encoding="utf-8")):
        if (
            re.fullmatch(r"[\w.-]+(/[\w.-]+)*/?(\.\w+)?", code)
            and "/" in code
            and code.split("/")[0] in FOLDERS
            and not runs(code)
            and "NAME" not in code
        ):
            assert (ROOT / code).exists(), f"{document.name} names {code}"
        if (
            re.fullmatch(r"[a-z_]+(\.[a-z_]+)+", code)
            and code.split(".")[0] in FlowConfig.model_fields
            and not code.endswith((".py", ".yaml"))
        ):
            assert is_key(code) or is_python(code), f"{document.name} names {code}, which is neither a configuration key nor a name of ours"
        if code.startswith("make "):
            assert code.split()[1] in targets, f"{document.name} names {code}"
    for block in blocks(document.read_text(encoding="utf-8"), ""):
        for target in re.findall(r"^make ([\w-]+)", block, re.MULTILINE):
            assert target in targets, f"{document.name} names make {target}"
        for script in re.findall(r"^python (\S+)", block, re.MULTILINE):
            assert (ROOT / script).exists(), f"{document.name} names {script}"


def runs(code: str) -> bool:
    """Whether a path is one of a run directory, some of which begin like folders of the repository."""
    return code.startswith(("runs/", "finetune/editors"))


def is_key(dotted: str) -> bool:
    models: list[type[BaseModel]] = [FlowConfig]
    for part in dotted.split("."):
        owners = [model for model in models if part in model.model_fields]
        if not owners:
            return False
        models = [inner for owner in owners for inner in config_keys.models_in(owner.model_fields[part].annotation)]
    return True


def is_python(dotted: str) -> bool:
    try:
        resolve_name(dotted)
    except (ImportError, AttributeError):
        return False
    return True


@documents
def test_python_blocks_name_what_exists(document: Path) -> None:
    for block in blocks(document.read_text(encoding="utf-8"), "python"):
        for node in ast.walk(ast.parse(block)):
            if isinstance(node, ast.ImportFrom):
                for alias in node.names:
                    assert is_python(f"{node.module}.{alias.name}"), f"{document.name}: from {node.module} import {alias.name}"


def test_printed_lines_are_printed(monkeypatch: pytest.MonkeyPatch) -> None:
    """What docs/configuration.md shows of `config show` and of a mistake."""
    monkeypatch.chdir(ROOT)
    text = (ROOT / "docs" / "configuration.md").read_text(encoding="utf-8")
    shown = next(block for block in blocks(text, "") if block.startswith("name: "))
    printed = config.show(config.load(Path("configs/demo.yaml"), ["seed=3"])).splitlines()
    for line in shown.splitlines():
        assert line in printed
    mistake = next(block for block in blocks(text, "") if block.startswith("error: "))
    with pytest.raises(ValueError, match=re.escape(mistake.removeprefix("error: ").strip())):
        config.load(ROOT / "configs" / "demo.yaml", ["reward.trainning.steps=3"])
