#!/usr/bin/env bash
# Builds the compiled kernels for 64-bit ARM and tests them. On such a machine that is an installation like any other;
# elsewhere (Debian and its children) they are cross-compiled, and a Python for arm64 runs the tests under qemu-user.
#   scripts/arm64.sh [STEP …]        steps: prepare build kernels ranks litmus (default: all of them, in this order)
# Everything lies in build/arm64. docs/portability.md says what emulation cannot show.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

FOLDER=${RINGLET_ARM64_FOLDER:-$PWD/build/arm64}
SYSROOT=$FOLDER/sysroot
VENV=$FOLDER/venv
PYTHON=$VENV/bin/python
HOST_PYTHON=${HOST_PYTHON:-python3}
DEBIAN=${DEBIAN_MIRROR:-http://deb.debian.org/debian}
# The system whose Python and libraries are unpacked: its C library must not be older than that of the cross compiler.
RELEASE=${DEBIAN_RELEASE:-bookworm} PYTHON_VERSION=3.11
# What tests/kernels compares with. It is the last PyTorch whose wheels for arm64 on PyPI do without CUDA.
TORCH='torch==2.9.1'
TORCH_NEEDS=(filelock fsspec jinja2 networkx sympy typing-extensions)
TEST_NEEDS=('hypothesis>=6.100' 'pytest>=8.2,<9.2' 'pytest-timeout>=2.3' 'pytest-xdist>=3.6' 'nanobind>=2.4')
WORKERS=${PYTEST_WORKERS:-2}

# One thread per process. The emulated processor has no instruction that came after the first 64-bit ARM, as a Raspberry Pi 4:
# code that needs a newer one fails.
export OMP_NUM_THREADS=1 OPENBLAS_NUM_THREADS=1 QEMU_CPU=cortex-a72 RINGLET_CACHE=$FOLDER/cache

is_arm64() { [ "$(uname -m)" = aarch64 ]; }

fail() {
    echo "scripts/arm64.sh: $*" >&2
    exit 1
}

# -- prepare: compiler, emulator, and a Python with all that the tests need ------------------------------------------------
prepare() {
    mkdir -p "$FOLDER"
    if is_arm64; then
        [ -x "$PYTHON" ] || "$HOST_PYTHON" -m venv "$VENV"
        requirements > "$FOLDER/requirements.txt"
        "$PYTHON" -m pip install -q -r "$FOLDER/requirements.txt" "$TORCH" scikit-build-core ninja
        command -v cmake > /dev/null || "$PYTHON" -m pip install -q cmake
        return
    fi
    install_tools
    unpack_system
    make_emulated_environment
}

requirements() {
    "$HOST_PYTHON" scripts/requirements.py
    printf '%s\n' "${TEST_NEEDS[@]}" "${TORCH_NEEDS[@]}"
}

install_tools() {
    local wanted=()
    command -v aarch64-linux-gnu-g++ > /dev/null || wanted+=(g++-aarch64-linux-gnu)
    command -v qemu-aarch64 > /dev/null || wanted+=(qemu-user)
    command -v cmake > /dev/null || wanted+=(cmake)
    command -v ninja > /dev/null || wanted+=(ninja-build)
    [ "${#wanted[@]}" -gt 0 ] || return 0
    if [ "$(id -u)" != 0 ] || ! command -v apt-get > /dev/null; then
        fail "missing: ${wanted[*]}. Install them (Debian: apt install ${wanted[*]}), then start this again"
    fi
    apt-get update -qq
    DEBIAN_FRONTEND=noninteractive apt-get install -qq -y --no-install-recommends "${wanted[@]}" > /dev/null
}

# apt with lists and settings of its own: this machine's packages and architectures stay as they are.
foreign_apt() {
    APT_CONFIG=$FOLDER/apt/apt.conf apt-get -qq "$@"
}

unpack_system() {
    [ ! -e "$SYSROOT/.complete" ] || return 0
    rm -rf "$SYSROOT" "$FOLDER/apt"
    mkdir -p "$SYSROOT" "$FOLDER"/apt/{lists/partial,cache/archives/partial}
    touch "$FOLDER/apt/status"
    echo "deb [signed-by=/usr/share/keyrings/debian-archive-keyring.gpg] $DEBIAN $RELEASE main" > "$FOLDER/apt/sources.list"
    cat > "$FOLDER/apt/apt.conf" << END
APT::Architecture "arm64";
APT::Architectures { "arm64"; };
Dir::State::lists "$FOLDER/apt/lists";
Dir::State::status "$FOLDER/apt/status";
Dir::Cache "$FOLDER/apt/cache";
Dir::Etc::SourceList "$FOLDER/apt/sources.list";
Dir::Etc::SourceParts "/dev/null";
APT::Sandbox::User "$(id -un)";
END
    foreign_apt update
    foreign_apt install -y --download-only --no-install-recommends \
        "python$PYTHON_VERSION" "libpython$PYTHON_VERSION-dev" libgomp1 libatomic1 'libstdc++6' > /dev/null
    local package
    for package in "$FOLDER"/apt/cache/archives/*.deb; do dpkg -x "$package" "$SYSROOT"; done
    touch "$SYSROOT/.complete"
}

# A virtual environment whose Python is a script that calls the emulator: what Python starts by sys.executable is emulated, too.
make_emulated_environment() {
    local packages=$VENV/lib/python$PYTHON_VERSION/site-packages
    mkdir -p "$VENV/bin" "$packages"
    printf 'home = %s\ninclude-system-site-packages = false\n' "$SYSROOT/usr/bin" > "$VENV/pyvenv.cfg"
    cat > "$PYTHON" << END
#!/bin/sh
exec qemu-aarch64 -L '$SYSROOT' -0 "\$0" '$SYSROOT/usr/bin/python$PYTHON_VERSION' "\$@"
END
    chmod +x "$PYTHON"
    [ "$("$PYTHON" -c 'import platform; print(platform.machine())')" = aarch64 ] || fail "the emulated Python does not run"
    requirements > "$FOLDER/requirements.txt"
    if ! cmp -s "$FOLDER/requirements.txt" "$packages/.installed"; then
        foreign_pip -r "$FOLDER/requirements.txt"
        foreign_pip --no-deps "$TORCH"  # pip would look for what it needs on this machine's processor
        cp "$FOLDER/requirements.txt" "$packages/.installed"
    fi
}

foreign_pip() {
    local platforms=() glibc
    for glibc in 17 24 26 27 28 31 34 35 36; do platforms+=(--platform "manylinux_2_${glibc}_aarch64"); done
    "$HOST_PYTHON" -m pip --disable-pip-version-check install -q --upgrade --target "$VENV/lib/python$PYTHON_VERSION/site-packages" \
        --python-version "$PYTHON_VERSION" --implementation cp "${platforms[@]}" --platform manylinux2014_aarch64 --platform any \
        --only-binary=:all: "$@"
}

# -- build -----------------------------------------------------------------------------------------------------------------
build() {
    if is_arm64; then
        "$PYTHON" -m pip install -q --no-build-isolation --no-deps --force-reinstall .
        return
    fi
    cmake -S . -B "$FOLDER/cmake" -G Ninja --toolchain cmake/aarch64-linux-gnu.cmake -DRINGLET_SYSROOT="$SYSROOT" \
        -DPython_EXECUTABLE="$PYTHON" -DPython_INCLUDE_DIR="$SYSROOT/usr/include/python$PYTHON_VERSION" > "$FOLDER/cmake.log" \
        || { cat "$FOLDER/cmake.log" >&2; fail "CMake did not configure the build"; }
    cmake --build "$FOLDER/cmake"
    local packages=$VENV/lib/python$PYTHON_VERSION/site-packages
    rm -rf "$packages/ringlet"
    cp -r src/ringlet "$packages/"
    rm -f "$packages"/ringlet/kernels/_native*.so
    cmake --install "$FOLDER/cmake" --prefix "$packages" > /dev/null
}

# -- tests -----------------------------------------------------------------------------------------------------------------
run_pytest() {
    "$PYTHON" -c "from ringlet import kernels; found = kernels.load('compiled'); print('kernels:', found.name, found.instruction_set())"
    "$PYTHON" -m pytest -q -n "$WORKERS" --dist loadgroup --no-loadscope-reorder -p no:cacheprovider --timeout 900 "$@"
}

# All tests of the kernels but those of the NumPy kernels, which have nothing of this processor in them.
kernels() { run_pytest tests/kernels -k 'not reference'; }

# The channel between ranks and its fences; `ringlet train` on one and two workers: same bits, also of a resumed run.
ranks() {
    run_pytest tests/parallel/test_node_collectives.py tests/parallel/test_comm_fences.py tests/parallel/test_channel_watch.py \
        tests/parallel/test_litmus.py tests/cli/test_cli_same_bits.py
}

# Under emulation this shows that the program runs, no more: see docs/portability.md.
litmus() {
    local options=(--output "$FOLDER/litmus.json")
    is_arm64 || options+=(--rounds 20000 --seconds 1)
    "$PYTHON" -m benchmarks.litmus "${options[@]}"
}

[ "$#" -gt 0 ] || set -- prepare build kernels ranks litmus
for step in "$@"; do
    case $step in
        prepare | build | kernels | ranks | litmus) echo "== $step" && "$step" ;;
        *) fail "unknown step '$step'. Expected prepare, build, kernels, ranks or litmus" ;;
    esac
done
