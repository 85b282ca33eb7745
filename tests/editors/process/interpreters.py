"""Environments for tests: real virtual environments without this project's packages, made without a download."""

from __future__ import annotations

import subprocess
import sys
import zipfile
from pathlib import Path

import PIL


def environment(folder: Path, version: str = "1.0") -> Path:
    """An environment with Pillow and the package ``toolkit`` of that version; returns its interpreter."""
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", str(folder)], check=True)
    with zipfile.ZipFile(wheel(folder, version)) as archive:
        archive.extractall(site_packages(folder))
    add_pillow(folder)
    return folder / "bin" / "python"


def wheel(folder: Path, version: str) -> Path:
    """A wheel of the package ``toolkit``."""
    path = folder / f"toolkit-{version}-py3-none-any.whl"
    about = f"toolkit-{version}.dist-info"
    files = {
        "toolkit.py": f'VERSION = "{version}"\n',
        f"{about}/METADATA": f"Metadata-Version: 2.1\nName: toolkit\nVersion: {version}\n",
        f"{about}/WHEEL": "Wheel-Version: 1.0\nGenerator: tests\nRoot-Is-Purelib: true\nTag: py3-none-any\n",
    }
    record = "".join(f"{name},,\n" for name in [*files, f"{about}/RECORD"])
    with zipfile.ZipFile(path, "w") as archive:
        for name, text in (files | {f"{about}/RECORD": record}).items():
            archive.writestr(name, text)
    return path


def site_packages(folder: Path) -> Path:
    """Where an environment has its packages."""
    (found,) = folder.glob("lib/python*/site-packages")
    return found


def add_pillow(folder: Path) -> None:
    """Give an environment the Pillow of this one."""
    installed = Path(PIL.__file__).parent.parent
    for name in ("PIL", "pillow.libs"):
        if (installed / name).exists():
            (site_packages(folder) / name).symlink_to(installed / name)
