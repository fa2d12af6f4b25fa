"""Field case 12 (rocm-libraries#6384): the manifest names MIOpenConvBwdBias.cl, which the tree lacks."""

from support.rebuild_bench import GOOD, Bench, bench
from support.rebuilding import key

from kdbtool.kdb.reader import open_kdb
from kdbtool.miopen.liveness import judge
from kdbtool.miopen.versions import resolve
from kdbtool.reasons import Reason

GONE = key(" -DFAKE=good -DB=1", "MIOpenConvBwdBias.cl")


__all__ = ["bench"]  # a fixture


def test_012(bench: Bench) -> None:
    done = bench.rebuild([GOOD, GONE])
    assert done.code == 1
    assert "MIOpenConvBwdBias.cl is not among the sources" in done.err
    assert "MIOpen has it from 5.0 to 7.2, so a newer one removed it" in done.err
    assert "1 rows not built: source-absent" in done.out
    with open_kdb(bench.output) as reader:
        assert [(row.name, row.args) for row in reader] == [(GOOD.name, GOOD.args)]


def test_012_is_dead_where_the_build_has_it_not() -> None:
    build = resolve("7.2.4")
    assert judge(GONE.name, GONE.args, "gfx942", build) == []
    gone = "MIOpenPooling.cl.o"  # of this one the removal is in the known lists
    assert judge(gone.encode(), GONE.args, "gfx942", build) == [Reason.NO_SOURCE]
