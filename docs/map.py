"""Draws the packages of kalvi and what they import: `python docs/map.py` writes docs/images/map.svg.

Rows are the layers of the import contract in pyproject.toml. An arrow is an import of one package by
another; it is left out where a chain of other arrows implies it.
"""

import ast
import tomllib
from html import escape
from pathlib import Path

ROOT = Path(__file__).parents[1]
SOURCE = ROOT / "src" / "kalvi"
IMAGE = ROOT / "docs" / "images" / "map.svg"
WIDTH, ROW, BOX_WIDTH, BOX_HEIGHT = 960, 74, 148, 38
COLUMNS = 5
COLUMN = {
    "cli": 2,
    "distributed": 1,
    "tabular": 2,
    "demo": 3,
    "estimators": 2,
    "plots": 4,
    "collectors": 0,
    "evaluation": 1,
    "columns": 4,
    "streams": 0,
    "readers": 4,
    "archives": 3,
    "rules": 1,
    "predictors": 1,
    "likelihoods": 0,
    "kernels": 2,
    "gaussians": 1,
    "numerics": 1,
    "system": 2,
}
"""Where a package stands in its row, so that arrows pass between boxes; others stand at the left."""


def layers() -> list[list[str]]:
    """The packages of each layer, the highest first; the public namespaces are left out."""
    settings = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))
    rows = settings["tool"]["importlinter"]["contracts"][0]["layers"]
    return [[name.strip() for name in row.split("|")] for row in rows if not is_doors(row)]


def is_doors(row: str) -> bool:
    """Whether a layer is that of the modules which only give public names to what lies deeper."""
    return "schemes" in row.split(" | ")


def imports() -> dict[str, set[str]]:
    """The packages that each package imports."""
    known = {name for row in layers() for name in row}
    found: dict[str, set[str]] = {name: set() for name in known}
    for path in sorted(SOURCE.rglob("*.py")):
        package = path.relative_to(SOURCE).parts[0].removesuffix(".py")
        if package in known:
            found[package] |= imported_by(path) & known - {package}
    return found


def imported_by(path: Path) -> set[str]:
    """The first part below `kalvi` of everything that a file imports."""
    names = []
    for node in ast.walk(ast.parse(path.read_text("utf-8"))):
        if isinstance(node, ast.Import):
            names += [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom) and node.module:
            names += [f"{node.module}.{alias.name}" for alias in node.names]
    return {name.split(".")[1] for name in names if name.startswith("kalvi.")}


def arrows(found: dict[str, set[str]]) -> list[tuple[str, str]]:
    """The imports that no chain of other imports implies."""

    def reach(start: str) -> set[str]:
        return found[start].union(*(reach(name) for name in found[start]))

    return sorted(
        (package, used)
        for package, all_used in found.items()
        for used in all_used
        if not any(used in reach(other) for other in all_used - {used})
    )


def places() -> dict[str, tuple[float, float]]:
    """The centre of each package's box."""
    return {
        name: ((COLUMN.get(name, 0) + 0.5) * WIDTH / COLUMNS, (row + 0.5) * ROW)
        for row, names in enumerate(layers())
        for name in names
    }


def draw() -> str:
    """The map as SVG."""
    at, height = places(), ROW * len(layers())
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {height}" role="img" '
        'aria-labelledby="title" font-family="system-ui, \'Segoe UI\', Helvetica, Arial, sans-serif">',
        '  <title id="title">The packages of kalvi and what they import</title>',
        '  <defs><marker id="tip" viewBox="0 0 10 10" refX="9" refY="5" markerWidth="7" markerHeight="7" '
        'orient="auto"><path d="M0 0 L10 5 L0 10 z" fill="#8a929b"/></marker></defs>',
        f'  <rect width="{WIDTH}" height="{height}" rx="14" fill="#f6f8fa"/>',
    ]
    parts += [line(at[package], at[used]) for package, used in arrows(imports())]
    parts += [box(name, *centre) for name, centre in at.items()]
    return "\n".join([*parts, "</svg>\n"])


def line(start: tuple[float, float], end: tuple[float, float]) -> str:
    """An arrow from the lower edge of one box to the upper edge of another."""
    top, bottom = start[1] + BOX_HEIGHT / 2, end[1] - BOX_HEIGHT / 2
    bend = (bottom - top) / 2
    return (
        f'  <path d="M{start[0]:g} {top:g} C{start[0]:g} {top + bend:g} {end[0]:g} {bottom - bend:g} '
        f'{end[0]:g} {bottom:g}" fill="none" stroke="#b4bbc3" stroke-width="1.5" marker-end="url(#tip)"/>'
    )


def box(name: str, x: float, y: float) -> str:
    """A package, named in the middle of its box."""
    return (
        f'  <rect x="{x - BOX_WIDTH / 2:g}" y="{y - BOX_HEIGHT / 2:g}" width="{BOX_WIDTH}" '
        f'height="{BOX_HEIGHT}" rx="8" fill="#ffffff" stroke="#c4560f" stroke-width="1.5"/>\n'
        f'  <text x="{x:g}" y="{y + 6:g}" text-anchor="middle" font-size="17" fill="#22262b">'
        f"{escape(name)}</text>"
    )


if __name__ == "__main__":
    IMAGE.write_text(draw(), "utf-8")
