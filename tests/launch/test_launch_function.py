"""``ringlet.run``: functions on new ranks."""

from __future__ import annotations

import math
import sys

import numpy as np
import pytest

from ringlet.errors import RankFailedError, UsageError
from ringlet.io import encoding
from ringlet.launch import run
from ringlet.launch.function import describe

USE = """
    import numpy as np
    from ringlet.launch import run

    def double(array, *, plus=0):
        from ringlet.comm.world import connect
        comm = connect()
        return {"rank": comm.rank, "sum": comm.allreduce(array * 2 + plus)}

    def helper():
        return 1

    def uses_helper():
        return helper()
"""


def run_script(begin, path, **environment):
    return begin([sys.executable, str(path)], environment).finish()


def test_a_function_of_a_script_runs_on_all_ranks(begin, script, launcher):
    path = script(
        USE
        + """
    if __name__ == "__main__":
        results = run(double, np.arange(3.0), plus=1, num_workers=2, timeout=60)
        print([result["rank"] for result in results], [result["sum"].tolist() for result in results])
        print(run(uses_helper, num_workers=1))
"""
    )
    done = run_script(begin, path, RINGLET_LAUNCHER=launcher)
    assert done.stdout == "[0, 1] [[2.0, 6.0, 10.0], [2.0, 6.0, 10.0]]\n[1]\n", done.stderr


def test_a_script_without_a_guard_is_told_so(begin, script):
    done = run_script(begin, script(USE + "\n    run(helper, num_workers=2)\n"), RINGLET_LAUNCHER="local")
    assert done.returncode == 1
    assert "if __name__ ==" in done.stderr


def test_a_function_known_by_its_source_alone_runs():
    def area(radius, names):
        return math.pi * radius**2, [name.upper() for name in names]

    results = run(area, 2.0, ["a", "b"], num_workers=2, launcher="local", timeout=60)
    assert results == [(math.pi * 4, ["A", "B"])] * 2


def test_what_ranks_print_is_passed_on(capsys):
    def chatty():
        import sys

        sys.stdout.write("hello\n")

    assert run(chatty, num_workers=2, launcher="local", timeout=60) == [None, None]
    assert sorted(capsys.readouterr().out.splitlines()) == ["[rank 1] hello", "hello"]


def test_a_function_of_a_module_is_found_by_name():
    assert describe(encoding.load) == {"kind": "module", "module": "ringlet.io.encoding", "name": "load"}


def test_an_exception_on_a_rank_comes_back_with_its_traceback(launcher):
    def broken(number):
        from ringlet.comm.world import connect

        comm = connect()
        if comm.rank == 1:
            raise ArithmeticError(f"no {number}")
        comm.barrier()

    with pytest.raises(
        RankFailedError, match=r"(?s)rank 1 of 2 .* failed:\nTraceback.*raise Arith.*ArithmeticError: no 5"
    ):
        run(broken, 5, num_workers=2, launcher=launcher, timeout=60)


def test_a_function_that_does_not_end_is_ended():
    def endless():
        import threading

        threading.Event().wait()

    with pytest.raises(RankFailedError, match=r"did not end within 0\.5 s: rank 0, 1 of 2"):
        run(endless, num_workers=2, launcher="local", timeout=0.5)


def test_a_result_that_cannot_be_sent_is_explained():
    def strange():
        return {"a": [object()]}

    with pytest.raises(RankFailedError, match=r"result of rank 0\['a'\]\[0\] is of type builtins\.object"):
        run(strange, num_workers=1, launcher="local", timeout=60)


def test_functions_that_workers_cannot_have_are_refused():
    secret = 5

    def closure():
        return secret

    def uses_global():
        return USE

    with pytest.raises(UsageError, match="uses secret of the function around it"):
        run(closure)
    with pytest.raises(UsageError, match="uses USE, which workers do not have"):
        run(uses_global)
    with pytest.raises(UsageError, match="define it with def"):
        run(lambda: 1)
    with pytest.raises(UsageError, match="is no plain function"):
        run(dict)


def test_arguments_that_cannot_be_sent_are_refused_before_a_start():
    with pytest.raises(UsageError, match=r"argument \[0\] is of type builtins\.object"):
        run(encoding.load, object())
    with pytest.raises(UsageError, match=r"argument \['x'\] is an array of object"):
        run(encoding.load, x=np.array([None]))


def test_results_come_back_although_nobody_reads_what_ranks_print(begin, tmp_path):
    script = tmp_path / "script.py"
    script.write_text(
        "import sys\n"
        "import ringlet\n"
        "def work(number):\n"
        "    print('x' * 200_000)\n"
        "    return number + 1\n"
        "if __name__ == '__main__':\n"
        "    results = ringlet.run(work, 41, num_workers=2, launcher='local')\n"
        "    sys.stdout = None\n"
        "    sys.exit(0 if results == [42, 42] else 9)\n"
    )
    job = begin(["sh", "-c", 'exec "$0" "$@" >/dev/full', sys.executable, str(script)])
    done = job.finish()
    assert done.returncode == 0, done.stderr
