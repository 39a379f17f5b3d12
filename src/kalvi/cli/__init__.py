"""The command line. An error is one sentence and exit code 2; files are written completely or not at all.

Each module has the commands of one group, and imports nothing large at its top: a command first checks the
files that it was given, then imports what it needs (`console.late_imports`).
"""

from importlib.metadata import version

import click

from kalvi.cli import demo, factor, fit, inspect, predict, silk


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
    fit.fit,
    predict.predict,
    fit.update,
    fit.resume,
    inspect.merge,
    inspect.inspect,
    inspect.report,
    factor.factor,
    silk.silk,
    demo.demo,
    demo.reproduce,
):
    main.add_command(command)
