"""Whether evenhand works for a stranger: `python smoke.py PYTHON [--lowest]`.

Builds the wheel, installs it and what it asks for in an empty environment of that Python, outside of this tree, and
takes the first steps there. With --lowest, the oldest versions are installed that pyproject.toml allows.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile
import tomllib
from pathlib import Path

HERE = Path(__file__).parent


def lowest() -> list[str]:
    """Each dependency at its lower bound."""
    asked = tomllib.loads((HERE.parent / "pyproject.toml").read_text("utf-8"))["project"]["dependencies"]
    return [dependency.replace(">=", "==") for dependency in asked]


def main() -> None:
    python, *options = sys.argv[1:]
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        pip = [sys.executable, "-m", "pip", "wheel", "--quiet", "--no-deps", "--no-build-isolation"]
        subprocess.run([*pip, "--wheel-dir", folder, HERE.parent], check=True)
        (wheel,) = folder.glob("evenhand-*.whl")
        subprocess.run([python, "-m", "venv", folder / "empty"], check=True)
        (folder / "constraints.txt").write_text("\n".join(lowest() if options == ["--lowest"] else []))
        inside = folder / "empty" / "bin" / "python"
        pip = [inside, "-m", "pip", "install", "--quiet", "--disable-pip-version-check"]
        subprocess.run([*pip, "--constraint", folder / "constraints.txt", wheel], check=True)
        work = folder / "work"
        work.mkdir()
        shutil.copy(HERE / "helpers" / "first_steps.py", work)
        clean = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
        clean["XDG_CACHE_HOME"] = str(folder / "cache")
        subprocess.run([inside, "first_steps.py"], cwd=work, env=clean, check=True)


if __name__ == "__main__":
    main()
