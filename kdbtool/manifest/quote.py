r"""Byte strings as text: printable ASCII stands for itself, the rest is escaped, one spelling each.

`"` is `\"`, `\` is `\\`, every byte outside 0x20 to 0x7e is `\xHH` (lower case). A reader refuses any other
escape and one that was not needed, so that equal bytes are equal text and can be searched for.
"""

from __future__ import annotations

import re

# The text between the quotes of one quoted string.
QUOTED = r'"([ !#-\[\]-~]*(?:\\(?:["\\]|x[0-9a-f]{2})[ !#-\[\]-~]*)*)"'

_PLAIN = re.compile(rb"[ !#-\[\]-~]*\Z")
_ESCAPE = re.compile(r'\\(?:(["\\])|x([0-9a-f]{2}))')


def quote(data: bytes) -> str:
    """`data` in double quotes."""
    if _PLAIN.match(data):
        return f'"{data.decode("ascii")}"'
    out = []
    for byte in data:
        if byte in (0x22, 0x5C):
            out.append("\\" + chr(byte))
        elif 0x20 <= byte <= 0x7E:
            out.append(chr(byte))
        else:
            out.append(f"\\x{byte:02x}")
    return '"' + "".join(out) + '"'


def unquote(text: str) -> bytes:
    r"""The bytes of what stands between the quotes; ValueError for a `\xHH` that was not needed."""
    if "\\" not in text:
        return text.encode("ascii")
    out = bytearray()
    last = 0
    for match in _ESCAPE.finditer(text):
        out += text[last : match.start()].encode("ascii")
        last = match.end()
        byte = ord(match[1]) if match[1] else int(match[2], 16)
        if match[2] and 0x20 <= byte <= 0x7E:
            good = f"\\{chr(byte)}" if byte in (0x22, 0x5C) else chr(byte)
            raise ValueError(f"needless escape \\x{match[2]}, write {good}")
        out.append(byte)
    out += text[last:].encode("ascii")
    return bytes(out)
