"""An editor behind a server of ``/v1/images/edits``."""

from __future__ import annotations

import io
import os
from collections.abc import Collection, Sequence
from concurrent.futures import ThreadPoolExecutor

from PIL import Image

from stages.editors.editor import Edited, EditRequest, Failure
from stages.editors.http.client import Client, Refused, Served
from stages.editors.http.settings import GENERAL, HttpSettings
from stages.engine.http_client import Patience, Unanswered

LARGEST_SEED = 2**32
"""Engines hand the seed to numpy, too: what is sent is the remainder."""


class HttpEditor:
    """An editor whose model is ``model`` on the server of the settings. ``engines``: those that condition this model as it was trained.

    Raises ``ValueError`` if the server cannot be asked, serves another model, or is another engine.
    """

    def __init__(self, name: str, model: str, engines: Collection[str], settings: HttpSettings) -> None:
        self.name = name
        self.model = settings.model or model
        patience = Patience(settings.tries, settings.pause_seconds, settings.edit_seconds)
        self._client = Client(settings.base_url, _key(name, settings.key_variable), patience, settings.concurrency)
        self._threads = ThreadPoolExecutor(settings.concurrency, thread_name_prefix=name)
        own = {key: str(value) for key, value in settings.model_dump(exclude=GENERAL).items()}
        self._fields = own | {
            "model": self.model,
            "generator_device": settings.generator_device,
            "n": "1",
            "response_format": "b64_json",
            "output_format": "png",
        }
        try:
            served = self._client.served()
            _check(name, self.model, engines, served, settings.base_url)
        except ValueError:
            self.close()
            raise
        self._record = (
            ("engine", served.engine),
            ("engine_version", served.version),
            ("model", self.model),
            ("generator_device", settings.generator_device),
        )

    def edit(self, batch: Sequence[EditRequest]) -> list[Edited | Failure]:
        """One result per request, several asked for at a time. Raises ``ValueError`` where no edit will ever come from this server."""
        return list(self._threads.map(self._edit, batch))

    def save_memory(self) -> bool:
        """The server's memory is its own affair."""
        return False

    def close(self) -> None:
        """Close the connections."""
        self._threads.shutdown(cancel_futures=True)
        self._client.close()

    def _edit(self, request: EditRequest) -> Edited | Failure:
        size = "x".join(map(str, request.image.size))
        fields = {"prompt": request.instruction, "size": size, "seed": str(request.seed % LARGEST_SEED)}
        encoded = io.BytesIO()
        request.image.save(encoded, "PNG")
        try:
            data = self._client.edit(encoded.getvalue(), self._fields | fields)
        except Refused as error:
            return Failure("refused", f"{self.name}: {error}")
        except Unanswered as error:
            return Failure("unanswered", f"{self.name}: {error}")
        try:
            image = Image.open(io.BytesIO(data))
            if image.size != request.image.size:
                return Failure("wrong-size", f"{self.name}: the edit of {size} pixels has {'x'.join(map(str, image.size))}")
            return Edited(image.convert("RGB"), record=self._record)
        except (OSError, ValueError, SyntaxError, Image.DecompressionBombError) as error:
            return Failure("no-image", f"{self.name}: the answer contains no image: {error}")


def _key(name: str, variable: str | None) -> str | None:
    if variable is None:
        return None
    if not os.environ.get(variable):
        raise ValueError(f"editor {name}: settings.key_variable names {variable}, and this environment variable is not set")
    return os.environ[variable]


def _check(name: str, model: str, engines: Collection[str], served: Served, base_url: str) -> None:
    if model not in served.models:
        raise ValueError(
            f"editor {name}: the server at {base_url} serves {', '.join(served.models)}, not {model}; start it with that model, or give "
            "settings.model the name under which it serves it"
        )
    if served.engine not in engines:
        raise ValueError(
            f"editor {name}: the server at {base_url} is of {served.engine or 'an unknown engine'}, and only {' and '.join(engines)} is "
            "known to condition this model as it was trained"
        )
