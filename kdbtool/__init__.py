"""kdbtool: MIOpen kernel databases as reviewed text, rebuilt for any GPU without owning it."""

__version__ = "0.1.0"
