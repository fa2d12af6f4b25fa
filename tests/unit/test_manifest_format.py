"""The manifest's text: every set of keys comes back byte for byte, everything else is refused by name."""

from __future__ import annotations

import hashlib
import lzma
import os
import random
import re
import sqlite3
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kdbtool.errors import KdbtoolError
from kdbtool.manifest import ASKED_UNBUILT, BUILD, Hashes, Key, Manifest, parse_manifest, write_manifest
from kdbtool.manifest.model import Note, Problem
from kdbtool.manifest.quote import quote, unquote
from kdbtool.manifest.reader import read_manifest
from kdbtool.miopen.keys import collapse, find_repeat

H = "ab" * 32
HEAD = "kdbtool-manifest format 0\nmiopen 6.4.3\nsources unknown\narch gfx1030\n"
LIST = b" -DMIOPEN_USE_FP16=0 -DMIOPEN_USE_FP32=1 -DMIOPEN_USE_INT8=0"


def manifest_of(keys: list[Key]) -> Manifest:
    return Manifest(miopen="6.4.3", keys={key: Note() for key in keys})


def round_trip(keys: list[Key]) -> bytes:
    text = write_manifest(manifest_of(keys))
    back = parse_manifest(text, "test")
    assert list(back.expand()) == sorted(set(keys))
    assert write_manifest(back) == text
    return text


def refused(text: str | bytes) -> str:
    with pytest.raises(KdbtoolError) as caught:
        parse_manifest(text.encode() if isinstance(text, str) else text, "m.txt")
    assert caught.value.exit_code == 2
    line = caught.value.line()
    assert "\n" not in line
    return line


# Any bytes, and bytes near every convention that the format knows.
PIECES = st.sampled_from(
    [
        b".o", b".cpp", b"..", b"/", b"-", b"naive_conv", b" ", b"  ", b"'", b'"', b"\\", b"\\x41", b"\0",
        b"\n", b"\r\n", b"\t", b"\xff", b"\xc3\xa4", b" -mcpu=", b"gfx1030", b"gfx90a:xnack-",
        b" -DMIOPEN_USE_FP16=0", LIST, LIST + LIST, b" -DA", b" -mllvm", b"#", b"=",
    ]
)  # fmt: skip
BYTES = st.one_of(st.binary(max_size=40), st.lists(PIECES, max_size=8).map(b"".join))
KEYS = st.builds(
    Key,
    name=BYTES,
    args=BYTES,
    arch=st.sampled_from(["", "gfx1030", "gfx90a", "gfx9-4-generic"]),
    state=st.just(BUILD),
)


@given(st.lists(KEYS, max_size=12), st.randoms(use_true_random=False))
@settings(max_examples=400, deadline=None)
def test_any_keys_come_back_whatever_their_order(keys: list[Key], rng: random.Random) -> None:
    text = round_trip(keys)
    rng.shuffle(keys)
    assert write_manifest(manifest_of(keys)) == text


@given(st.lists(KEYS, max_size=8), st.lists(KEYS, max_size=8))
@settings(max_examples=150, deadline=None)
def test_a_second_network_only_adds_lines(first: list[Key], second: list[Key]) -> None:
    before = write_manifest(manifest_of(first)).split(b"\n")
    after = iter(write_manifest(manifest_of(first + second)).split(b"\n"))
    assert all(any(line == later for later in after) for line in before)


@given(st.binary(max_size=60))
def test_quoting_has_one_spelling(data: bytes) -> None:
    text = quote(data)
    assert text.isascii() and text.isprintable()
    assert unquote(text[1:-1]) == data


@given(st.lists(KEYS, max_size=8), st.data())
@settings(max_examples=200, deadline=None)
def test_a_damaged_manifest_is_refused_in_one_line_or_read(keys: list[Key], data: st.DataObject) -> None:
    text = bytearray(write_manifest(manifest_of(keys)))
    for _ in range(data.draw(st.integers(1, 3))):
        at = data.draw(st.integers(0, len(text) - 1))
        text[at : at + data.draw(st.integers(0, 3))] = data.draw(st.binary(max_size=4))
        if not text:
            break
    try:
        back = parse_manifest(bytes(text), "m.txt")
    except KdbtoolError as error:
        assert error.exit_code == 2 and "\n" not in error.line()
    else:
        parse_manifest(write_manifest(back), "again")


def sample_keys(shared: Path) -> list[Key]:
    with lzma.open(shared / "data" / "keys.gfx1030-sample.tsv.xz") as file:
        rows = [line.rstrip(b"\n").split(b"\t") for line in file]
    return [Key(name, args, "gfx1030") for name, args in rows]


def test_every_key_of_the_gfx1030_sample_comes_back(shared: Path) -> None:
    keys = sample_keys(shared)
    assert len(set(keys)) == 20000
    text = round_trip(keys)
    assert text.isascii() and b"exact" not in text
    rows = [line for line in text.split(b"\n") if line[:1] == b" " and line[:2] != b"  "]
    assert 10000 < len(rows) < 20000  # one for both spellings


def test_both_spellings_are_one_variant_and_two_keys(shared: Path) -> None:
    keys = sample_keys(shared)
    doubled = [key for key in keys if key.args.count(b" -DMIOPEN_USE_FP16=") == 2]
    assert len(doubled) == 10022
    assert all(find_repeat(key.args) for key in doubled)
    both = [Key(k.name, collapse(k.args), k.arch) for k in doubled] + doubled
    variants = list(manifest_of(both).variants())
    assert {len(v.spellings) for v in variants} == {2}
    assert all(
        not v.args_once.count(b"-mcpu") and v.args_once.count(b" -DMIOPEN_USE_FP16=") == 1 for v in variants
    )


def test_every_key_of_the_gfx942_kdb_comes_back(shared: Path) -> None:
    db = sqlite3.connect(f"file:{shared / 'data' / 'gfx942.kdb'}?mode=ro&immutable=1", uri=True)
    rows = db.execute("SELECT CAST(kernel_name AS BLOB), CAST(kernel_args AS BLOB) FROM kern_db").fetchall()
    db.close()
    assert len(rows) == 321
    round_trip([Key(name, args, "gfx942") for name, args in rows])


def test_every_sample_option_string_comes_back(shared: Path) -> None:
    keys = []
    for path in sorted((shared / "reference" / "sample-options").glob("*.txt")):
        for line in path.read_bytes().split(b"\n"):
            for args in re.findall(rb'"([^"]*)"', line) if not line.startswith(b"#") else []:
                keys.append(Key(path.stem.encode() + b".o", args, "gfx906"))
    assert len(keys) == 195
    round_trip(keys)


def test_the_document_shows_a_valid_manifest() -> None:
    page = (Path(__file__).parents[2] / "docs" / "manifest-format.md").read_text("utf-8")
    example = page.split("```\n")[1]
    back = parse_manifest(example.encode(), "docs")
    assert len(back.keys) == 7 and len(list(back.variants())) == 5
    assert write_manifest(back).decode() == example


def test_comments_move_with_their_entry() -> None:
    text = (
        "kdbtool-manifest format 0\n# of the header\nmiopen unknown\nsources unknown\narch gfx1030\n\n"
        '# above z\nkernel z.cpp\n  # above 2\n  key gfx1030 "2"\n  key gfx1030 "1"\n\n'
        f"# above a, ünïcode\nkernel a.cpp\n  # on the hash\n  source sha256:{H}\n"
        '  key gfx1030 ""\n# the end\n'
    )
    out = write_manifest(parse_manifest(text.encode(), "m")).decode()
    assert out == (
        "kdbtool-manifest format 1\n# of the header\nmiopen unknown\nsources unknown\narch gfx1030\n\n"
        f'# above a, ünïcode\n# on the hash\nkernel a.cpp\n  source sha256:{H}\n  key gfx1030 ""\n\n'
        '# above z\nkernel z.cpp\n  key gfx1030 "1"\n  # above 2\n  key gfx1030 "2"\n# the end\n'
    )


def test_states_and_hashes_come_back() -> None:
    built, missed = Key(b"a.cpp.o", b" -mcpu=gfx1030", "gfx1030"), Key(b"b.s.o", b"x", "", ASKED_UNBUILT)
    manifest = manifest_of([built, missed])
    manifest.hashes = {"a.cpp": Hashes(H, H)}
    manifest.sources = H
    manifest.origins = {'a "quoted" ü one'}
    manifest.problems = {"64-56-56-1x1-128-56-56-32-0x0-1x1-1x1-0-NCHW-FP32-F": Problem()}
    back = parse_manifest(write_manifest(manifest), "m")
    assert (back.hashes, back.sources, back.origins) == (manifest.hashes, H, manifest.origins)
    assert list(back.problems) == list(manifest.problems)
    (variant,) = back.variants()
    assert (variant.source, variant.args_once, variant.hashes.headers) == ("a.cpp", b"", H)
    assert variant.line == 10


def test_an_empty_manifest_is_valid() -> None:
    back = parse_manifest(b"kdbtool-manifest format 0\nmiopen unknown\nsources unknown\n", "m")
    assert not back.keys and not list(back.variants())


BLOCK = HEAD + "kernel a.cpp\n"


@pytest.mark.parametrize(
    ("text", "line", "words"),
    [
        ("", 0, "not a manifest"),
        ("hello\n", 0, "not a manifest"),
        ("kdbtool-manifest format 2\n", 1, "made by a newer kdbtool"),
        ("kdbtool-manifest format 12\n", 1, "made by a newer kdbtool"),
        ("kdbtool-manifest format 00\n", 1, "unknown manifest format"),
        ("kdbtool-manifest format zero\n", 1, "unknown manifest format"),
        ("kdbtool-manifest format 0 \n", 1, "unknown manifest format"),
        ("\ufeff" + HEAD, 1, "byte order mark"),
        (HEAD.replace("\n", "\r\n"), 1, "CRLF"),
        (HEAD + "kernel a.cpp\r\n", 5, "CRLF"),
        (BLOCK + '  key gfx1030 "a\tb"\n', 6, "tab"),
        (BLOCK + '  key gfx1030 "a\0b"\n', 6, "NUL"),
        (BLOCK + '  key gfx1030 "a\x1bb"\n', 6, "control character U+001B"),
        (BLOCK + "  key gfx1030 \"a\u2028b\"\n", 6, "control character U+2028"),
        (BLOCK + "# a\rb\n", 6, "carriage return"),
        (BLOCK + '  key gfx1030 "x"', 6, "no newline at the end"),
        (BLOCK + '  key gfx1030 "x" \n', 6, "blank at the end"),
        (BLOCK + '   key gfx1030 "x"\n', 6, "wrong indent"),
        (BLOCK + ' key gfx1030 "x"\n', 6, "wrong indent"),
        (BLOCK + 'key gfx1030 "x"\n', 6, "outside a block"),
        (BLOCK + '  key gfx1030 "x"\n<<<<<<< HEAD\n', 7, "git conflict marker"),
        (BLOCK + "=======\n", 6, "git conflict marker"),
        (BLOCK + ">>>>>>> other\n", 6, "git conflict marker"),
        (BLOCK + '  key gfx1030 "x"\n  key gfx1030 "x"\n', 7, "duplicate key: first on line 6"),
        (BLOCK + '  key gfx1030 "x"\n  exact gfx1030 "x -mcpu=gfx1030"\n', 7, "duplicate key"),
        (BLOCK + '  key gfx1030 "x"\nunbuilt a.cpp\n  key gfx1030 "x"\n', 8, "duplicate key"),
        (BLOCK + "kernel a.cpp\n", 6, "duplicate block: first on line 5"),
        (BLOCK + 'kernel "a.cpp.o"\n', 6, "duplicate block"),
        (HEAD + 'kernel "a.cpp.o"\n', 5, "plain name in quotes"),
        (BLOCK + '  key gfx1030 "" \u0662*" -DA=1" ""\n', 6, "unescaped byte"),
        (HEAD.replace("6.4.3", "\u0666.4.3"), 2, "not a version"),
        (BLOCK + f"  source sha256:{H}\n  source sha256:{H}\n", 7, "duplicate field source"),
        (BLOCK + f"  source sha256:{H.upper()}\n", 6, "not a hash"),
        (BLOCK + "  source md5:abc\n", 6, "not a hash"),
        (HEAD + f'kernel "a"\n  source sha256:{H}\n', 6, "where no source is named"),
        (HEAD + f"unbuilt a.s\n  source sha256:{H}\n", 6, "where no source is named"),
        (BLOCK + '  key gfx906 "x"\n', 6, "arch gfx906 is not in the header"),
        (BLOCK + '  key gfx90a:xnack- "x"\n', 6, "not an architecture"),
        (BLOCK + '  key - "x"\n', 6, "not an architecture"),
        (BLOCK + "  key gfx1030 x\n", 6, "not a string"),
        (BLOCK + "  key gfx1030\n", 6, "not a string: nothing"),
        (BLOCK + '  key gfx1030 "x" "y"\n', 6, "not a string"),
        (BLOCK + '  key gfx1030 "a\\nb"\n', 6, "bad escape \\nb"),
        (BLOCK + '  key gfx1030 "a\\xFF"\n', 6, "bad escape"),
        (BLOCK + '  key gfx1030 "a\\x41"\n', 6, "needless escape \\x41, write A"),
        (BLOCK + '  key gfx1030 "a\\x22"\n', 6, "needless escape"),
        (BLOCK + '  key gfx1030 "ä"\n', 6, "unescaped byte"),
        (BLOCK + '  key gfx1030 "" 1*"a" ""\n', 6, "repeated 1 times"),
        (BLOCK + '  key gfx1030 "" 999*"a" ""\n', 6, "repeated 999 times"),
        (BLOCK + '  key gfx1030 "" 02*"a" ""\n', 6, "repeated 02 times"),
        (BLOCK + '  key gfx1030 "" 2*"" ""\n', 6, "empty repeated block"),
        (BLOCK + "  frobnicate yes\n", 6, "unknown field frobnicate"),
        (HEAD + "spdx MIT\n", 5, "unknown field spdx"),
        (HEAD + "  key gfx1030 \"x\"\n", 5, "outside a block"),
        (HEAD + "miopen 6.4.3\n", 5, "duplicate field miopen"),
        (HEAD + "arch gfx1030\n", 5, "duplicate arch"),
        (BLOCK + "arch gfx906\n", 6, "after the first block"),
        (HEAD.replace("6.4.3", "six") , 2, "not a version"),
        ("kdbtool-manifest format 0\nmiopen 6.4.3\n", 2, "no sources in the header"),
        ("kdbtool-manifest format 0\nkernel a.cpp\n", 2, "no miopen in the header"),
        (HEAD + "origin x\n", 5, "not a string"),
        (HEAD + 'origin "\\xff"\n', 5, "origin is not UTF-8"),
        (HEAD + 'origin "x"\norigin "x"\n', 6, "duplicate origin"),
        (HEAD + "kernel ../x.cpp\n", 5, "a name has no '/'"),
        (HEAD + "kernel a/b.cpp\n", 5, "a name has no '/'"),
        (HEAD + "kernel a..cpp\n", 5, "a name has no '..'"),
        (HEAD + "kernel .x.cpp\n", 5, "does not begin with"),
        (HEAD + "kernel -x.cpp\n", 5, "does not begin with"),
        (HEAD + "kernel a\0b.cpp\n", 5, "NUL"),
        (HEAD + "kernel a b.cpp\n", 5, "not a kernel source name"),
        (HEAD + "kernel\n", 5, "not a kernel source name: nothing"),
        (HEAD + f"kernel {'a' * 256}\n", 5, "not a kernel source name"),
        (HEAD + "problem 1x1\n", 5, "not a problem key"),
        (HEAD + "problem 64-56-56-1x1-128-56-56-32-0x0-1x1-1x1-0-NCHW-FP32-F\n" * 2, 6, "duplicate problem"),
        (HEAD + "\u00e4\n", 5, "unknown field"),
    ],
)  # fmt: skip
def test_what_the_grammar_does_not_allow_is_refused_with_its_line(text: str, line: int, words: str) -> None:
    message = refused(text)
    assert words in message
    assert message.startswith(f"m.txt:{line}: " if line else "m.txt: ")


def test_bytes_that_are_not_utf8_are_refused() -> None:
    assert "m.txt:5: not UTF-8: byte 0xff at column 3" in refused(HEAD.encode() + b"# \xff\n")


def test_an_over_long_line_is_refused() -> None:
    assert "line too long" in refused(HEAD + f"# {'x' * (1 << 20)}\n")


def test_a_key_too_long_for_a_line_is_refused_by_the_writer() -> None:
    with pytest.raises(KdbtoolError, match="at most 1048576"):
        write_manifest(manifest_of([Key(b"a.cpp.o", b"x" * (1 << 20), "")]))


def test_a_hostile_name_is_data_and_no_source() -> None:
    key = Key(b"../../etc/passwd.o", b" -mcpu=gfx1030", "gfx1030")
    text = round_trip([key])
    assert b'kernel "../../etc/passwd.o"' in text
    (variant,) = parse_manifest(text, "m").variants()
    assert variant.source is None


def test_a_manifest_that_would_never_end_is_refused(tmp_path: Path) -> None:
    """A FIFO without a writer blocked, a device filled the memory."""
    fifo = tmp_path / "fifo"
    os.mkfifo(fifo)
    for path in (fifo, Path("/dev/zero"), Path("/dev/tty0")):
        if path.exists():
            with pytest.raises(KdbtoolError, match="not a regular file"):
                read_manifest(path)


def test_a_manifest_out_of_a_pipe_is_read_once() -> None:
    """Its hash was taken from a second reading, of which a pipe has none."""
    ours, theirs = os.pipe()
    text = (HEAD + "kernel a.cpp\n").encode()
    os.write(theirs, text)
    os.close(theirs)
    try:
        assert read_manifest(Path(f"/dev/fd/{ours}")).digest == hashlib.sha256(text).hexdigest()
    finally:
        os.close(ours)
