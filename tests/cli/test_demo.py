"""kalvi demo and reproduce, and what every command shares: errors of one sentence, nothing half-written."""

import csv
import importlib
import json
import sys
from importlib.metadata import version

import pytest
from click.testing import CliRunner

from kalvi import cli
from papers import __main__ as papers


def run(*arguments):
    return CliRunner().invoke(cli.main, [str(a) for a in arguments])


def sentence(result):
    """The error a person sees, after checking that it is one and that nothing else happened."""
    assert result.exit_code == 2
    assert "Traceback" not in result.output
    (line,) = [line for line in result.stderr.splitlines() if line.startswith("Error: ")]
    return line


def test_version():
    assert run("--version").output == f"kalvi {version('kalvi')}\n"


def test_help_names_the_commands():
    text = run("--help").output
    assert "demo" in text
    assert "reproduce" in text


QUICK_NOTE = "quick run: smaller problems than the paper's, no verdict on it"


def claims(folder):
    with open(folder / "claims.csv", newline="") as file:
        return list(csv.DictReader(file))


def test_reproduce_one_figure(tmp_path):
    result = run("reproduce", "rvga", 12, "--out", tmp_path)
    assert result.exit_code == 0, result.output
    assert "3 of 3 claims held" in result.output
    folder = tmp_path / "rvga"
    assert sorted(p.name for p in folder.iterdir()) == [
        "claims.csv",
        "figure_12.csv",
        "figure_12.json",
        "figure_12.png",
    ]
    assert [row["verdict"] for row in claims(folder)] == ["held"] * 3
    assert (folder / "figure_12.png").read_bytes().startswith(b"\x89PNG")
    record = json.loads((folder / "figure_12.json").read_text())
    assert record["run"] == "full" and record["seconds"] > 0 and "cores" in record["machine"]


def test_a_quick_run_says_so_and_gives_no_verdict(tmp_path, monkeypatch):
    drawn = []
    monkeypatch.setattr("kalvi.plots.save", lambda figure, path: drawn.append(figure))
    result = run("reproduce", "rvga", 12, "--quick", "--out", tmp_path)
    assert result.exit_code == 0, result.output
    assert QUICK_NOTE in result.output and "claims held" not in result.output
    assert drawn[0].get_supxlabel() == QUICK_NOTE
    assert {row["verdict"] for row in claims(tmp_path / "rvga")} == {"quick run"}
    with open(tmp_path / "rvga" / "figure_12.csv", newline="") as file:
        assert {row["run"] for row in csv.DictReader(file)} == {"quick"}


def test_reproduce_all_figures_and_resume(tmp_path, monkeypatch):
    made = []

    def counted(number):
        figure = experiments.FIGURES[number]
        return lambda quick: made.append(number) or figure(quick)

    experiments = importlib.import_module("papers.rvga")
    monkeypatch.setattr(experiments, "FIGURES", {n: counted(n) for n in (1, 2)})
    monkeypatch.setattr(papers, "PAPERS", {"rvga": "papers.rvga"})
    for arguments in (["rvga", "1"], ["all", "--resume"], ["rvga", "--resume", "--quick"]):
        result = CliRunner().invoke(papers.reproduce, [*arguments, "--out", str(tmp_path)])
        assert result.exit_code == 0, result.output
    assert made == [1, 2]
    assert len(claims(tmp_path / "rvga")) == 5
    assert len(list((tmp_path / "rvga").iterdir())) == 7


def test_a_quick_run_does_not_count_as_done(tmp_path):
    arguments = ["rvga", "1", "--out", str(tmp_path)]
    for more in (["--quick"], ["--resume"]):
        result = CliRunner().invoke(papers.reproduce, [*arguments, *more])
        assert result.exit_code == 0, result.output
    assert {row["verdict"] for row in claims(tmp_path / "rvga")} <= {"held", "refuted"}


def test_how_long_is_left():
    assert papers._left([600.0, 300.0], 2.0) == ", about 30 min left"
    assert papers._left([600.0, None], 0.5) == ", about 5 min left and 1 of unknown length"
    assert papers._left([None], 1.0) == ""


def test_a_stop_keeps_what_was_made(tmp_path, monkeypatch):
    def stopped(quick):
        raise KeyboardInterrupt

    experiments = importlib.import_module("papers.rvga")
    monkeypatch.setattr(experiments, "FIGURES", {12: experiments.FIGURES[12], 13: stopped})
    result = CliRunner().invoke(papers.reproduce, ["rvga", "--out", str(tmp_path)])
    assert "stopped; what was made is kept, and --resume makes the rest." in result.output
    assert (tmp_path / "rvga" / "figure_12.json").is_file()


@pytest.mark.slow(reason="compiles the demo and draws it")
def test_demo(tmp_path):
    out = tmp_path / "new" / "demo.png"
    result = run("demo", "--rows", 500, "--out", out)
    assert result.exit_code == 0, result.output
    for words in ("rows per second", "log loss on new rows", "calibration error", f"wrote {out}"):
        assert words in result.output
    assert [p.name for p in out.parent.iterdir()] == ["demo.png"]


@pytest.mark.parametrize("number", [0, 17, -3])
def test_a_figure_that_is_not_there(tmp_path, number):
    arguments = ["--out", str(tmp_path), "--", "rvga", str(number)]
    result = CliRunner().invoke(papers.reproduce, arguments)
    assert sentence(result) == f"Error: rvga has figures 1 to 16, nuts; got {number}."
    assert list(tmp_path.iterdir()) == []


def test_a_table_that_is_not_there(tmp_path):
    message = sentence(run("reproduce", "lrvga", "table4", "--out", tmp_path))
    assert (
        message == "Error: lrvga has figures 1 to 5, table1, table2, table3, optimiser; got table4."
    )
    message = sentence(run("reproduce", "silk", "7", "--out", tmp_path))
    assert message == "Error: silk has figures 1 to 6, table1; got 7."


@pytest.mark.slow(reason="compiles a table of a paper")
def test_reproduce_a_table(tmp_path):
    result = run("reproduce", "lrvga", "table3", "--quick", "--out", tmp_path)
    assert result.exit_code == 0, result.output
    names = sorted(p.name for p in (tmp_path / "lrvga").iterdir())
    assert names == ["claims.csv", "table3.csv", "table3.json", "table3.png"]


def test_a_paper_that_is_not_there():
    papers = "rvga, lrvga, factor_analysis, vifa, klprox, silk"
    message = sentence(run("reproduce", "nobody"))
    assert message == f"Error: there is no paper 'nobody'; choose from {papers}."


def test_an_output_folder_that_is_a_file(tmp_path):
    (tmp_path / "taken").write_text("here first")
    for command in (("reproduce", "rvga", 1), ("demo", "--rows", 10)):
        out = tmp_path / "taken" if command[0] == "reproduce" else tmp_path / "taken" / "demo.png"
        assert "taken" in sentence(run(*command, "--out", out))
    assert (tmp_path / "taken").read_text() == "here first"


def test_a_picture_of_unknown_kind(tmp_path):
    assert "must end in .png, .pdf or .svg" in sentence(run("demo", "--out", tmp_path / "a.xyz"))


def test_no_rows(tmp_path):
    assert "at least one row; got 0" in sentence(
        run("demo", "--rows", 0, "--out", tmp_path / "a.png")
    )
    assert list(tmp_path.iterdir()) == []


def test_a_data_folder_that_is_not_there(tmp_path, monkeypatch):
    monkeypatch.setenv("KALVI_DATA", str(tmp_path / "nowhere"))
    assert "is not a directory" in sentence(run("reproduce", "rvga", 3, "--out", tmp_path / "out"))


def test_a_missing_package_says_what_to_install(monkeypatch):
    for name in [name for name in sys.modules if name.startswith("kalvi.plots")]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.delattr("kalvi.plots", raising=False)
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    assert "pip install 'kalvi[plots]'" in sentence(run("demo"))


def test_a_failed_write_leaves_nothing(tmp_path, monkeypatch):
    def full(*args, **kwargs):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("kalvi.archives.container.os.replace", full)
    assert "No space left on device" in sentence(
        run("reproduce", "rvga", 2, "--quick", "--out", tmp_path)
    )
    assert list((tmp_path / "rvga").iterdir()) == []


def test_reproduce_outside_a_checkout(tmp_path, monkeypatch):
    monkeypatch.setattr("kalvi.cli.demo.CHECKOUT", tmp_path)
    assert "run `python -m papers` in a checkout of kalvi" in sentence(run("reproduce", "rvga"))
