"""A vision-language model that runs here, through transformers: Qwen2.5-VL and others with a chat template for pictures."""

from __future__ import annotations

from pathlib import Path
from typing import Any, ClassVar, Literal, Self

from pydantic import Field

from stages.engine.ids import settings_hash
from stages.evaluate_editor.judges.judge import JudgeEdits
from stages.evaluate_editor.judges.vlm import VlmJudge


class LocalJudge(VlmJudge):
    """Two calls per edit, decoded greedily. A reply without scores is not asked for again, because it would be the same."""

    name: Literal["local"]  # ty: ignore[incompatible-mutable-override]
    path: str = Field(description="Directory of a vision-language model, or its Hub id")
    max_new_tokens: int = Field(512, gt=0, description="Tokens of a reply")
    needs_gpu: ClassVar[bool] = True

    @property
    def label(self) -> str:
        """The directory's or the model's name."""
        return Path(self.path).name

    @property
    def revision(self) -> str:
        """The model, and a hash of the questions and of what changes a reply."""
        return f"{self.label} {settings_hash(self.asked())[:12]}"

    def check(self) -> None:
        """A directory must be there; what is none is taken for a Hub id."""
        folder = Path(self.path)
        if folder.is_dir() and not (folder / "config.json").is_file():
            raise ValueError(f"evaluate_editor.judge.path: {self.path} has no config.json, so it is no directory of a model")
        if not folder.is_dir() and self.path.count("/") != 1:
            raise ValueError(
                f"evaluate_editor.judge.path: there is no directory {self.path}, and it is no Hub id such as Qwen/Qwen2.5-VL-7B-Instruct"
            )

    def absolute(self) -> Self:
        """A directory is named from the root; a Hub id stays."""
        return self.model_copy(update={"path": str(Path(self.path).absolute())}) if Path(self.path).is_dir() else self

    def open(self, replies: Path) -> JudgeEdits:
        """Load the model."""
        from stages.evaluate_editor.vlm.judging import VlmJudging
        from stages.evaluate_editor.vlm.local_model import LocalModel
        from stages.evaluate_editor.vlm.reply_cache import ReplyCache

        model = LocalModel(self.path, revision=self.weights or None, max_new_tokens=self.max_new_tokens)
        return VlmJudging(model, ReplyCache(replies, self.asked()), self.asks, attempts=1, concurrency=1, image_format=self.image_format)

    def asked(self) -> dict[str, Any]:
        """With the model; of a directory, the names and sizes of its files."""
        folder = Path(self.path)
        files = sorted((path.name, path.stat().st_size) for path in folder.iterdir() if path.is_file()) if folder.is_dir() else []
        return super().asked() | {"model": self.label, "files": settings_hash(files), "max_new_tokens": self.max_new_tokens}
