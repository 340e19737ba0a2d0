"""Packages of npm for tests: development only, and a test says why it is skipped where they cannot be had."""

import fcntl
import os
import shutil
import subprocess


def install(tests, build, name):
    """Copies the folder `name` of the tests into the build and installs what its package.json lists. Empty, or why it is not there."""
    source, folder = os.path.join(tests, name), os.path.join(build, name)
    os.makedirs(folder, exist_ok=True)
    with open(os.path.join(folder, "lock"), "w") as lock:  # another test of this build may be at it
        fcntl.flock(lock, fcntl.LOCK_EX)
        return _install(source, folder)


def _install(source, folder):
    with open(os.path.join(source, "package.json")) as f:
        wanted = f.read()
    for file in os.listdir(source):
        shutil.copy(os.path.join(source, file), folder)
    mark = os.path.join(folder, "installed.json")
    if os.path.exists(mark) and open(mark).read() == wanted:
        return ""
    if not shutil.which("npm") or not shutil.which("node"):
        return "there is no node or npm"
    try:
        done = subprocess.run(["npm", "install", "--ignore-scripts", "--no-audit", "--no-fund", "--no-package-lock"], cwd=folder,
                              capture_output=True, text=True, timeout=180)
    except subprocess.TimeoutExpired:
        return "npm could not reach its registry in time"
    if done.returncode != 0:
        return "npm: " + (done.stderr.strip().splitlines() or ["failed"])[-1]
    with open(mark, "w") as f:
        f.write(wanted)
    return ""
