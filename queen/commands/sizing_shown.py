"""The sizes of a profile on the terminal, and as JSON."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import asdict
from typing import Any

from rich.console import Console
from rich.table import Table

from queen.commands.sizing import Sized, of_round
from queen.training.budget import OPTIMIZER, WEIGHT

GB = 1e9


def print_sizes(sized: Sized) -> None:
    """Parameters, memory, work, and what the estimates stand on."""
    console = Console()
    for title, table in (
        ("Parameters", _parameters(sized)),
        (_memory_title(sized), _memory(sized)),
        ("Work of the model (hours are estimates)", _work(sized)),
    ):
        console.print(title, style="bold")
        console.print(table)
        console.print()
    for line in _said(sized):
        console.print(line, style="dim", markup=False, highlight=False)


def sizes_as_json(sized: Sized) -> dict[str, Any]:
    """Everything as plain data: bytes, tokens, device hours."""
    return {
        "profile": sized.profile,
        "parameters": {**asdict(sized.counts), "total": sized.counts.total},
        "encoder": {**asdict(sized.encoder), "measured": sized.measured},
        "memory": {
            str(zero): {**asdict(held), "total": held.total} for zero, held in sized.memory.items()
        },
        "activations": dict(zip(("plain", "checkpointed"), sized.activations, strict=True)),
        "stages": [
            {**asdict(work), "tokens": work.tokens, "device_hours": hours}
            for work, hours in zip(sized.works, sized.hours, strict=True)
        ],
        "total_device_hours": sized.total_hours,
        "assumptions": asdict(sized.assumptions),
    }


def _table(*names: str) -> Table:
    table = Table(box=None, header_style="bold")
    for number, name in enumerate(names):
        table.add_column(name, justify="left" if number == 0 else "right", overflow="fold")
    return table


def _parameters(sized: Sized) -> Table:
    counts, table = sized.counts, _table("part", "parameters", "")
    whose = "of the net itself" if sized.measured else "as plan.encoder states"
    rows = [
        ("encoder (frozen)", sized.encoder.parameters, whose),
        ("decoder", counts.decoder, f"{_count(counts.table)} of them embeddings"),
        ("bridge, plain", counts.bridge, f"{counts.bridges} blocks"),
    ]
    for name, number in (
        ("tied keys (ours)", counts.tied_keys),
        ("tied values (ours)", counts.tied_values),
        ("MLP on the states (ours)", counts.state_mlp),
        ("side to move (ours)", counts.side_to_move),
    ):
        rows.append((name, number, "" if number else "off"))
    for name, number, note in rows:
        table.add_row(name, _count(number), note)
    for stage, trained in counts.trained.items():
        frozen = counts.total - trained
        note = f"{_count(frozen)} frozen beside the encoder" if frozen > 0 else "all of it"
        table.add_row(f"trained in {stage}", _count(trained), note)
    return table


def _memory_title(sized: Sized) -> str:
    assumed = sized.assumptions
    return (
        f"Memory on each of {assumed.devices} x {assumed.device.name}, GB "
        f"(micro-batch {sized.micro_batch} x {sized.length} tokens)"
    )


def _memory(sized: Sized) -> Table:
    table = _table("ZeRO", "weights", "gradients", "optimizer", "sum", "+ activations",
                   "+ checkpointed")  # fmt: skip
    room = sized.assumptions.device.memory_gb * GB
    for zero, held in sized.memory.items():
        parts = (held.weights, held.gradients, held.optimizer, held.total)
        full = [held.total + kept for kept in sized.activations]
        cells = [f"{_gb(each)}{'' if each <= room else ' !'}" for each in full]
        table.add_row(str(zero), *map(_gb, parts), *cells)
    return table


def _work(sized: Sized) -> Table:
    devices = sized.assumptions.devices
    table = _table("stage", "does", "sequences", "tokens", "device hours", f"hours on {devices}")
    for work, hours in zip(sized.works, sized.hours, strict=True):
        name = f"{work.stage} (each round)" if of_round(work.stage) else work.stage
        cells = (
            _count(work.sequences),
            _count(work.tokens),
            _hours(hours),
            _hours(hours / devices),
        )
        table.add_row(name, work.kind, *cells)
    total = sized.total_hours
    rounds = sized.assumptions.rounds
    label = f"all, {rounds} round{'s' if rounds > 1 else ''}"
    table.add_row(label, "", "", "", _hours(total), _hours(total / devices))
    return table


def _said(sized: Sized) -> Iterator[str]:
    """What the figures stand on."""
    assumed, lengths = sized.assumptions, sized.assumptions.tokens
    device = assumed.device
    yield (
        f"Memory: bf16 weights {WEIGHT} bytes a parameter, the encoder's on every device; of what "
        f"trains, gradients 2 and float32 master weights with Adam's moments {OPTIMIZER}. ZeRO 1 "
        "shares the optimizer, 2 the gradients too, 3 the weights too. ! does not fit."
    )
    yield (
        f"Hours: {device.name}, peak {device.tflops:g} TFLOP/s bf16 and {device.bandwidth_gb:g} "
        f"GB/s as stated; assumed: training at {assumed.mfu:.0%} of the peak with checkpointing, "
        f"decoding at {assumed.decode_share:.0%} of the roofline."
    )
    yield (
        f"Tokens: a curriculum example {lengths.curriculum}, an explanation's prompt "
        f"{lengths.prompt}, an explanation {lengths.explanation}; kept of seeds "
        f"{assumed.kept['seeds']:.0%}, of roots {assumed.kept['filter']:.0%}; every tree uses its "
        "whole budget. Padding and the engine's searches are not counted."
    )


def _count(number: float) -> str:
    for size, unit in ((1e9, "B"), (1e6, "M"), (1e3, "k")):
        if number >= size:
            return f"{number / size:.4g} {unit}"
    return f"{number:.4g}"


def _gb(number: float) -> str:
    return f"{number / GB:.3g}" if number >= 1e7 else f"{number / GB:.1g}"


def _hours(hours: float) -> str:
    return f"{hours:,.0f}" if hours >= 100 else f"{hours:.3g}"
