"""`python -m kdbtool` is the console script `kdbtool`."""

from kdbtool.cli import entry

if __name__ == "__main__":
    entry()
