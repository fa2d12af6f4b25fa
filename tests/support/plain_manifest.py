"""A second reader of manifests, written from docs/manifest-format.md alone: row by row, and no checks."""

from __future__ import annotations

import re

Keys = set[tuple[bytes, bytes, str, str]]  # kernel_name, kernel_args, arch, state


def string(text: str) -> bytes:
    body = re.sub(r'\\(["\\])', lambda m: f"\\x{ord(m[1]):02x}", text[1:-1])
    return re.sub(r"\\x(..)", lambda m: chr(int(m[1], 16)), body).encode("latin-1")


def strings(text: str) -> bytes:
    parts = re.findall(r'(?:(\d)\*)?("(?:[^"\\]|\\.)*")', text)
    return b"".join(string(part) * int(count or 1) for count, part in parts)


def formula(words: list[str], value: dict[int, str]) -> int:
    word = words.pop(0)
    if word.startswith("$"):
        return int(value[int(word[1:])])
    if word not in "+-*/^%":
        return int(word)
    a, b = formula(words, value), formula(words, value)
    if word in "+-*":
        return a + b if word == "+" else a - b if word == "-" else a * b
    return a // b if word == "/" else -(-a // b) if word == "^" else a % b


def options(schema: list[tuple[str, str]], words: list[str]) -> bytes:
    value = {int(w[1:].split("=")[0]): w.split("=", 1)[1] for w in words if w.startswith("$")}
    fields = [w for w in words if not w.startswith("$")]
    before = -1
    while len(value) != before:  # as long as something more follows
        before = len(value)
        for n, (name, rule) in enumerate(schema, 1):
            kind, _, rest = rule.partition(" ")
            needs = [int(r[1:]) for r in re.findall(r"\$\d+", rest if kind == "=" else rest.split(" ")[0])]
            if n in value or not name.endswith("=") or not set(needs) <= set(value):
                continue
            if kind == "=":
                value[n] = str(formula(rest.split(" "), value))
            elif kind == "?":
                table = dict(entry.split("=", 1) for entry in rest.split(" ")[1:])
                value[n] = table[",".join(value[r] for r in needs)]
            else:
                value[n] = fields[int(rule[1:]) - 1] if rule.startswith("*") else rule
    return " ".join(name + value.get(n, "") for n, (name, _) in enumerate(schema, 1)).encode()


def twice(once: bytes) -> bytes | None:
    run = rb"(?: -DMIOPEN_(?:USE_(?!RNE)[A-Za-z0-9]+|USE_RNE_BFLOAT16|FP8_[A-Z_]+)=[^ ]*)+"
    lists = re.findall(run, b" " + once if once[:1] == b"-" else once)
    if len(lists) != 1 or b"USE_RNE_BFLOAT16=" not in lists[0]:
        return None
    if not lists[0].startswith(b" -DMIOPEN_USE_FP16="):
        return None
    return once.replace(lists[0], lists[0] * 2, 1)


def read(text: str) -> Keys:
    keys: Keys = set()
    name, state = b"", ""
    schema: list[tuple[str, str]] = []
    archs: list[str] = []
    for line in text.split("\n"):
        head, _, rest = line.strip(" ").partition(" ")
        if line.startswith(("kernel ", "unbuilt ")):
            name = string(rest) if rest.startswith('"') else rest.encode() + b".o"
            state = "build" if head == "kernel" else "asked-unbuilt"
        elif line.startswith(("  key ", "  exact ")):
            arch, _, args = rest.partition(" ")
            ending = f" -mcpu={arch}".encode() if head == "key" else b""
            keys.add((name, strings(args) + ending, arch.strip("-"), state))
        elif line == "  schema":
            schema = []
        elif line.startswith("    "):
            schema.append((head.strip('"'), rest))
        elif line.startswith("  rows "):
            archs = rest.split(" ")
        elif line.startswith(" ") and not line.startswith("  ") and head[:1] != "#":
            once = options(schema, [word for word in line[1:].split(" ") if word[:1] != "!"])
            both = [once, twice(once)]
            if " !" in line:
                both = both[:1] if line.endswith(" !once") else both[1:]
            keys |= {(name, s + f" -mcpu={a}".encode(), a, state) for s in both if s for a in archs}
    return keys
