"""The command line. An error is one sentence and exit code 2; files appear whole or not at all."""

from importlib.metadata import version

import click

from kalvi.cli import demonstration, learning, matrices, using


@click.group(context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(version("kalvi"), message="%(prog)s %(version)s", prog_name="kalvi")
def main() -> None:
    """Gaussian variational inference that scales: a file in, a posterior you can trust out.

    \b
    kalvi fit flights.parquet --target late       learn in one pass: flights.kalvi
    kalvi predict flights.kalvi new.csv           probabilities with intervals
    kalvi update flights.kalvi july.parquet       learn from more rows
    kalvi report flights.kalvi                    one page to look at: flights.html
    """


for command in (
    learning.fit,
    using.predict,
    learning.update,
    learning.resume,
    using.merge,
    using.inspect,
    using.report,
    matrices.factor,
    matrices.silk,
    demonstration.demo,
    demonstration.reproduce,
):
    main.add_command(command)
