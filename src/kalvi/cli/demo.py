"""`kalvi demo`: learn a stream and draw it; `kalvi reproduce`: run the experiments of a checkout."""

import sys
from pathlib import Path
from typing import Any

import click
from tqdm import tqdm

from kalvi.cli import console, outputs

CHECKOUT = Path(__file__).resolve().parents[3]
"""The folder with `papers`, if kalvi runs from a checkout."""


@click.command()
@click.option("--rows", default=204_800, show_default=True, help="Rows of the stream.")
@click.option("--seed", default=0, show_default=True, help="Seed of the generated rows.")
@click.option(
    "--out",
    default="results/demo.png",
    show_default=True,
    type=click.Path(path_type=Path),
    help="The picture.",
)
@click.option("--force", is_flag=True, help="Replace a picture that is there.")
def demo(rows: int, seed: int, out: Path, force: bool) -> None:
    """Stream rows through a Bayesian logistic regression in one pass."""
    with console.errors_as_sentences():
        with console.late_imports():
            from kalvi import demo as experiment
            from kalvi import plots
        out.parent.mkdir(parents=True, exist_ok=True)
        outputs.check_picture_path(out, force=force)
        click.echo("generating rows and compiling ...", err=True)
        stream = experiment.generate(rows, seed)
        experiment.warm_up(stream)
        with tqdm(total=rows, desc="one pass", unit=" rows", unit_scale=True) as bar:

            def progress(seen: int, loss: float) -> None:
                bar.set_postfix_str(f"log loss {loss:.4f}", refresh=False)
                bar.update(seen - bar.n)

            outcome = experiment.learn(stream, progress)
        plots.save(experiment.draw(outcome), out)
    for name, value in experiment.summary(outcome):
        click.echo(f"{name:<38}{value}")
    click.echo(f"wrote {out}")


@click.command(
    short_help="Draw the figures of a paper and test its claims.",
    context_settings={"ignore_unknown_options": True},
    add_help_option=False,
)
@click.argument("arguments", nargs=-1, type=click.UNPROCESSED)
def reproduce(arguments: tuple[str, ...]) -> Any:
    """Draw the figures of a paper and test its claims, as `python -m papers` does in a checkout."""
    with console.errors_as_sentences():
        if not (CHECKOUT / "papers" / "__main__.py").exists():
            raise ValueError(
                "the papers' experiments are not part of the installed library; run `python -m papers` "
                "in a checkout of kalvi."
            )
        sys.path.insert(0, str(CHECKOUT))
        with console.late_imports():
            from papers.__main__ import reproduce as command
    return command.main(list(arguments), prog_name="kalvi reproduce")
