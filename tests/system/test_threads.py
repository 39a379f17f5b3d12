"""Algebra on one thread: the limit holds inside, and is gone afterwards whoever comes and leaves."""

from threading import Event, Thread

import pytest
import scipy.linalg  # noqa: F401  (it comes with a BLAS of its own)
import threadpoolctl

from kalvi.system.threads import algebra_on_one_thread


def counts() -> list[int]:
    """How many threads each BLAS of this process has."""
    libraries = threadpoolctl.threadpool_info()
    return [lib["num_threads"] for lib in libraries if lib["user_api"] == "blas"]


@pytest.fixture
def before() -> list[int]:
    return counts()


def test_one_inside_and_as_before_afterwards(before):
    with algebra_on_one_thread():
        assert counts() == [1] * len(before)
        with algebra_on_one_thread():
            assert counts() == [1] * len(before)
        assert counts() == [1] * len(before)
    assert counts() == before


def test_an_error_inside_lifts_the_limit(before):
    with pytest.raises(KeyError), algebra_on_one_thread():
        raise KeyError
    assert counts() == before


def test_a_thread_that_leaves_first_leaves_no_limit_behind(before):
    inside, leave = Event(), Event()

    def work() -> None:
        with algebra_on_one_thread():
            inside.set()
            leave.wait(10)

    first = Thread(target=work)
    first.start()
    assert inside.wait(10)
    with algebra_on_one_thread():
        assert counts() == [1] * len(before)
        leave.set()
        first.join()
    assert counts() == before
    with algebra_on_one_thread():
        assert counts() == [1] * len(before)
    assert counts() == before
