"""Traces: what is in them, their events one by one, several as one file, as tables, and made of logs.

kdbtool trace info traces/                      # each process and the sum, ranks that are missing
kdbtool trace list traces/ --what launches      # events in the order of time
kdbtool trace merge traces/ -o run.kdbtrace     # one file, which every command takes for a trace
kdbtool trace export traces/ -o run.sqlite      # tables: SQLite, or a folder of Parquet files
kdbtool trace import LOG -o FILE.kdbtrace       # of a log of MIOpen
"""

from __future__ import annotations

import argparse

from kdbtool.cli import trace_export, trace_import, trace_info, trace_list, trace_merge

HELP = "show, merge and export traces, make them of logs"
_ACTIONS = {
    "info": trace_info,
    "list": trace_list,
    "merge": trace_merge,
    "export": trace_export,
    "import": trace_import,
}


def prepare(parser: argparse.ArgumentParser) -> None:
    """The actions and their options."""
    actions = parser.add_subparsers(dest="action", metavar="ACTION", required=True)
    for name, module in _ACTIONS.items():
        sub = actions.add_parser(name, help=module.HELP, description=module.__doc__,
                                 formatter_class=argparse.RawDescriptionHelpFormatter)  # fmt: skip
        module.prepare(sub)


def run(args: argparse.Namespace) -> int:
    """The action's exit code."""
    code: int = _ACTIONS[args.action].run(args)
    return code
