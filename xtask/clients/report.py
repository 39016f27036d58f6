"""A plugin of pytest: writes what became of every test into the file COMPAT_REPORT, one to a line.

    passed tests/test_commands.py::TestRedisCommands::test_get_and_set
"""

import os

RANK = ("passed", "skipped", "failed")
outcomes = {}


def pytest_runtest_logreport(report):
    # A test that was expected to fail and did, or did not, is told as the suite counts it.
    outcome = report.outcome
    known = outcomes.get(report.nodeid, RANK[0])
    outcomes[report.nodeid] = max(known, outcome, key=RANK.index)


def pytest_collectreport(report):
    if report.failed:
        outcomes[report.nodeid] = "failed"


def pytest_sessionfinish(session):
    with open(os.environ["COMPAT_REPORT"], "w", encoding="utf-8") as file:
        for name, outcome in sorted(outcomes.items()):
            file.write(f"{outcome} {name}\n")
