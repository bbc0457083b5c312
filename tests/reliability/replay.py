"""python -m tests.reliability.replay SCENARIO: repeats one schedule. Exits with 1 if it finds a problem."""

from __future__ import annotations

import sys

# `python -m` puts the checkout first on the path, but the installed aioacl must be used.
sys.path.append(sys.path.pop(0))

import argparse
import os

from tests.reliability.schedule_bugs import BUGS
from tests.reliability.schedule_core import SCENARIOS
from tests.reliability.schedule_runs import ScheduleProcess
from tests.reliability.scheduler import Grain
from tests.reliability.strategies import Recorded


def main() -> int:
    """Returns 0 if nothing was found, else 1."""
    parser = argparse.ArgumentParser(prog="python -m tests.reliability.replay", description=__doc__)
    parser.add_argument("scenario", choices=SCENARIOS)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--number", type=int, default=0, help="the number of the schedule of this seed")
    parser.add_argument(
        "--decisions", help="the numbers of the chosen threads, separated by commas, instead of a seed"
    )
    parser.add_argument(
        "--grain", type=Grain, default=Grain.COARSE, help="at which steps the scheduler may switch threads"
    )
    parser.add_argument("--bug", choices=BUGS, help="a known bug to put into aioacl before the run")
    options = parser.parse_args()
    process, scenario = ScheduleProcess(), SCENARIOS[options.scenario]
    if options.bug:
        BUGS[options.bug].put()
    strategy, grain = process.strategy(scenario, options.seed, options.number)
    if options.decisions is not None:
        numbers = [int(number) for number in options.decisions.split(",") if number]
        strategy, grain = Recorded(numbers), options.grain
    problems = process.once(scenario, strategy, grain=grain)
    print(f"{len(process.scheduler.decisions)} decisions, {process.scheduler.points} points")
    print("\n".join(problems) or "nothing was found")
    return int(bool(problems))


if __name__ == "__main__":
    code = main()
    sys.stdout.flush()
    os._exit(code)  # threads of an aborted schedule wait for ever
