"""Schemas and rows: every key comes back, also one that breaks a rule; what makes no sense is refused."""

from __future__ import annotations

import lzma
import random
import re
import sqlite3
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from support import plain_manifest

from kdbtool.errors import KdbtoolError
from kdbtool.manifest import (
    ASKED_UNBUILT,
    BUILD,
    Key,
    Manifest,
    Note,
    Problem,
    parse_manifest,
    rows,
    sections,
    write_manifest,
)
from kdbtool.manifest.rules import schemas
from kdbtool.manifest.schema import Formula, SchemaError, Table, parse_formula
from kdbtool.miopen.finddb import FindSolution

RULES = schemas("6.4.3")
HEAD = "kdbtool-manifest format 1\nmiopen 6.4.3\nsources unknown\narch gfx1030\narch gfx906\n"
SCHEMA = (
    'kernel a.cl\n  schema\n    ""\n    -DA= *1\n    -DB= = * $2 $2\n    -DC= ? $2,$5 1,2=x 2,2=y\n'
    "    -DD= *2\n    -O3\n    -DE= 7\n"
)
PROBLEM = "problem 3-8-8-3x3-4-8-8-2-1x1-1x1-1x1-0-NCHW-FP32-F\n"


def text_of(body: str, head: str = HEAD) -> bytes:
    return (head + body).encode()


def args_of(body: str) -> list[str]:
    keys = parse_manifest(text_of(body), "m").expand()
    return [key.args.decode() for key in keys]


def refused(body: str) -> str:
    with pytest.raises(KdbtoolError) as caught:
        parse_manifest(text_of(body), "m.txt")
    assert caught.value.exit_code == 2
    assert "\n" not in caught.value.line()
    return caught.value.line()


def test_every_kind_of_rule_gives_its_value() -> None:
    assert args_of(SCHEMA + "  rows gfx1030\n 1 2\n 2 2\n") == [
        " -DA=1 -DB=1 -DC=x -DD=2 -O3 -DE=7 -mcpu=gfx1030",
        " -DA=2 -DB=4 -DC=y -DD=2 -O3 -DE=7 -mcpu=gfx1030",
    ]


def test_a_row_that_breaks_a_rule_carries_its_value_and_others_go_by_it() -> None:
    assert args_of(SCHEMA + "  rows gfx1030\n 9 9 $3=5 $4=z $7=8\n") == [
        " -DA=9 -DB=5 -DC=z -DD=9 -O3 -DE=8 -mcpu=gfx1030"
    ]
    chain = "kernel a.cl\n  schema\n    -DA= 3\n    -DB= = + 1 $1\n    -DC= = * 2 $2\n"
    assert args_of(chain + "  rows gfx1030\n -\n - $1=5\n - $2=9\n") == [
        "-DA=3 -DB=4 -DC=8 -mcpu=gfx1030",
        "-DA=3 -DB=9 -DC=18 -mcpu=gfx1030",
        "-DA=5 -DB=6 -DC=12 -mcpu=gfx1030",
    ]


@pytest.mark.parametrize(
    ("words", "value"),
    [
        ("+ $1 2", 9), ("- 2 $1", -5), ("* $1 $1", 49), ("/ $1 2", 3), ("^ $1 2", 4), ("% $1 4", 3),
        ("/ - 0 $1 2", -4), ("^ - 0 $1 2", -3), ("% - 0 $1 4", 1), ("- + 1 $1 * 2 3", 2),
    ],
)  # fmt: skip
def test_formulas(words: str, value: int) -> None:
    schema = f"kernel a.cl\n  schema\n    -DA= 7\n    -DB= = {words}\n  rows gfx1030\n -\n"
    assert args_of(schema) == [f"-DA=7 -DB={value} -mcpu=gfx1030"]


@pytest.mark.parametrize("state", ["kernel", "unbuilt"])
def test_a_row_stands_for_both_spellings_unless_it_is_marked(state: str) -> None:
    once = " -DA=%s -DMIOPEN_USE_FP16=1 -DMIOPEN_USE_FP32=0 -DMIOPEN_USE_RNE_BFLOAT16=1"
    schema = f'{state} a.cl\n  schema\n    ""\n    -DA= *1\n    -DMIOPEN_USE_FP16= *2\n'
    schema += "    -DMIOPEN_USE_FP32= = - 1 $3\n    -DMIOPEN_USE_RNE_BFLOAT16= 1\n"
    found = args_of(schema + "  rows gfx1030\n 1 1\n 2 1 !once\n 3 1 !twice\n")
    block = once[len(" -DA=%s") :]
    assert sorted(found) == sorted(
        f"{args} -mcpu=gfx1030" for args in (once % 1, once % 1 + block, once % 2, once % 3 + block)
    )


def test_rows_of_several_architectures_are_written_once() -> None:
    (name, by_shape), *_ = ((n, s) for n, s in RULES.items() if n == b"MIOpenIm2d2Col.cl.o")
    (schema,) = by_shape.values()
    fields = [["1", "1", "0", "1", "9"], ["0", "1", "1", "0", "9"]]
    columns = schema.values(fields, [{}, {}])
    options = []
    for n in (0, 1):
        values = [(columns[at][n] if o.rule else None) or "" for at, o in enumerate(schema.options)]
        options.append(" ".join(o.name + value for o, value in zip(schema.options, values, strict=True)))
    keys = [Key(name, f"{options[0]} -mcpu={arch}".encode(), arch) for arch in ("gfx1030", "gfx906")]
    keys += [Key(name, f"{options[1]} -mcpu=gfx906".encode(), "gfx906")]
    out = write_manifest(Manifest(miopen="6.4.3", keys={key: Note() for key in keys}))
    assert [line for line in out.decode().split("\n") if line.startswith("  rows")] == [
        "  rows gfx1030 gfx906", "  rows gfx906",
    ]  # fmt: skip
    assert parse_manifest(out, "m").keys.keys() == set(keys)


def sample(shared: Path) -> list[Key]:
    with lzma.open(shared / "data" / "keys.gfx1030-sample.tsv.xz") as file:
        pairs = [line.rstrip(b"\n").split(b"\t") for line in file]
    return [Key(name, args, "gfx1030") for name, args in pairs]


def test_the_sample_comes_back_by_both_readers_a_tenth_of_its_size(shared: Path) -> None:
    keys = sample(shared)
    text = write_manifest(Manifest(miopen="6.4.3", keys={key: Note() for key in keys}))
    assert parse_manifest(text, "m").keys.keys() == set(keys)
    assert plain_manifest.read(text.decode()) == {(k.name, k.args, k.arch, k.state) for k in keys}
    assert len(text) * 10 < sum(len(key.name) + len(key.args) for key in keys)
    lines = text.decode().split("\n")
    assert sum(line.startswith("  key ") for line in lines) < 30


def test_a_real_kdb_comes_back_by_both_readers(shared: Path) -> None:
    db = sqlite3.connect(f"file:{shared / 'data' / 'gfx942.kdb'}?mode=ro&immutable=1", uri=True)
    pairs = db.execute("SELECT CAST(kernel_name AS BLOB), CAST(kernel_args AS BLOB) FROM kern_db").fetchall()
    db.close()
    keys = {Key(name, args, "gfx942"): Note() for name, args in pairs}
    text = write_manifest(Manifest(miopen="6.4.3", keys=keys))
    assert plain_manifest.read(text.decode()) == {(k.name, k.args, k.arch, k.state) for k in keys}


def test_rules_hold_for_nearly_all_of_the_sample(shared: Path) -> None:
    """It was harvested in one process, where a read unit can be another problem's (docs/harvest.md), and with
    tuned parameters, which the rules have not seen."""
    text = write_manifest(Manifest(miopen="6.4.3", keys={key: Note() for key in sample(shared)})).decode()
    whole = [line for block in text.split("\n\n") if "_LxG_P53" not in block for line in block.split("\n")]
    in_rows = [line for line in whole if re.match(r" [^ #]", line)]
    broken = [line for line in in_rows if " $" in line]
    assert len(in_rows) > 5000
    assert len(broken) < len(in_rows) / 20


NAMES = sorted((name, shape) for name, by_shape in RULES.items() for shape in by_shape)
VALUES = st.sampled_from(["0", "1", "2", "7", "-3", "64", "1000000007", "9" * 18, "_FLOAT2", "x", "01"])


@given(st.data())
@settings(max_examples=150, deadline=None)
def test_any_values_of_a_known_arrangement_come_back(data: st.DataObject) -> None:
    name, shape = data.draw(st.sampled_from(NAMES))
    valued = sum(word.endswith("=") for word in shape)
    keys = {}
    for _ in range(data.draw(st.integers(1, 4))):
        values = iter(data.draw(st.lists(VALUES, min_size=valued, max_size=valued)))
        options = " ".join(word + (next(values) if word.endswith("=") else "") for word in shape)
        keys[Key(name, f"{options} -mcpu=gfx90a".encode(), "gfx90a")] = Note()
    text = write_manifest(Manifest(miopen="6.4.3", keys=keys))
    back = parse_manifest(text, "m")
    assert back.keys.keys() == keys.keys()
    assert write_manifest(back) == text
    assert plain_manifest.read(text.decode()) == {(k.name, k.args, k.arch, k.state) for k in keys}


def test_adding_keys_adds_lines(shared: Path) -> None:
    keys = [key for key in sample(shared) if b"naive" not in key.name]
    rng = random.Random(1)
    both = {key for key in keys if key.name.startswith((b"static", b"MIOpenConvDirUni"))}
    some = {key for key in both if rng.random() < 0.5}
    # pairs of spellings stay together, as `manifest` writes them
    once = {(k.name, k.args.replace(b" -DMIOPEN_USE_FP16=", b"", 1)[:300]) for k in some}
    some = {k for k in both if (k.name, k.args.replace(b" -DMIOPEN_USE_FP16=", b"", 1)[:300]) in once}
    before = write_manifest(Manifest(miopen="6.4.3", keys={k: Note() for k in some})).split(b"\n")
    after = iter(write_manifest(Manifest(miopen="6.4.3", keys={k: Note() for k in both})).split(b"\n"))
    assert all(any(line == later for later in after) for line in before)


def test_comments_on_rows_schemas_and_options_survive() -> None:
    name = "MIOpenIm2d2Col.cl"
    (schema,) = RULES[name.encode() + b".o"].values()
    lines = "".join(f"    {rows.option_line(option)}\n" for option in schema.options)
    row = " ".join(["1"] * len(schema.fields))
    other = " ".join(["2"] * len(schema.fields))
    broken = " ".join(f"${i + 1}=0" for i in schema.order)
    body = f"# block\nkernel {name}\n # on the schema\n  schema\n{lines}  rows gfx1030\n"
    body += f" # of one\n {row} {broken}\n {other} {broken}\n# end\n"
    text = write_manifest(parse_manifest(text_of(body), "m"))
    again = write_manifest(parse_manifest(text, "m"))
    assert again == text
    out = text.decode()
    assert f"# block\n# on the schema\nkernel {name}\n" in out
    assert out.count(" # of one\n") == 1
    assert out.index(" # of one\n") < out.index(f"\n {row}")
    assert out.endswith("# end\n")


def test_problems_profile_and_find_db_come_back() -> None:
    key = "64-56-56-1x1-128-56-56-32-0x0-1x1-1x1-0-NCHW-FP32-F"
    solution = FindSolution("GemmFwd1x1_0_1", "0.051", "1024", "miopenConvolutionFwdAlgoGEMM", False)
    manifest = Manifest(
        find_db="ab" * 32,
        profile={"cu": "36", "MIOPEN_DEBUG_CONV_GEMM": "a b"},
        problems={key: Problem(Note(comments=("# why",)), [solution], {"ConvAsm1x1U": "4,8", "X": 'a "b"'})},
    )
    text = write_manifest(manifest)
    back = parse_manifest(text, "m")
    assert (back.find_db, back.profile) == (manifest.find_db, manifest.profile)
    assert back.problems[key].solutions == [solution]
    assert back.problems[key].tuned == manifest.problems[key].tuned
    assert back.problems[key].note.comments == ("# why",)
    assert write_manifest(back) == text


FEW = SCHEMA + "  rows gfx1030\n"


@pytest.mark.parametrize(
    ("body", "line", "words"),
    [
        (FEW + " 1\n", 16, "1 values: the schema has 2 fields"),
        (FEW + " 1 2 3\n", 16, "not an option's own value: '3'"),
        (FEW + " 1 2 $9=1\n", 16, "not an option's own value"),
        (FEW + " 1 2 $0=1\n", 16, "not an option's own value"),
        (FEW + " 1 2 $2=1\n", 16, "a value too many"),
        (FEW + " 1 2 $6=1\n", 16, "a value too many"),
        (FEW + " 1 2 $3=1 $3=2\n", 16, "a value too many"),
        (FEW + ' 1 "2"\n', 16, "not a value"),
        (FEW + " 1  2\n", 16, "not a value"),
        (FEW + " 3 2\n", 16, "a value cannot be worked out: -DC="),
        (FEW + " x 2 $4=1\n", 16, "a value cannot be worked out: -DB="),
        (FEW + " 999999999999999999 2 $4=1\n", 16, "a value cannot be worked out: -DB="),
        (FEW + " 1 2\n 1 2\n", 17, "duplicate key: first on line 16"),
        (FEW + " 1 2 !once\n", 16, "!once of a row that has one spelling"),
        (FEW + "\t1 2\n", 16, "tab"),
        (FEW + "<<<<<<< HEAD\n 1 2\n", 16, "git conflict marker"),
        (FEW + "   1 2\n", 16, "wrong indent"),
        (FEW + " 1 2\n    -DF= 1\n", 17, "an option outside a schema"),
        (SCHEMA + "  rows gfx90a\n", 15, "arch gfx90a is not in the header"),
        (SCHEMA + "  rows gfx906 gfx1030\n", 15, "architectures out of order"),
        (SCHEMA + "  rows gfx1030 gfx1030\n", 15, "architectures out of order"),
        (SCHEMA + "  rows\n", 15, "not an architecture"),
        (FEW + " 1 2\n  rows gfx1030\n", 17, "rows of these architectures again"),
        ("kernel a.cl\n  rows gfx1030\n", 7, "rows without a schema"),
        ("kernel a.cl\n 1 2\n", 7, "a row outside rows"),
        ("  schema\n", 6, "outside a block"),
        (FEW + " 1 2\nkernel b.cl\n  rows gfx1030\n", 18, "rows without a schema"),
        (FEW + SCHEMA.replace("kernel a.cl\n", ""), 23, "a second schema of the same options"),
        ("kernel a.cl\n  schema x\n", 7, "something behind schema"),
        ("kernel a.cl\n  schema\nkernel b.cl\n", 8, "bad schema above: no option in it"),
        ("kernel a.cl\n  schema\n    -DA=\n", 8, "bad rule of -DA="),
        ("kernel a.cl\n  schema\n    -DA 5\n", 8, "a rule for -DA"),
        ("kernel a.cl\n  schema\n    -DA=B= 5\n", 8, "not an option"),
        ("kernel a.cl\n  schema\n    -DA= *0\n", 8, "a field is * and its place"),
        ("kernel a.cl\n  schema\n    -DA= *2\n  rows gfx906\n", 9, "fields [2], not 1 to 1"),
        ("kernel a.cl\n  schema\n    -DA= *1\n    -DB= *1\n  rows gfx906\n", 10, "fields [1, 1]"),
        ("kernel a.cl\n  schema\n    -DA= = $2\n    -DB= = $1\n  rows gfx906\n", 10, "from each other"),
        ("kernel a.cl\n  schema\n    -DA= = $3\n    -DB= 1\n  rows gfx906\n", 10, "follows from $3, which"),
        ("kernel a.cl\n  schema\n    -DA= = + $1\n", 8, "ends too early"),
        ("kernel a.cl\n  schema\n    -DA= = $1 $1\n", 8, "behind the end of a formula"),
        ("kernel a.cl\n  schema\n    -DA= = + 1 2\n", 8, "a formula without an option"),
        ("kernel a.cl\n  schema\n    -DA= = + $1 x\n", 8, "no word of a formula: x"),
        ("kernel a.cl\n  schema\n    -DA= = " + "+ " * 64 + "$1\n", 8, "more than 64 words"),
        ("kernel a.cl\n  schema\n    -DA= ? $1\n", 8, "a table of 0 entries"),
        ("kernel a.cl\n  schema\n    -DA= ? x 1=1\n", 8, "a table begins with the options"),
        ("kernel a.cl\n  schema\n    -DA= ? $1 1,2=1\n", 8, "no entry of a table"),
        ("kernel a.cl\n  schema\n    -DA= ? $1 1=1 1=2\n", 8, "no entry of a table, or its second"),
        ("kernel a.cl\n  schema\n" + "    -DA= 1\n" * 1001 + "  rows gfx906\n", 1009, "over 1000 options"),
        ("profile 1x y\n", 6, "not a name, or there twice"),
        ("profile cu 36\nprofile cu 36\n", 7, "not a name, or there twice"),
        ("find-db unknown\n", 6, "not a hash"),
        (PROBLEM + "  find X 1 2\n", 7, "not a solution"),
        (PROBLEM + "  find X 1 2 bad\n", 7, "not a solution: X 1 2 bad"),
        (PROBLEM + "  tuned X\n", 7, "not a string"),
        (PROBLEM + "  lost X\n", 7, "unknown field lost: format 1 has find, tuned"),
    ],
)  # fmt: skip
def test_what_makes_no_sense_is_refused_with_its_line(body: str, line: int, words: str) -> None:
    message = refused(body)
    assert message.startswith(f"m.txt:{line}: "), message
    assert words in message


def test_format_0_has_none_of_it() -> None:
    head = HEAD.replace("format 1", "format 0")
    for body in (SCHEMA, "find-db unknown\n", "profile cu 1\n"):
        with pytest.raises(KdbtoolError, match=r"unknown field|format 0 has"):
            parse_manifest(text_of(body, head), "m")


def test_a_few_lines_cannot_mean_gigabytes(monkeypatch: pytest.MonkeyPatch) -> None:
    wide = "kernel a.cl\n  schema\n    -DN= *1\n" + f"    -DA= {'x' * 1000}\n" * 900 + "  rows gfx1030\n"
    rows_of = "".join(f" {n}\n" for n in range(3000))
    assert "too large when it is written out" in refused(wide + rows_of)
    monkeypatch.setattr(sections, "MAX_EXPANDED", 1000)
    assert "too large when it is written out" in refused(FEW + "".join(f" 1 2 $7={n}\n" for n in range(30)))


def test_the_data_holds_together() -> None:
    assert len(NAMES) > 30
    for by_shape in RULES.values():
        for shape, schema in by_shape.items():
            schema.check()
            assert schema.shape == shape
            assert any(isinstance(o.rule, Formula | Table) for o in schema.options) or len(shape) < 20


def test_formulas_come_back_as_text() -> None:
    text = "+ 1 / - $3 1 $2"
    assert " ".join(parse_formula(text).words) == text
    for bad in ("", "$0", "$12345", "+ $1 01", "+ $1 -0", "sin $1"):
        with pytest.raises(SchemaError):
            parse_formula(bad)


def test_states_do_not_mix() -> None:
    body = SCHEMA + "  rows gfx1030\n 1 2\n" + SCHEMA.replace("kernel", "unbuilt") + "  rows gfx1030\n 1 2\n"
    assert "duplicate key" in refused(body)
    (key,) = parse_manifest(text_of(SCHEMA.replace("kernel", "unbuilt") + "  rows gfx1030\n 1 2\n"), "m").keys
    assert (key.state, ASKED_UNBUILT) == (ASKED_UNBUILT, "asked-unbuilt") and BUILD == "build"
