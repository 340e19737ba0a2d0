"""The loop of the test programs in Python: runs tests one after the other and says in TAP how each ended."""

import os
import time


def crowd():
    """How many times as long something may take here as on a machine that does nothing else: the programs that want a core, for each core.
    At least 1."""
    with open("/proc/loadavg") as f:
        words = f.read().split()
    cores = len(os.sched_getaffinity(0))
    return max(1.0, float(words[0]) / cores, int(words[3].split("/")[0]) / cores)


def soon(act, within):
    """`act` says how many seconds something took. That is less than `within` where nothing else has the cores: one of eight times will do, and
    where others want them, as many times as much as there are."""
    took, limit = [], within
    while not took or (min(took) >= limit and len(took) < 8):
        took.append(act())
        limit = within * crowd()
    assert min(took) < limit, (took, limit)


def run(tests, wanted=(), skip=""):
    """Runs `tests`, functions, or those of them that are named in `wanted`. One that returns words was skipped for that reason; with `skip`
    all are. The exit status: 1 if any failed."""
    tests = [t for t in tests if not wanted or t.__name__ in wanted]
    failed = 0
    print("1..%d" % len(tests), flush=True)
    for number, test in enumerate(tests, 1):
        began = time.monotonic()
        try:
            why = skip or test()
            print("ok %d - %s%s" % (number, test.__name__, " # SKIP " + why if why else ""))
        except Exception as problem:  # a failed assertion, a program that is gone, a terminal that does not say what is expected
            failed += 1
            print("not ok %d - %s" % (number, test.__name__))
            print("# line %d: %s: %s" % (_line(problem, test), type(problem).__name__, str(problem)[:3000].replace("\n", "\n# ")))
        print("# %.1f s" % (time.monotonic() - began), flush=True)
    return 1 if failed else 0


def _line(problem, test):
    """Where it failed: the last line of the file that the test is in."""
    file, at, found = test.__code__.co_filename, problem.__traceback__, 0
    while at:
        if at.tb_frame.f_code.co_filename == file:
            found = at.tb_lineno
        at = at.tb_next
    return found


def named(module):
    """The tests of a module (its globals()), test_..., in the order they stand in it."""
    return [f for name, f in module.items() if name.startswith("test_") and callable(f)]
