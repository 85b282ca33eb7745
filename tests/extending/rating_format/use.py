"""A format that the product does not have is recognised, ingested and offered on the command line."""

from __future__ import annotations

from pathlib import Path

from click.testing import CliRunner
from rated_run import make_run, rating_task_of, ratings_of

from pipeline.commands.annotate import annotate as commands
from stages.annotate import step as annotate

context = make_run(Path("run"))
rows = ratings_of(rating_task_of(context))
words = ("group_id", "candidate_id", "dimension", "annotator_id", "score")
Path("ann.scores").write_text("".join(" ".join(str(row[word]) for word in words) + "\n" for row in rows))

result = annotate.ingest(context, ["ann.scores"])
assert result.new[0].format == "scores-text", result.new
assert result.new[0].accepted == len(rows), result.new
assert annotate.ingest(context, ["ann.scores"], "scores-text").known == result.new

said = CliRunner().invoke(commands, ["ingest", "--help"]).output
assert "scores-text: lines of five words" in " ".join(said.split()), said
