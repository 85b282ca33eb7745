"""The bars of the phases that run side by side: one each, which begins with the phase's first unit."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

from stages.engine.progress import Progress, progress
from stages.engine.units import Unit, UnitRecord

Show = Callable[[Sequence[Mapping[str, float]]], str]


@dataclass
class _Phase:
    show: Show
    follows: bool
    total: int = 0
    count: int = 0
    figures: list[Mapping[str, float]] = field(default_factory=list)
    bar: Progress | None = None


class PhaseBars:
    """Bars of a step. ``rows_are``: what is counted."""

    def __init__(self, step: str, rows_are: str) -> None:
        self.step, self.rows_are = step, rows_are
        self.phases: dict[str, _Phase] = {}
        self.missing: dict[str, tuple[_Phase, int]] = {}
        """Phase and rows of the units that are missing, by their keys."""
        self.coming = 0
        """Rows of units that may bring units for a phase that follows."""

    def phase(self, name: str, show: Show, *, follows: bool) -> None:
        """Begin a phase, or go on with it. ``show`` formats the figures of its finished units; ``follows``: whether other phases bring its
        units, at most a row for each of theirs."""
        self.phases.setdefault(name, _Phase(show, follows))

    def add(self, name: str, unit: Unit, *, done: bool) -> None:
        """Count a unit in a phase."""
        phase = self.phases[name]
        phase.total += unit.rows
        if done:
            phase.count += unit.rows
            return
        self.missing[unit.key] = phase, unit.rows
        self.coming += 0 if phase.follows else unit.rows

    def finish(self, record: UnitRecord) -> None:
        """Count a unit that was missing as done."""
        phase, rows = self.missing.pop(record.key)
        phase.count += rows
        phase.figures.append(record.figures)
        self.coming -= 0 if phase.follows else rows

    def draw(self) -> None:
        """Show where every phase with a missing unit stands."""
        for name, phase in self.phases.items():
            total = phase.total + (self.coming if phase.follows else 0)
            if phase.bar is None and any(of is phase for of, _ in self.missing.values()):
                label = f"{self.step}: {name}" if name else self.step
                row = sum(other.bar is not None for other in self.phases.values())
                phase.bar = progress(label, total, unit=self.rows_are, initial=phase.count, row=row)
            if phase.bar is not None:
                phase.bar.show(phase.count, phase.show(phase.figures), total)

    def close(self) -> None:
        """Show the last states for good, in the order of the phases."""
        for phase in self.phases.values():
            if phase.bar is not None:
                phase.bar.close()
