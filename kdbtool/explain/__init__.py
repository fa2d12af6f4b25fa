"""What one kernel key says: its options and their meaning, the solvers behind its source, where it is live.

explain(name, args, arch, siblings, build) -> Explanation      no errors: any bytes can be explained
"""

from kdbtool.explain.key import Explanation, explain

__all__ = ["Explanation", "explain"]
