"""`kalvi` and `python -m kalvi`: the command line. Ctrl-C ends it at any time."""

from kalvi.system.interrupts import ending_at_once


def main() -> None:
    """Run the command line."""
    with ending_at_once():
        from kalvi.cli import main as command
    command(prog_name="kalvi")


if __name__ == "__main__":
    main()
