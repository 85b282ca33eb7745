"""The packet that a running server uses, taken up again after an export.

In: the run's folder ``annotate/``. An export publishes ``plan.json`` last, and only adds to the packet. So it is enough to look at the
state of that one file before groups are assigned: the next assignment finds the new groups, and all that was assigned stays.
"""

from __future__ import annotations

import sqlite3
import threading
from pathlib import Path

from stages.annotate.formats.page_database import unusable
from stages.annotate.page import assignment, packet
from stages.annotate.page.database import Database
from stages.annotate.page.packet import Packet


class CurrentPacket:
    """The packet in memory; raises ``ValueError`` when nothing was exported."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._lock = threading.Lock()
        self._seen = self._state()
        self.packet: Packet = packet.load(folder)
        self.problem = ""
        """Why the latest export was not taken up; empty when it was."""

    def load_into(self, database: Database) -> None:
        """Write the plan into the database; raises ``ValueError`` for a database of another project, or one that cannot be written."""
        try:
            database.belongs_to(self.packet.project)
            assignment.load_plan(database, self.packet)
        except sqlite3.OperationalError as error:
            raise unusable(database.path, error, f"{database.path} cannot be written ({error}); see to its disk") from None

    def refresh(self, database: Database) -> Packet:
        """Take up a new export; returns the packet. An export that cannot be read is reported in ``problem`` and changes nothing."""
        with self._lock:
            state = self._state()
            if state != self._seen:
                try:
                    loaded = packet.load(self._folder)
                    if loaded.project != self.packet.project:
                        raise ValueError(f"the packet in {self._folder} is now of other candidates; stop this server")
                    assignment.load_plan(database, loaded)
                except (ValueError, OSError) as error:
                    self.problem = f"the latest export was not taken up: {error}"
                else:
                    self.packet, self.problem = loaded, ""
                self._seen = state  # not while the database is locked or its disk is full: the next request tries again
            return self.packet

    def _state(self) -> tuple[int, int, int]:
        try:
            found = (self._folder / "plan.json").stat()
        except FileNotFoundError:
            return 0, 0, 0
        return found.st_ino, found.st_size, found.st_mtime_ns
