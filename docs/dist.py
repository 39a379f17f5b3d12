"""Builds wheel and sdist, and runs the five-minute start with each in a clean environment elsewhere.

`python docs/dist.py` in the root of the repository, with `build` and `twine` installed (`make dist`).
"""

import shutil
import subprocess
import sys
import tarfile
import tempfile
import venv
import zipfile
from pathlib import Path

ROOT = Path(__file__).parents[1]
IN_SDIST = (
    *("README.md", "LICENSE", "CHANGELOG.md", "CONTRIBUTING.md", "Makefile", "pyproject.toml"),
    *("docs/start.md", "docs/pages.py", "docs/gallery/plot_rvga.py", "docs/images/demo.png"),
    *("papers/__main__.py", "papers/rvga.py"),
    *("tests/conftest.py", "tests/estimators/test_linear.py", "src/kalvi/__init__.py"),
)
IN_WHEEL = (
    "kalvi/__init__.py",
    "kalvi/__init__.pyi",
    "kalvi/py.typed",
    "kalvi/cli/__init__.py",
    "kalvi/tabular/report/templates/page.html",
)
NOT_IN_EITHER = ("docs/_build", "auto_gallery", "__pycache__", ".jax_cache", ".venv")


def say(text: str) -> None:
    """At once, between the output of the commands."""
    print(text, flush=True)


def call(*command: str | Path, where: Path = ROOT) -> None:
    """Run a command; stop with its exit code if it fails."""
    done = subprocess.run([str(part) for part in command], cwd=where)
    if done.returncode:
        raise SystemExit(f"{' '.join(map(str, command))}: exit code {done.returncode}.")


def build(folder: Path) -> tuple[Path, Path]:
    """The wheel, built from the sdist, and the sdist."""
    call(sys.executable, "-m", "build", "--outdir", folder, ROOT)
    call(sys.executable, "-m", "twine", "check", "--strict", *folder.iterdir())
    (wheel,), (sdist,) = folder.glob("*.whl"), folder.glob("*.tar.gz")
    return wheel, sdist


def check_contents(wheel: Path, sdist: Path) -> None:
    """What must be inside is there, and nothing that was made on this machine."""
    with tarfile.open(sdist) as archive:
        names = {name.partition("/")[2] for name in archive.getnames()}
    with zipfile.ZipFile(wheel) as archive:
        packed = set(archive.namelist())
    absent = [name for name in IN_SDIST if name not in names]
    absent += [name for name in IN_WHEEL if name not in packed]
    stray = [name for name in names | packed if any(part in name for part in NOT_IN_EITHER)]
    stray += [name for name in packed if name.startswith(("tests", "docs", "benchmarks", "papers"))]
    if absent or stray:
        raise SystemExit(f"missing from the archives: {absent}; should not be there: {stray[:5]}.")
    say(f"{sdist.name}: {len(names)} files; {wheel.name}: {len(packed)} files")


def try_out(archive: Path, folder: Path) -> None:
    """A clean environment, away from the repository, and the page run there."""
    venv.create(folder / "venv", with_pip=True)
    python = folder / "venv" / "bin" / "python"
    pip = (python, "-m", "pip", "install", "--quiet", "--disable-pip-version-check")
    call(*pip, f"{archive}[all]", where=folder)
    for name in ("pages.py", "rows.py", "start.md"):
        shutil.copy(ROOT / "docs" / name, folder)
    where = (
        "import kalvi; assert 'venv' in kalvi.__file__, kalvi.__file__; print(kalvi.__version__)"
    )
    call(python, "-I", "-c", where, where=folder)
    call(python, "pages.py", "start.md", where=folder)
    say(f"{archive.name}: installs in a clean environment and runs the five-minute start")


def main() -> None:
    """Everything, in folders that are removed again; the archives stay in dist/."""
    shutil.rmtree(ROOT / "dist", ignore_errors=True)
    wheel, sdist = build(ROOT / "dist")
    check_contents(wheel, sdist)
    for archive in (wheel, sdist):
        with tempfile.TemporaryDirectory() as folder:
            try_out(archive, Path(folder))


if __name__ == "__main__":
    main()
