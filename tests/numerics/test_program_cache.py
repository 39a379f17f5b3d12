"""Compiled programs on disk, in processes of their own; JAX's events tell what was compiled or read."""

import os
import subprocess
import sys
import textwrap
from pathlib import Path

import pytest

TELL = """
import collections, jax, sys, jax.numpy as jnp
from kalvi.streams import run
events = collections.Counter()
jax.monitoring.register_event_listener(lambda event, **_: events.update([event.rsplit("/")[-1]]))
x = jnp.ones(3)
cubed = lambda a: a**3 + 1
"""
"""x is made by a program of the user's own."""
ASK = "run.call(cubed, x)\nprint(events['cache_misses'], events['cache_hits'])\n"
COMPILED, READ, NOT_ASKED = "1 0", "0 1", "0 0"
PROGRAM = TELL + ASK


def start(code: str, **environment: str) -> subprocess.Popen:
    kept = {
        name: value
        for name, value in os.environ.items()
        if not name.startswith(("JAX_", "KALVI_CACHE", "XDG_"))
    }
    return subprocess.Popen(
        [sys.executable, "-c", textwrap.dedent(code)],
        env=kept | environment,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def finish(process: subprocess.Popen, silent: bool = True) -> str:
    shown, said = process.communicate()
    assert process.returncode == 0, said
    assert not silent or said == ""
    return shown.strip() if silent else said


def run(code: str, **environment: str) -> str:
    return finish(start(code, **environment))


def programs(folder: Path) -> list[Path]:
    return sorted((folder / "programs").glob("*"))


def test_a_second_process_compiles_nothing(tmp_path):
    assert run(PROGRAM, KALVI_CACHE=str(tmp_path)) == COMPILED
    (kept,) = programs(tmp_path)
    written = kept.stat()
    assert run(PROGRAM, KALVI_CACHE=str(tmp_path)) == READ
    assert kept.stat().st_ino == written.st_ino
    assert kept.stat().st_mtime_ns > written.st_mtime_ns


def test_damaged_programs_are_compiled_again_and_replaced(tmp_path):
    run(PROGRAM, KALVI_CACHE=str(tmp_path))
    (kept,) = programs(tmp_path)
    kept.write_bytes(kept.read_bytes()[:-100])
    assert run(PROGRAM, KALVI_CACHE=str(tmp_path)) == COMPILED
    assert run(PROGRAM, KALVI_CACHE=str(tmp_path)) == READ


def test_processes_at_once_share_a_folder(tmp_path):
    together = [start(PROGRAM, KALVI_CACHE=str(tmp_path)) for _ in range(2)]
    assert {finish(process) for process in together} <= {COMPILED, READ}
    assert len(programs(tmp_path)) == 1
    assert run(PROGRAM, KALVI_CACHE=str(tmp_path)) == READ


@pytest.mark.skipif(sys.platform != "linux", reason="other systems name the folder in other ways")
def test_the_folder_of_the_user_is_the_default_and_off_is_off(tmp_path):
    home = {"XDG_CACHE_HOME": str(tmp_path)}
    assert run(PROGRAM, KALVI_CACHE="off", **home) == NOT_ASKED
    assert list(tmp_path.iterdir()) == []
    assert run(PROGRAM, **home) == COMPILED
    assert len(programs(tmp_path / "kalvi")) == 1


@pytest.mark.skipif(sys.platform != "linux", reason="other systems name the folder in other ways")
def test_a_default_folder_that_cannot_be_written_to_is_passed_over(tmp_path):
    (tmp_path / "file").write_text("")
    assert run(PROGRAM, XDG_CACHE_HOME=str(tmp_path / "file")) == COMPILED


@pytest.mark.skipif(sys.platform != "linux", reason="other systems name the folder in other ways")
def test_nothing_is_kept_of_a_user_without_a_home():
    unknown = """
import os, pwd
os.environ.pop("HOME", None)
def getpwuid(_): raise KeyError
pwd.getpwuid = getpwuid
"""
    assert run(unknown + PROGRAM) == NOT_ASKED


def test_a_named_folder_that_cannot_be_written_to_is_said_once(tmp_path):
    (tmp_path / "file").write_text("")
    twice = PROGRAM + "run.call(lambda a: a**4, x)\n"
    said = finish(start(twice, KALVI_CACHE=str(tmp_path / "file")), silent=False)
    assert said.count("every process compiles its programs again") == 1
    assert (
        "cannot be written to (Not a directory). Name another folder, or set KALVI_CACHE=off."
        in said
    )


def test_a_cache_of_the_user_is_used_instead(tmp_path):
    ours, theirs = tmp_path / "ours", tmp_path / "theirs"
    jax = {
        "JAX_COMPILATION_CACHE_DIR": str(theirs),
        "JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS": "0",
    }
    run(PROGRAM, KALVI_CACHE=str(ours), **jax)
    assert any("cubed" in file.name or "_call" in file.name for file in theirs.iterdir())
    assert not ours.exists()


def test_nothing_of_the_user_is_stored_or_changed(tmp_path):
    code = f"""
    {textwrap.indent(TELL, "    ").strip()}
    import threading
    from jax._src import compilation_cache
    from kalvi.numerics.program_cache import cached_programs

    def settings():
        return dict(jax.config.values), compilation_cache._cache, compilation_cache._cache_initialized

    before = settings()
    own = jax.jit(lambda a: a**5)
    jax.config.update("jax_persistent_cache_min_compile_time_secs", 0.0)
    own(x)
    during = settings()
    with cached_programs():  # another thread is none of ours
        thread = threading.Thread(target=lambda: own(jnp.ones(4)))
        thread.start()
        thread.join()
    run.call(cubed, x)
    own(jnp.ones(5))
    assert settings() == during and before[1:] == during[1:]
    assert events["cache_hits"] == 0
    with cached_programs():
        compilation_cache.reset_cache()

    jax.config.update("jax_compilation_cache_dir", {str(tmp_path / "theirs")!r})
    own(jnp.ones(6))
    run.call(cubed, jnp.ones(7))
    """
    run(code, KALVI_CACHE=str(tmp_path / "ours"))
    assert len(programs(tmp_path / "ours")) == 1
    assert len(list((tmp_path / "theirs").glob("*-cache"))) >= 2
