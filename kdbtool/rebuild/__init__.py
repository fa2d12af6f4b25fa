"""A manifest and kernel sources in, kernel databases out: no GPU, no shell, nothing trusted.

`options` decides which compiler options a row may carry, `recipe` holds those that MIOpen adds
itself, `plan` turns a manifest into compile jobs, `compilers` runs one job, `store` keeps finished
objects, `engine` runs many jobs, `publish` writes the databases.
"""
