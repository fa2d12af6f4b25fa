"""Builds what C there is: plain shared objects for other processes, and cffi's `_trace`.

`kdbtool/shim/lib/libkdbshim.so` is the recorder, libkdbaudit.so its help under LD_AUDIT;
`kdbtool/shim/lib/simgpu/<hip major>/` holds the simulated device as libamdhip64.so.<major>, with the
unversioned name beside it. They link neither Python nor a C++ runtime. `$CC`, `$CPPFLAGS`,
`$CFLAGS` and `$LDFLAGS` are honoured, but for what would harm the program that they are loaded into.
"""

import os
import runpy
import shlex
import subprocess
from pathlib import Path

from setuptools import setup
from setuptools.command.build_ext import build_ext

HERE = Path(__file__).resolve().parent
WARN = ["-std=c11", "-Wall", "-Wextra", "-Werror", "-Wvla", "-Wstrict-prototypes"]
BUILD = ["-O2", "-g"]
# After the user's flags, since the last one wins.
FIXED = [
    *("-fPIC", "-shared", "-fvisibility=hidden", "-ftls-model=initial-exec", "-pthread"),
    "-fno-lto",  # top-level assembly names what is C, and the other way round
    # gcc 12 links crtfastmath.o even into a shared object: the host's floats would lose their denormals
    *("-fno-fast-math", "-fno-unsafe-math-optimizations"),
]
PIE = "-pie"
LINK = ["-Wl,-z,now", "-Wl,-z,relro", "-Wl,-z,noexecstack"]
HIP_MAJORS = (6,)


def flags(name):
    """The options in an environment variable. -Ofast means -ffast-math to the linker, whatever follows."""
    return ["-O3" if flag == "-Ofast" else flag for flag in shlex.split(os.environ.get(name, ""))]


class build_shared(build_ext):
    """build_ext that makes the plain shared objects too, in the package or in place."""

    def run(self):
        super().run()
        lib = self.package_dir() / "lib"
        temp = Path(self.build_temp)
        options = ["-ldl", "-Wl,-z,nodelete"]  # it holds a destructor of threads
        sources = [*sorted(Path("csrc/recorder").glob("*.c")), Path("csrc/selection.c")]
        self.shared(lib / "libkdbshim.so", sources, options)
        self.shared(lib / "libkdbaudit.so", sorted(Path("csrc/audit").glob("*.c")), [])
        # For `kdbtool harvest` alone: what answers look-ups, and the program that makes MIOpen ask.
        self.shared(lib / "harvest" / "libkdbanswer.so", [Path("csrc/harvest/answer.c")], ["-ldl"])
        self.shared(lib / "harvest" / "kdbharvest", [Path("csrc/harvest/driver.c")], ["-ldl"], program=True)
        for major in HIP_MAJORS:
            self.simgpu(major, lib / "simgpu" / str(major), temp / f"simgpu{major}")

    def package_dir(self):
        """Where kdbtool/shim is being built: in the tree (--inplace) or under build/."""
        if self.inplace:
            return HERE / "kdbtool" / "shim"
        return Path(self.build_lib) / "kdbtool" / "shim"

    def simgpu(self, major, folder, temp):
        """The simulated device for one HIP ABI; abi/generate.py makes stubs and the version map."""
        temp.mkdir(parents=True, exist_ok=True)
        generate = runpy.run_path("csrc/simgpu/abi/generate.py")["generate"]
        stubs, version_map = generate(Path(f"csrc/simgpu/abi/hip{major}.exports"), temp)
        soname = f"libamdhip64.so.{major}"
        self.shared(
            folder / soname,
            [*sorted(Path("csrc/simgpu").glob("*.c")), stubs],
            ["-Icsrc/simgpu", f"-Wl,-soname,{soname}", f"-Wl,--version-script={version_map}"],
        )
        # An empty library that needs the real one: dlopen of the unversioned name finds the same
        # device, not a second copy of it. A link would not survive in a wheel.
        empty = temp / "empty.c"
        empty.write_text("typedef int nothing_here;\n")
        self.shared(
            folder / "libamdhip64.so",
            [empty],
            ["-Wl,--no-as-needed", str(folder / soname), "-Wl,-soname,libamdhip64.so", "-Wl,-rpath,$ORIGIN"],
        )

    def shared(self, target, sources, extra, *, program=False):
        """Compile and link one shared object, or a program, with $CC."""
        target.parent.mkdir(parents=True, exist_ok=True)
        command = [
            *shlex.split(os.environ.get("CC", "gcc")),
            *WARN,
            *BUILD,
            *flags("CPPFLAGS"),
            *flags("CFLAGS"),
            *flags("LDFLAGS"),
            *([PIE if flag == "-shared" else flag for flag in FIXED] if program else FIXED),
            "-Icsrc",
            *map(str, sources),
            "-o",
            str(target),
            *LINK,
            *extra,
        ]
        self.announce(shlex.join(command), level=2)
        subprocess.run(command, check=True, cwd=HERE)

    def get_outputs(self):
        lib = self.package_dir() / "lib"
        return [*super().get_outputs(), *(str(p) for p in lib.rglob("*") if p.is_file())]


setup(
    cffi_modules=["kdbtool/shim/build_trace.py:ffi"],
    cmdclass={"build_ext": build_shared},
)
