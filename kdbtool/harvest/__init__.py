"""The harvest: every kernel that a libMIOpen asks for, for problems that are given, without compiling one.

The real library walks the problems on a simulated device (csrc/harvest). What asked for which key stands in
the harvest's own record, from which the manifest is made. docs/harvest.md is the guide.
"""
