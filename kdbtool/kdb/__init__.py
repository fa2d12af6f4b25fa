"""MIOpen's kernel databases (`.kdb`, `.ukdb`): what a file is, reading, writing, checking, names.

identify(path) -> Kind            what any file is, in one line
reader.open_kdb(path)             rows, blobs on demand
writer.write_kdb(path, rows, ...) the same bytes for the same rows
checks.check(...)                 findings for verify
names.parse_name(name)            what a file name says
"""

from kdbtool.kdb.identify import FileKind, Kind, identify

__all__ = ["FileKind", "Kind", "identify"]
