"""Makes a root: stages that can each be cut off and run again, then one rename.

bootstrap -> configure -> install -> lock -> finish. Everything happens in `R.making`; `R` appears
whole or not at all. With a lock the root is made of exactly its packages, out of a local repository
of the kept files; without one, of what the archive has now, and a lock is written.
"""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
import shutil
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

from kdbtool.errors import EXIT_PROBLEMS, KdbtoolError
from kdbtool.root import locking, mirror, privilege
from kdbtool.root.locking import Lock, Package
from kdbtool.root.paths import MARKER, RootPaths
from kdbtool.root.recipe import Recipe

_STAGE = "etc/kdbtool-root.stage"
_LOCAL = "file:/var/cache/apt/archives"
_FETCH_LIMIT = 4 << 30
_NEEDED = 4 << 30  # seen: 2.5 GB, and 0.6 GB of packages
STAGES = ("bootstrap", "configure", "install", "lock", "finish")


@dataclass(frozen=True)
class Options:
    """What a user may choose; recorded in the root."""

    cures: bool = True
    rocblas: tuple[str, ...] = ()  # architectures; empty: the recipe's

    def plan(self, recipe: Recipe) -> dict[str, object]:
        """What the root's marker says, and what two makes must agree in."""
        archs = sorted(set(self.rocblas or recipe.rocblas_default))
        return {"miopen": recipe.miopen, "cures": self.cures, "rocblas": archs}


def make(
    paths: RootPaths,
    recipe: Recipe,
    options: Options,
    *,
    mirror_url: str | None = None,
    update: bool = False,
    say: Callable[[str], None] = lambda text: None,
) -> bool:
    """Make the root; False when it is there already, made with the same options.

    `update` leaves the lock aside and takes what the archive has now.
    """
    plan = options.plan(recipe)
    if not update and _done(paths, plan):
        return False
    if not paths.root.parent.is_dir():
        paths.root.parent.mkdir(parents=True)
    with hold(paths, say) as held:
        if not update and _done(paths, plan):
            return False
        if paths.root.exists() and not update and any(paths.root.iterdir()):
            raise KdbtoolError(
                "not a root that kdbtool made", where=paths.root, hint="name another folder with --root DIR"
            )
        _Maker(paths, recipe, plan, mirror_url, update, say, held).run()
    return True


def _done(paths: RootPaths, plan: dict[str, object]) -> bool:
    try:
        marker = json.loads(paths.marker.read_text("utf-8"))
    except (OSError, ValueError):
        return False
    differ = [k for k in plan if marker.get(k) != plan[k]]
    if differ:
        raise KdbtoolError(
            "the root was made with other options",
            where=paths.root,
            why=", ".join(f"{k}: {marker.get(k)}" for k in differ),
            hint="remove it first (kdbtool root remove), or name another folder with --root DIR",
        )
    return True


@contextlib.contextmanager
def hold(paths: RootPaths, say: Callable[[str], None] = lambda text: None) -> Iterator[int]:
    """The lock against a second make or remove; waits, and says so. Gives the descriptor."""
    with paths.flock.open("a") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            say(f"another kdbtool works on {paths.root}: waiting for it")
            fcntl.flock(file, fcntl.LOCK_EX)
        yield file.fileno()


class _Maker:
    def __init__(
        self,
        paths: RootPaths,
        recipe: Recipe,
        plan: dict[str, object],
        mirror_url: str | None,
        update: bool,
        say: Callable[[str], None],
        held: int,
    ) -> None:
        self.paths, self.recipe, self.plan, self.say = paths, recipe, plan, say
        self.settings = mirror.host_apt_settings()
        self.update = update
        self.given = mirror.checked_mirror(mirror_url) if mirror_url else None
        self.held = held
        self.old = None if update or not paths.lock.is_file() else locking.read_lock(paths.lock)

    @property
    def mirror(self) -> str:
        """Asked for only when needed: a complete set of kept packages needs no archive."""
        return self.given or mirror.host_mirror()

    def run(self) -> None:
        privilege.wrapper()
        if shutil.which("debootstrap", path=os.environ.get("PATH", "") + ":/usr/sbin:/sbin") is None:
            raise KdbtoolError("debootstrap is missing", hint="run: apt-get install debootstrap")
        paths = self.paths
        free = shutil.disk_usage(paths.root.parent).free
        if free < _NEEDED and not paths.making.exists():
            raise KdbtoolError(
                "too little space for a root",
                where=paths.root.parent,
                why=f"{free >> 20} MiB free, {_NEEDED >> 20} needed",
                hint="free some, or name another folder with --root DIR",
            )
        paths.debs.mkdir(exist_ok=True)
        if self.old:
            self.fetch_missing(self.old)
            locking.write_repository(paths.debs, self.old)
        log = paths.making.with_name(paths.making.name + ".log")
        with log.open("wb") as file:
            self.runner = privilege.Runner(file, mirror.proxy_environment(self.settings), [self.held])
            done = self.done_stages()
            if done:
                self.say(f"going on after: {done[-1]}")
            try:
                self.stages(done)
            except KdbtoolError:
                if "bootstrap" not in done:
                    raise
                # A kill in the middle of dpkg can leave what dpkg itself cannot mend.
                self.say("the half-made root cannot be mended: starting again")
                self.stages([])
        if paths.root.exists():
            privilege.remove_tree(paths.root)
        paths.making.rename(paths.root)
        log.unlink()

    def stages(self, done: list[str]) -> None:
        for name in STAGES:
            if name not in done:
                getattr(self, name)()
                done = [*done, name]
                state = {"plan": self.plan, "lock": self.lock_id(), "stages": done}
                self.put(_STAGE, json.dumps(state) + "\n")

    def lock_id(self) -> str | None:
        """Which package set a half-made root is being made of."""
        return locking.sha256(self.paths.lock) if self.old else None

    def done_stages(self) -> list[str]:
        """Finished stages of a half-made root, if it is being made of the same."""
        try:
            state = json.loads((self.paths.making / _STAGE).read_text("utf-8"))
            same = state["plan"] == self.plan and state["lock"] == self.lock_id()
            return [s for s in STAGES if s in state["stages"]] if same else []
        except (OSError, ValueError, KeyError, TypeError):
            return []

    def put(self, name: str, text: str) -> None:
        """A file in the root that is being made. As an ordinary user the folders are the mapped
        root's own, which is this user."""
        path = self.paths.making / name
        path.parent.mkdir(parents=True, exist_ok=True)
        locking.sync_text(path, text)
        path.chmod(0o644)

    def bootstrap(self) -> None:
        self.say("debootstrap")
        if self.paths.making.exists():
            privilege.remove_tree(self.paths.making)
        source = [f"file://{self.paths.debs}"] if self.old else [self.mirror]
        checks = ["--no-check-gpg"] if self.old else ["--force-check-gpg"]
        cache = [] if self.old else [f"--cache-dir={self.paths.debs}"]
        self.runner.host(
            [
                *("debootstrap", "--variant=minbase", "--arch=amd64", *checks, *cache),
                *(self.recipe.suite, str(self.paths.making), *source),
            ],
            "debootstrap",
        )

    def configure(self) -> None:
        recipe = self.recipe
        archs = self.plan["rocblas"]
        assert isinstance(archs, list)
        rules = [f"path-exclude={p}" for p in recipe.exclude]
        rules += [f"path-include={p}" for p in recipe.include]
        rules += [f"path-exclude={recipe.rocblas_folder}/*"]
        rules += [f"path-include={recipe.rocblas_folder}/*{a}*" for a in archs]
        self.put("etc/dpkg/dpkg.cfg.d/kdbtool-slim", "\n".join(rules) + "\n")
        self.put("etc/apt/apt.conf.d/90kdbtool", mirror.apt_conf(self.settings))
        self.put("usr/sbin/policy-rc.d", "#!/bin/sh\nexit 101\n")  # no daemon starts in here
        (self.paths.making / "usr/sbin/policy-rc.d").chmod(0o755)
        with contextlib.suppress(OSError):
            self.put("etc/resolv.conf", Path("/etc/resolv.conf").read_text("utf-8"))
        option, source = ("[trusted=yes] ", _LOCAL) if self.old else ("", self.mirror)
        self.put("etc/apt/sources.list", f"deb {option}{source} {recipe.suite} main\n")

    def install(self) -> None:
        self.say("apt-get install " + " ".join(self.recipe.packages))
        if self.old:
            wanted = [f"{p.name}={p.version}" for p in self.old.packages]
        else:
            wanted = list(self.recipe.packages)
        apt = ["apt-get", "-y", "--no-install-recommends"]
        for argv, what in (
            (["dpkg", "--configure", "-a"], "dpkg --configure -a"),
            (["apt-get", "update"], "apt-get update"),
            ([*apt, "--fix-broken", "install"], "apt-get --fix-broken install"),
            ([*apt, "--allow-downgrades", "install", *wanted], "apt-get install"),
        ):
            self.runner.chroot(self.paths.making, argv, what, self.paths.debs)

    def lock(self) -> None:
        """Write the lock of what is installed, from the files that it was installed from."""
        making, debs = self.paths.making, self.paths.debs
        listing = self.runner.chroot(
            making, ["dpkg-query", "-W", "-f", "${Package} ${Version} ${Architecture}\\n"], "dpkg-query"
        )
        rows = [tuple(line.split()) for line in listing.splitlines() if line.strip()]
        if self.old:
            self.compare(rows)
            return
        pools = self.pools([f"{name}={version}" for name, version, _ in rows])
        packages = []
        for name, version, arch in rows:
            file = locking.deb_name(name, version, arch)
            path = debs / file
            if not path.is_file():
                raise KdbtoolError(
                    f"the package of {name} {version} was not kept", where=path, exit_code=EXIT_PROBLEMS
                )
            pool = pools.get((name, version), "")
            packages.append(
                Package(name, version, arch, file, path.stat().st_size, locking.sha256(path), pool)
            )
        lock = Lock(self.recipe.miopen, self.recipe.suite, tuple(sorted(packages)))
        locking.sync_text(self.paths.lock, lock.dump())
        locking.prune(debs, lock)
        self.old = lock

    def compare(self, rows: list[tuple[str, ...]]) -> None:
        assert self.old
        want = {(p.name, p.version, p.arch) for p in self.old.packages}
        differ = sorted(set(rows) ^ want)
        if differ:
            raise KdbtoolError(
                "the root is not what its lock says",
                where=self.paths.lock,
                why=f"{len(differ)} packages differ: {' '.join(differ[0])}",
                hint="run: kdbtool root make --update",
                exit_code=EXIT_PROBLEMS,
            )

    def pools(self, wanted: list[str]) -> dict[tuple[str, str], str]:
        """Path on the mirror by (package, version), from apt's own lists."""
        text = self.runner.chroot(self.paths.making, ["apt-cache", "show", *wanted], "apt-cache show")
        found = {}
        for stanza in text.split("\n\n"):
            fields = dict(
                line.split(": ", 1) for line in stanza.splitlines() if line[:1] != " " and ": " in line
            )
            if {"Package", "Version", "Filename"} <= fields.keys():
                found[fields["Package"], fields["Version"]] = fields["Filename"]
        return found

    def finish(self) -> None:
        """Cures, sources as a user expects them, no caches; the marker makes it a complete root."""
        making = self.paths.making
        if self.plan["cures"]:
            for link, target in self.recipe.cure_links.items():
                path = making / link.lstrip("/")
                path.parent.mkdir(parents=True, exist_ok=True)
                path.unlink(missing_ok=True)
                path.symlink_to(target)
        try:
            self.put("etc/apt/sources.list", f"deb {self.mirror} {self.recipe.suite} main\n")
        except KdbtoolError:
            self.put("etc/apt/sources.list", "# no archive was known when this root was made\n")
        self.runner.chroot(making, ["sh", "-c", "rm -rf /var/lib/apt/lists/* /var/cache/apt/*.bin"], "clean")
        missing = [n for n in self.recipe.needs if not os.path.lexists(making / n)]
        if missing:
            raise KdbtoolError(
                "the packages lack a file", where=making, why=missing[0], exit_code=EXIT_PROBLEMS
            )
        self.put(MARKER, json.dumps({**self.plan, "lock": locking.sha256(self.paths.lock)}) + "\n")

    def fetch_missing(self, lock: Lock) -> None:
        """Locked packages that are not kept, from the archive; one that left it is an error."""
        missing = lock.missing(self.paths.debs)
        if missing:
            self.say(f"fetching {len(missing)} locked packages")
        gone = [p for p in missing if not self.fetch(p)]
        if gone:
            names = ", ".join(f"{p.name} {p.version}" for p in gone[:3])
            raise KdbtoolError(
                f"{len(gone)} locked packages are neither kept nor in the archive",
                where=self.paths.lock,
                why=names,
                hint="run: kdbtool root make --update, which takes the archive's current versions",
            )

    def fetch(self, package: Package) -> bool:
        """One package by its path on the mirror, checked against the lock."""
        if not package.pool:
            return False
        target = self.paths.debs / package.file
        part = target.with_name(f".{target.name}.part")
        proxies = {**urllib.request.getproxies()}
        for name, value in mirror.proxy_environment(self.settings).items():
            proxies.setdefault(name.removesuffix("_proxy"), value)
        opener = urllib.request.build_opener(urllib.request.ProxyHandler(proxies))
        try:
            with opener.open(f"{self.mirror}/{package.pool}", timeout=60) as source, part.open("wb") as file:
                left = min(package.size, _FETCH_LIMIT)
                while left and (chunk := source.read(min(left, 1 << 20))):
                    file.write(chunk)
                    left -= len(chunk)
        except (urllib.error.URLError, TimeoutError):
            part.unlink(missing_ok=True)
            return False
        if locking.sha256(part) != package.sha256:
            part.unlink()
            return False
        part.replace(target)
        return True
