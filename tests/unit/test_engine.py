"""The rebuild engine with a stand-in for clang: whatever a compiler does costs its own rows and no others."""

from __future__ import annotations

import json
import re
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from support.rebuild_bench import GOOD, Bench, bench
from support.rebuilding import ARCH, TARGET, calls, kernel_folder, key, manifest_file

from kdbtool.manifest import ASKED_UNBUILT
from kdbtool.rebuild.place import ENVIRONMENT, MAX_LOG

__all__ = ["bench"]  # a fixture


@pytest.mark.parametrize(
    ("what", "reason", "detail"),
    [
        ("fail", "compile-failed", "this one is wrong"),
        ("silent", "compile-failed", "exit status 3"),
        ("hang", "compile-timeout", "still running after 1 s"),
        ("killed", "compile-killed", "signal 9"),
        ("segfault", "compile-killed", "signal 11"),
        ("garbage", "bad-object", ""),
        ("foreign", "bad-object", ""),
        ("nothing", "bad-object", "no output file"),
        ("empty", "bad-object", "empty"),
        ("huge", "compile-failed", ""),
        ("link", "bad-object", "no output file"),
        ("fifo", "bad-object", "no file"),
        ("folder", "bad-object", "no file"),
    ],
)
def test_what_a_compiler_does_costs_its_own_row(bench: Bench, what: str, reason: str, detail: str) -> None:
    bad = key(f" -DFAKE={what}")
    done = bench.rebuild([GOOD, bad], "--timeout", 1, "--json")
    assert done.code == 1, done.err
    report = json.loads(done.out)
    assert report["not_built"] == {reason: 1}
    assert report["failures"][0]["source"] == "kernel.cl"
    assert detail in report["failures"][0]["detail"]
    assert bench.rows() == [(GOOD.name.decode(), GOOD.args.decode())]
    assert len(list(bench.failed.glob("*-kernel.cl"))) == 1
    assert not list((bench.folder / "cache" / "work").iterdir())


def test_a_hanging_compiler_leaves_no_process(bench: Bench) -> None:
    bench.rebuild([key(" -DFAKE=hang")], "--timeout", 0.5)
    child = int((bench.compiler.parent / "child").read_text())
    status = Path(f"/proc/{child}/stat")
    assert not status.exists() or status.read_text().rpartition(")")[2].split()[0] in "ZX"


def test_a_failure_leaves_a_log_and_a_script_that_reproduces_it(bench: Bench) -> None:
    done = bench.rebuild([key(" -DFAKE=fail")])
    assert done.code == 1
    assert "compile-failed: kernel.cl:1:1: error: this one is wrong" in done.err
    assert not bench.output.exists()
    (folder,) = bench.failed.glob("*-kernel.cl")
    assert "this one is wrong" in (folder / "log.txt").read_text()
    assert "-DFAKE=fail" in (folder / "log.txt").read_text()
    again = subprocess.run([folder / "reproduce.sh"], capture_output=True, text=True, check=False)
    assert (again.returncode, again.stderr) == (1, "kernel.cl:1:1: error: this one is wrong\n")


def test_logs_of_an_earlier_run_go_when_it_builds(bench: Bench) -> None:
    bench.rebuild([key(" -DFAKE=fail")])
    (bench.failed / "mine.txt").write_text("not kdbtool's")
    assert bench.rebuild([GOOD]).code == 0
    assert [entry.name for entry in bench.failed.iterdir()] == ["mine.txt"]


def test_only_what_is_missing_is_compiled_again(bench: Bench) -> None:
    keys = [GOOD, key(" -DFAKE=fail"), key(" -DFAKE=good", "other.cl")]
    assert bench.rebuild(keys).code == 1
    assert sorted(calls(bench.compiler)) == ["fail", "good", "good"]
    assert bench.rebuild(keys, "--force").code == 1
    assert sorted(calls(bench.compiler)) == ["fail", "fail", "good", "good"]


def test_both_spellings_share_one_compilation(bench: Bench) -> None:
    block = " -DMIOPEN_USE_FP16=0 -DMIOPEN_USE_FP32=1"
    keys = [key(f" -DFAKE=good{block}"), key(f" -DFAKE=good{block}{block}")]
    done = bench.rebuild(keys, "--json")
    assert done.code == 0, done.err
    assert json.loads(done.out)["databases"][0] | {"path": "", "bytes": 0} == {
        "arch": ARCH,
        "path": "",
        "rows": 2,
        "objects": 1,
        "bytes": 0,
    }
    assert calls(bench.compiler) == ["good"]


def test_same_bytes_in_any_folder_with_any_number_of_workers(
    tmp_path: Path, bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    keys = [key(f" -DFAKE=good -DA={n}", name) for n in range(20) for name in ("kernel.cl", "other.cl")]
    assert bench.rebuild(keys, "-j", 1).code == 0
    first = bench.output.read_bytes()
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    monkeypatch.setenv("LC_ALL", "C.UTF-8")
    monkeypatch.setenv("SOURCE_DATE_EPOCH", "1234567890")
    bench.output = tmp_path / "else where" / "second.kdb"
    bench.output.parent.mkdir()
    manifest = manifest_file(tmp_path / "m.kdbmanifest", list(reversed(keys)), bench.sources)
    assert bench.rebuild(manifest, "-j", 2, "--cache", tmp_path / "cold").code == 0
    assert bench.output.read_bytes() == first
    assert bench.rebuild(manifest, "--force").code == 0  # cache hot
    assert bench.output.read_bytes() == first


def test_a_kill_loses_nothing_that_was_finished(bench: Bench) -> None:
    keys = [key(f" -DFAKE=slow -DA={n}") for n in range(12)]
    code = (
        "import sys; from kdbtool.cli import main, rebuild; "
        f"rebuild._target = lambda a, l: {TARGET!r}; sys.exit(main(sys.argv[1:], ('rebuild',)))"
    )
    command = [sys.executable, "-c", code, *(str(a) for a in bench.arguments(keys))]
    entries = bench.folder / "cache"
    for _ in range(2):
        before = len(list(entries.glob("??/[0-9a-f]*")))
        with subprocess.Popen(command) as process:
            while len(list(entries.glob("??/[0-9a-f]*"))) < before + 2:
                assert process.poll() is None
                time.sleep(0.02)
            process.send_signal(signal.SIGKILL)
        assert not bench.output.exists()
        assert not list(bench.folder.glob(".out.kdb*"))
    finished = len(list(entries.glob("??/[0-9a-f]*")))
    done = bench.rebuild(keys, "--json")
    assert done.code == 0
    assert json.loads(done.out)["reused"] >= finished >= 4
    assert len(bench.rows()) == 12
    first = bench.output.read_bytes()
    assert bench.rebuild(keys, "--force").code == 0
    assert bench.output.read_bytes() == first
    # The folders of killed runs are gone, too; the first run after a kill may find its workers still dying.
    assert not list((entries / "work").iterdir())
    assert bench.rebuild(keys, "--force", "--cache", bench.folder / "cold").code == 0
    assert bench.output.read_bytes() == first


def test_output_that_exists_is_refused_before_anything_is_compiled(bench: Bench) -> None:
    bench.output.write_text("mine")
    done = bench.rebuild([GOOD])
    assert (done.code, done.err.count("\n")) == (2, 1)
    assert "output exists; --force replaces it" in done.err
    assert calls(bench.compiler) == []
    assert bench.output.read_text() == "mine"


@pytest.mark.parametrize(
    "option", ["-fplugin=x.so", "@file", "-include x", "-DA=<x>", "-o x", "-I/", "-mcpu=gfx906"]
)
def test_a_forbidden_option_stops_the_run_and_names_its_row(bench: Bench, option: str) -> None:
    done = bench.rebuild([GOOD, key(f" {option}", "other.cl")])
    assert (done.code, done.err.count("\n")) == (2, 1)
    assert option.split()[0] in done.err
    assert "other.cl.o" in done.err and "line " in done.err
    assert calls(bench.compiler) == [] and not bench.output.exists()


def test_changed_sources_are_refused_by_name(bench: Bench) -> None:
    kernel_folder(bench.sources, "other.cpp")
    manifest = manifest_file(
        bench.folder / "m.kdbmanifest", [GOOD, key(" -DFAKE=good", "other.cpp")], bench.sources
    )
    (bench.sources / "other.cpp").write_text("// another text\n")
    done = bench.rebuild(manifest)
    assert (done.code, done.err.count("\n")) == (2, 1)
    assert "other.cpp (text and headers, 1 rows)" in done.err
    assert "kernel.cl" not in done.err.replace("other.cpp", "")
    assert not bench.output.exists()
    assert bench.rebuild(manifest, "--allow-changed").code == 0
    assert len(bench.rows()) == 2


def test_a_changed_header_is_refused(bench: Bench) -> None:
    kernel_folder(bench.sources, "other.cpp")
    keys = [key(" -DFAKE=good", "other.cpp")]
    manifest = manifest_file(bench.folder / "m.kdbmanifest", keys, bench.sources)
    (bench.sources / "shared.h").write_text("#define ONE 2\n")
    done = bench.rebuild(manifest)
    assert done.code == 2
    assert "other.cpp (headers, 1 rows)" in done.err


def test_rows_without_hashes_want_a_word(bench: Bench) -> None:
    manifest = manifest_file(bench.folder / "m.kdbmanifest", [GOOD], None, miopen=None)
    done = bench.rebuild(manifest, "--miopen", "6.4.3")
    assert done.code == 2
    assert "--allow-unknown" in done.err
    assert bench.rebuild(manifest, "--allow-unknown").code == 2  # still not known which MIOpen
    assert bench.rebuild(manifest, "--allow-unknown", "--miopen", "6.4.3").code == 0


def test_an_absent_source_is_skipped_and_counted(bench: Bench) -> None:
    keys = [GOOD, key(" -DFAKE=good", "absent.cl"), key(" --operation x", "gen.mlir")]
    done = bench.rebuild(keys, "--json")
    assert done.code == 1
    assert json.loads(done.out)["not_built"] == {"source-absent": 1, "no-compiler": 1}
    assert len(bench.rows()) == 1


def test_rows_that_were_never_built_are_counted_and_fine(bench: Bench) -> None:
    done = bench.rebuild([GOOD, key(" -DA=1", "winograd.s", state=ASKED_UNBUILT)])
    assert done.code == 0
    assert "1 rows left out: asked-unbuilt" in done.out


def test_nothing_to_build(bench: Bench) -> None:
    done = bench.rebuild([GOOD], "--kernel", "nothing")
    assert (done.code, done.err.count("\n")) == (1, 1)
    assert "1 rows filter" in done.err
    assert not bench.output.exists()


def test_a_damaged_cache_entry_is_built_again_and_said(bench: Bench) -> None:
    assert bench.rebuild([GOOD]).code == 0
    first = bench.output.read_bytes()
    (entry,) = (bench.folder / "cache").glob("??/[0-9a-f]*")
    data = bytearray(entry.read_bytes())
    data[-1] ^= 1
    entry.write_bytes(data)
    done = bench.rebuild([GOOD], "--force")
    assert done.code == 0
    assert "1 damaged objects in the cache" in done.err
    assert bench.output.read_bytes() == first
    entry.write_bytes(b"")
    assert bench.rebuild([GOOD], "--force").code == 0
    assert bench.output.read_bytes() == first


def test_a_compiler_that_is_none(bench: Bench) -> None:
    bench.compiler.write_text("#!/bin/sh\necho hello\n")
    done = bench.rebuild([GOOD])
    assert done.code == 2
    assert "builds none of the rows" in done.err and "hello" in done.err


def test_no_compiler_at_all(bench: Bench) -> None:
    missing = bench.compiler.with_name("missing")
    done = bench.rebuild([GOOD], "--compiler", missing)
    assert (done.code, done.err.count("\n")) == (2, 1)
    assert f"{missing}: no such compiler" in done.err


def test_a_machine_without_compiler_says_what_to_do(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("kdbtool.rebuild.choose._candidates", lambda root: [])
    manifest = manifest_file(bench.folder / "m.kdbmanifest", [GOOD], bench.sources)
    done = bench.run("rebuild", manifest, "--root", "none", "--sources", bench.sources)
    assert (done.code, done.err.count("\n")) == (2, 1)
    assert "no compiler for AMD GPUs" in done.err and "kdbtool root make" in done.err


def test_the_callers_environment_does_not_reach_a_compiler(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("CPATH", "/evil")
    monkeypatch.setenv("CCC_OVERRIDE_OPTIONS", "+-DEVIL=1")
    monkeypatch.setenv("HOME", "/evil")
    bench.rebuild([key(" -DFAKE=environment")])
    (log,) = bench.failed.glob("*/log.txt")
    text = log.read_text()
    assert "evil" not in text.lower()
    seen = {line.partition("=")[0] for line in text.splitlines() if re.match(r"\w+=", line)}
    assert seen - {"PWD", "OLDPWD", "SHLVL", "_"} == {*ENVIRONMENT, "TMPDIR"}


def test_the_memory_limit_reaches_the_compiler(bench: Bench) -> None:
    bench.rebuild([key(" -DFAKE=memory")], "--memory", 1)
    (log,) = bench.failed.glob("*/log.txt")
    assert log.read_text().splitlines()[-1] == str(1 << 20)


def test_a_compiler_that_prints_megabytes(bench: Bench) -> None:
    assert bench.rebuild([key(" -DFAKE=chatty")]).code == 0
    bench.compiler.write_text(
        bench.compiler.read_text()
        .replace("chatty) ", "chatty) echo 'x: error: first' >&2; ")
        .replace("tr '\\0' x >&2; good", "tr '\\0' x >&2; false; exit 1; good")
    )
    done = bench.rebuild([key(" -DFAKE=chatty -DB=1")], "--force")
    assert "compile-failed: x: error: first" in done.err
    (log,) = bench.failed.glob("*/log.txt")
    assert MAX_LOG < log.stat().st_size < MAX_LOG + 4096


def test_what_one_kernel_leaves_does_not_reach_the_next(bench: Bench) -> None:
    keys = [key(f" -DFAKE={what} -DA={n}") for n in range(4) for what in ("litter", "tidy")]
    assert bench.rebuild(keys, "-j", 1).code == 0


def test_a_manifest_of_unbuilt_rows_alone_is_an_empty_database(bench: Bench) -> None:
    done = bench.rebuild([key(" -DA=1", "winograd.s", state=ASKED_UNBUILT)])
    assert done.code == 0, done.err
    assert bench.rows() == []
    assert "1 rows left out: asked-unbuilt" in done.out
