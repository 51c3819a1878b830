"""What tests/gpu/run makes of a bare machine: libraries from a folder of Debian packages, NVIDIA's toolkit where it lies,
a build of this clone. Prints, as `machine.py digest`, the digest of the files that configure and Makefile.in are made of."""

import glob
import hashlib
import os
import platform
import shutil
import subprocess
import sys
import sysconfig
import tarfile

SOURCE = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
LIBRARIES = {  # variable of configure: headers' folder below include, libraries
    "HDF5": ("hdf5/openmpi", "-lhdf5_openmpi"),
    "ONEDNN": ("", "-ldnnl"),
    "FFTW": ("", "-lfftw3 -lfftw3f"),
    "YAML": ("", "-lyaml"),
    "CYAML": ("", "-lcyaml -lyaml"),
    "JANSSON": ("", "-ljansson"),
    "PCRE2": ("", "-lpcre2-8"),
    "SODIUM": ("", "-lsodium"),
    "HWLOC": ("", "-lhwloc"),
}
# Made or written by this project's tools in the clone: no part of what is built.
NOT_SOURCES = {".git", "gpu-results", "autom4te.cache", "__pycache__", "build", "runs", "data"}


class Failed(Exception):
    """What went wrong, for the report."""


def digest_of_build_files():
    names = ["configure.ac", "Makefile.am"]
    for pattern in ("m4/*.m4", "**/module.mk"):
        names += glob.glob(pattern, root_dir=SOURCE, recursive=True)
    total = hashlib.sha256()
    for name in sorted(set(names)):
        with open(os.path.join(SOURCE, name), "rb") as f:
            total.update(name.encode() + b"\n" + f.read())
    return total.hexdigest()


# --- packages


def unpack_without_dpkg(package, folder):
    """A .deb is an ar archive: 60-byte headers with the name first and the size at 48; data.tar.* holds the files."""
    with open(package, "rb") as f:
        if f.read(8) != b"!<arch>\n":
            raise Failed(f"{package} is no Debian package")
        while header := f.read(60):
            name, size = header[:16].decode().strip().rstrip("/"), int(header[48:58])
            body = f.read(size + size % 2)[:size]
            if name.startswith("data.tar"):
                how = {".xz": "-J", ".gz": "-z", ".zst": "--zstd"}[os.path.splitext(name)[1]]
                subprocess.run(["tar", "-x", how, "-C", folder], input=body, check=True)
                return
    raise Failed(f"{package} has no data.tar")


def unpack(packages, folder):
    """The root folder that the packages were unpacked in."""
    found = sorted(glob.glob(os.path.join(packages, "*.deb")))
    if not found:
        raise Failed(f"no .deb in {packages}: make the folder with tests/gpu/fetch-packages")
    root = os.path.join(folder, "packages")
    os.makedirs(root, exist_ok=True)
    for package in found:
        if shutil.which("dpkg-deb"):
            subprocess.run(["dpkg-deb", "-x", package, root], check=True)
        else:
            unpack_without_dpkg(package, root)
    return root


def add_path(env, name, *folders):
    env[name] = ":".join([f for f in folders if f] + ([env[name]] if env.get(name) else []))


def environment_of(root):
    """How programs find what lies under `root`: Open MPI and PMIx are told that they were moved."""
    lib = os.path.join(root, "usr/lib/x86_64-linux-gnu")
    env = {
        "OPAL_PREFIX": os.path.join(root, "usr"),
        "OPAL_LIBDIR": os.path.join(lib, "openmpi/lib"),
        "OPAL_PKGLIBDIR": os.path.join(lib, "openmpi/lib/openmpi3"),
        "OPAL_DATADIR": os.path.join(root, "usr/share"),
        "OPAL_SYSCONFDIR": os.path.join(root, "etc/openmpi"),
        "PMIX_INSTALL_PREFIX": os.path.join(lib, "pmix2"),
        # One host: no ssh is needed, and none may be there.
        "OMPI_MCA_plm": "isolated",
    }
    folders = [lib, os.path.join(lib, "openmpi/lib"), os.path.join(lib, "pmix2/lib"), os.path.join(root, "lib/x86_64-linux-gnu")]
    add_path(env, "LD_LIBRARY_PATH", *[f for f in folders if os.path.isdir(f)])
    return env


def own_libraries(root):
    """Arguments of configure for the libraries under `root`."""
    lib = os.path.join(root, "usr/lib/x86_64-linux-gnu")
    include = os.path.join(root, "usr/include")
    lower = os.path.join(root, "lib/x86_64-linux-gnu")
    folders = [lib, os.path.join(lib, "openmpi/lib"), lower]
    # Old tags: the path also serves the libraries that libraries need.
    paths = " ".join(f"-L{f} -Wl,-rpath,{f} -Wl,-rpath-link,{f}" for f in folders if os.path.isdir(f))
    arguments = [
        "CC=gcc",
        # Headers that depend on the machine lie apart.
        f"CPPFLAGS=-I{os.path.join(lib, 'openmpi/include')} -I{os.path.join(include, 'x86_64-linux-gnu')}",
        f"LDFLAGS={paths} -Wl,--disable-new-dtags",
        "LIBS=-lmpi",
    ]
    for name, (below, flags) in LIBRARIES.items():
        arguments += [f"{name}_CFLAGS=-I{os.path.join(include, below)}".rstrip("/"), f"{name}_LIBS={flags}"]
    return arguments


# --- NVIDIA's toolkit


def wheels():
    """Folders of NVIDIA's Python packages, which hold headers and libraries as well."""
    roots = {sysconfig.get_paths()["purelib"], sysconfig.get_paths()["platlib"]}
    return [p for r in sorted(roots) for p in sorted(glob.glob(os.path.join(r, "nvidia", "*")))]


def find_toolkit():
    nvcc = shutil.which("nvcc") or next(iter(sorted(glob.glob("/usr/local/cuda*/bin/nvcc"), reverse=True)), None)
    nvcc = nvcc or next((p for w in wheels() for p in glob.glob(os.path.join(w, "bin/nvcc"))), None)
    if nvcc is None:
        raise Failed("no nvcc: not on PATH, not in /usr/local/cuda*/bin, not among NVIDIA's Python packages")
    return os.path.dirname(os.path.dirname(os.path.realpath(nvcc)))


def gather_missing(toolkit, folder):
    """A folder of links to what the toolkit's own folder lacks (NCCL above all), or None."""
    wanted = {"nccl.h": "nccl", "cublasLt.h": "cublasLt", "cufft.h": "cufft", "cuda_runtime_api.h": "cudart"}
    places = [toolkit, "/usr", *wheels()]
    made = None
    for header, library in wanted.items():
        if os.path.exists(os.path.join(toolkit, "include", header)) and glob.glob(f"{toolkit}/lib*/lib{library}.so"):
            continue
        headers = [p for w in places for p in glob.glob(f"{w}/include/{header}")]
        files = [p for w in places for p in glob.glob(f"{w}/lib*/lib{library}.so*") + glob.glob(f"{w}/lib/x86_64-linux-gnu/lib{library}.so*")]
        if not headers or not files:
            raise Failed(f"lib{library} with {header} is neither in {toolkit} nor in /usr nor among NVIDIA's Python packages")
        made = os.path.join(folder, "cuda")
        os.makedirs(os.path.join(made, "include"), exist_ok=True)
        os.makedirs(os.path.join(made, "lib"), exist_ok=True)
        for path in glob.glob(os.path.join(os.path.dirname(headers[0]), header.split(".")[0].rstrip("Lt") + "*.h")) + [headers[0]]:
            link(path, os.path.join(made, "include", os.path.basename(path)))
        link(files[0], os.path.join(made, "lib", f"lib{library}.so"))
        # The name that the library gives itself, which the loader asks for.
        for path in files:
            link(path, os.path.join(made, "lib", os.path.basename(path)))
    return made


def link(target, name):
    if not os.path.lexists(name):
        os.symlink(target, name)


# --- the build


def copy_sources(folder):
    """The clone itself stays as it is."""
    target = os.path.join(folder, "source")
    shutil.copytree(SOURCE, target, symlinks=True, ignore=lambda at, names: NOT_SOURCES & set(names) if at == SOURCE else [])
    return target


def put_generated(packages, target):
    """configure, Makefile.in and what goes with them, all younger than their sources."""
    archive = os.path.join(packages, "generated.tar.gz")
    if not os.path.exists(archive):
        raise Failed(f"{archive} is missing: make the folder with tests/gpu/fetch-packages")
    with tarfile.open(archive) as tar:
        names = tar.getnames()
        tar.extractall(target)
    with open(os.path.join(target, "generated-from"), encoding="ascii") as f:
        if f.read().strip() != digest_of_build_files():
            raise Failed(f"{archive} was made from another configure.ac, m4 or module.mk: run tests/gpu/fetch-packages again")
    for name in names:
        os.utime(os.path.join(target, name))


def configure_arguments(root, folder, architecture):
    arguments = ["--with-cuda=" + find_toolkit()]
    missing = gather_missing(find_toolkit(), folder)
    arguments += [f"--with-nccl={missing}"] if missing else []
    arguments += [f"--with-cuda-arch={architecture}"] if architecture else []
    return arguments + own_libraries(root)


def configure(folder, packages, architecture, run):
    """A configured build folder and the environment of its programs. `run(command, cwd)` runs and records."""
    if platform.machine() != "x86_64":
        raise Failed(f"the packages are for x86_64, this machine is {platform.machine()}")
    root = unpack(packages, folder)
    source = copy_sources(folder)
    put_generated(packages, source)
    build = os.path.join(folder, "build")
    os.makedirs(build)
    run([os.path.join(source, "configure")] + configure_arguments(root, folder, architecture), build)
    env = environment_of(root)
    make = shutil.which("make") or os.path.join(root, "usr/bin/make")
    mpirun = os.path.join(root, "usr/bin/mpirun.openmpi")
    return build, env, make, mpirun


if __name__ == "__main__":
    if sys.argv[1:] != ["digest"]:
        sys.exit("usage: machine.py digest")
    print(digest_of_build_files())
