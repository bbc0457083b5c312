"""The summary of `report`: plain text for an issue. It is made from the fields of the archive only."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Iterator

    from aioacl._cli._report_fields import Fields

MOST_ROWS: Final = 20  # of the rows below a step
SHOWN: Final = ("empty task", "wake-up, watch", "wake-up, thread")


def summary(report: Fields) -> str:
    """Returns the summary. Its first line states whether a card was used."""
    machine, steps = report["machine"], report["steps"]
    doctor = steps["doctor"]
    lines = [
        f"aioacl report: {_what(report['backend'], doctor)}",
        _versions(machine),
        "with resets of the device"
        if report["reset"]
        else "without resets of the device (--reset allows them)",
        "",
    ]
    for name, step in steps.items():
        lines.append(
            f"{name:<14} {step['result']:<8} {step['seconds']:>6.1f} s  {_outline(name, step)}".rstrip()
        )
        rows = [*_rows(name, step)]
        lines += [f"    {row}" for row in rows[:MOST_ROWS]]
        if len(rows) > MOST_ROWS:
            lines.append(f"    and {len(rows) - MOST_ROWS} more, which the archive has")
    return "\n".join(lines) + "\n"


def _versions(machine: Fields) -> str:
    packages = ", ".join(f"{name} {machine[name]}" for name in ("aioacl", "python", "cffi", "anyio", "libc"))
    return f"{packages}, {machine['architecture']}"


def _what(backend: str | None, doctor: Fields) -> str:
    if backend == "simulator":
        return "SIMULATOR, no card was used"
    if backend is None:
        return (
            "no ACL library was found"
            if doctor["places_tried"]
            else "no step has shown which library was used"
        )
    return f"{doctor.get('chip') or 'unknown chip'}, CANN {doctor.get('cann') or 'of unknown version'}"


def _outline(name: str, step: Fields) -> str:
    if step["result"] == "not run":
        return "no step before it found an ACL library"
    if not step["ran"]:
        return str(step["ending"])
    made = _OUTLINES[name.partition(" ")[0]](step)
    if step["result"] == "hang":
        made = f"killed after {step['limit_seconds']:g} s; {made}"
    elif step["result"] == "crash":
        made = f"{step['ending']}; {made}"
    return made


def _figure(value: float | None, unit: str = "") -> str:
    return "?" if value is None else f"{value:,g}{unit}"


def _count(number: int, noun: str) -> str:
    return f"{number} {noun}" if number == 1 else f"{number} {noun}s"


def _doctor(step: Fields) -> str:
    if step["backend"] is None:
        return (
            f"no library in {_count(step['places_tried'], 'place')}" if step["places_tried"] else "no results"
        )
    calls = ("aclInit", "aclrtGetDeviceCount")
    return ", ".join(
        [
            f"{_figure(step['functions'])} functions, {len(step['missing'])} missing",
            *(f"{call} returned {step[call]}" for call in calls if step[call]),
            f"{_figure(step['devices'])} devices",
            f"failed tasks: {step['failure_detection'] or '?'}",
            f"{_count(step['problems'], 'problem')}, {_count(step['warnings'], 'note')}",
        ]
    )


def _device(step: Fields) -> str:
    return f"{step['status']} {step['evidence']}".rstrip()


def _selftest(step: Fields) -> str:
    kinds = ("held", "broken", "known_trait", "not_testable")
    counts = ", ".join(f"{step[each]} {each.replace('_', ' ')}" for each in kinds)
    return f"{len(step['checks'])} of {_figure(step['total'])} checks: {counts}"


def _sequences(step: Fields) -> str:
    return (
        f"{step['as_recorded']} of {_figure(step['total'])} as recorded, {step['different']} different, "
        f"{step['lack_a_function']} lack a function"
    )


def _timing(step: Fields) -> str:
    figures = {row["step"]: row["median"] for row in step["rows"]}
    shown = [f"{name} {_figure(figures.get(name), ' us')}" for name in SHOWN]
    return "; ".join([f'waits="{step["suits"]}" suits', *shown]) if step["suits"] else "no figures"


def _demo(step: Fields) -> str:
    if step["tasks"] is None:
        return "no figures"
    lags = [_figure(step[name], " ms") for name in ("loop_lag_p99_ms", "blocking_loop_lag_p99_ms")]
    return (
        f"{_figure(step['finished'])} of {step['tasks']} tasks, {_figure(step['files'])} files, "
        f"{_figure(step['mismatches'])} changed, {_figure(step['resets'])} resets, {step['failures']} failures, "
        f"loop lag {lags[0]}, with blocking calls {lags[1]}"
    )


def _model(step: Fields) -> str:
    done = [f"{each['phase']} {_figure(each['ms'], ' ms')}" for each in step["phases"]]
    if not step["well"]:
        reason = f"{step['call'] or ''} {step['code'] or ''}".strip()
        done.append(f"no success in the {step['at'] or 'open'}{': ' if reason else ''}{reason}")
    elif step["gears"]:
        done.append("no call, because it has gears")
    return "; ".join(done)


def _rows(name: str, step: Fields) -> Iterator[str]:
    """Yields what differs from the expectation, in a line each."""
    for each in step.get("checks", ()):
        if each["verdict"] in ("broken", "known_trait"):
            yield f"{each['verdict'].replace('_', ' ')}: {each['id']}: {each['evidence'] or 'no code'}"
    for each in step.get("differences", ()):
        yield f"{each['id']}, step {each['step']}, {each['call']}: expected {each['expected']}, got {each['got']}"
    for each in step.get("rows", ()):
        if each["median"] is None:
            yield f"no figure: {each['step']}: {each['evidence'] or 'no code'}"
    if step["result"] != "ok" and name not in ("device before", "device after") and step.get("evidence"):
        yield f"the errors name {step['evidence']}"
    if step.get("process_left"):
        yield "a process has not ended although it was killed"


_OUTLINES: Final = {
    "doctor": _doctor,
    "device": _device,
    "selftest": _selftest,
    "sequences": _sequences,
    "timing": _timing,
    "demo": _demo,
    "model": _model,
}
