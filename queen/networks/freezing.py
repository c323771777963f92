"""What of a QUEEN trains: whole parts, or of a frozen decoder the rows of its new tokens alone.

Source: METHOD section 1: in the paper only the bridge and the new token embeddings train. Those
rows then stand in a parameter of their own, so that no optimizer holds moments, and no step
gradients, of a table of which all but 76 rows are frozen.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

import torch
from safetensors import safe_open
from torch import Tensor, nn
from torch.nn import functional as F

from queen.networks.errors import NetworkError

if TYPE_CHECKING:
    from queen.networks.queen import QueenModel

PARTS = ("decoder", "bridge", "chess_tokens")
MATRICES = "matrices"  # the optimizer group of hidden layers' matrices
ROWS, HEAD_ROWS = "chess_rows", "chess_head_rows"


def freeze(model: QueenModel, parts: Sequence[str]) -> None:
    """Freeze these of PARTS, and unfreeze the others.

    With "decoder" frozen and "chess_tokens" not, the rows of the square and piece tokens in the
    embedding (and in an untied output head) are parameters of the model, and the tables they come
    from are frozen. The tables have what was learnt once nothing is frozen any more (`thaw`), and
    in a model that is saved meanwhile and read again.
    """
    unknown = set(parts) - set(PARTS)
    if unknown:
        raise NetworkError(
            f"cannot freeze {sorted(unknown)}", remedy=f"name any of {', '.join(PARTS)}"
        )
    _undo(model)
    model.frozen_parts = tuple(parts)
    model.decoder.requires_grad_("decoder" not in parts)
    model.bridges.requires_grad_("bridge" not in parts)
    if "decoder" in parts and "chess_tokens" not in parts:
        _keep(model, *(_Rows(name, model) for name in _tables(model)))
    elif "decoder" not in parts and "chess_tokens" in parts:
        _keep(model, _Masked(model))


def parameter_groups(
    model: QueenModel, lr: float, gate_factor: float, weight_decay: float
) -> list[dict[str, Any]]:
    """Optimizer groups of what is trainable: matrices, vectors and embeddings, gates.

    Gates learn at gate_factor times the rate, for at 0 they stay shut in a short run (METHOD
    section 1, ours); gates, norms, embeddings and the output head are not decayed.
    """
    groups: dict[str, list[nn.Parameter]] = {MATRICES: [], "plain": [], "gates": []}
    tables = (model.get_input_embeddings().weight, model.get_output_embeddings().weight)
    for name, parameter in model.named_parameters():
        if not parameter.requires_grad:
            continue
        gate = name.endswith(("attention_gate", "ffn_gate"))
        table = any(parameter is each for each in tables) or name in (ROWS, HEAD_ROWS)
        plain = parameter.ndim < 2 or table or "square_values" in name
        groups["gates" if gate else "plain" if plain else MATRICES].append(parameter)
    rates = {MATRICES: (lr, weight_decay), "plain": (lr, 0.0), "gates": (lr * gate_factor, 0.0)}
    return [
        {"name": kind, "params": params, "lr": rates[kind][0], "weight_decay": rates[kind][1]}
        for kind, params in groups.items()
        if params
    ]


def thaw(model: QueenModel) -> None:
    """Freeze nothing; rows that trained on their own are in their tables again."""
    freeze(model, ())


def take_in_rows(model: QueenModel, folder: Path) -> None:
    """Put rows that stand apart in a saved model's files into the tables they come from."""
    tables = {ROWS: model.get_input_embeddings(), HEAD_ROWS: model.get_output_embeddings()}
    for path in sorted(folder.glob("*.safetensors")):
        with safe_open(path, framework="pt") as file:
            for name in sorted({ROWS, HEAD_ROWS} & set(file.keys())):
                _put_back(model, tables[name], file.get_tensor(name))


class _Rows:
    """The chess tokens' rows of one table as a parameter of the model, and the hooks that read it.

    Args:
        name: of the parameter: ROWS for the embedding, and for a head tied to it; HEAD_ROWS for a
            head of its own.
    """

    def __init__(self, name: str, model: QueenModel) -> None:
        self.name = name
        self.ids = torch.tensor(_chess_ids(model))
        table = _weight(self._module(model))
        rows = nn.Parameter(table.detach()[self.ids.to(table.device)].clone())
        model.register_parameter(name, rows)
        self.places = torch.full((table.shape[0],), -1)
        self.places[self.ids] = torch.arange(len(self.ids))
        self.handles = list(self._reading(model))
        self.model = model

    def undo(self, model: QueenModel) -> None:
        """Put the rows back into their table, and leave the model as it was before."""
        _put_back(model, self._module(model), self.rows)
        for handle in self.handles:
            handle.remove()
        delattr(model, self.name)

    def _reading(self, model: QueenModel) -> Iterator[Any]:
        if self.name == ROWS:
            yield model.get_input_embeddings().register_forward_hook(self._embed)
        if self.name == HEAD_ROWS or len(_tables(model)) == 1:
            yield model.get_output_embeddings().register_forward_hook(self._score)

    def _embed(self, module: nn.Module, args: tuple[Tensor, ...], output: Tensor) -> Tensor:
        """Embeddings [..., hidden] with those of the chess tokens from the rows."""
        places = self._at(output.device)[args[0]]
        own = F.embedding(places.clamp(min=0), self.rows)
        return torch.where((places >= 0)[..., None], own.to(output.dtype), output)

    def _score(self, module: nn.Module, args: tuple[Tensor, ...], output: Tensor) -> Tensor:
        """Logits [..., V] with those of the chess tokens from the rows."""
        own = F.linear(args[0], self.rows.to(args[0].dtype))
        return output.index_copy_(-1, self.ids.to(output.device), own.to(output.dtype))

    @property
    def rows(self) -> Tensor:
        return cast(Tensor, getattr(self.model, self.name))

    def _at(self, device: torch.device) -> Tensor:
        self.places = self.places.to(device)
        return self.places

    def _module(self, model: QueenModel) -> nn.Module:
        inner = self.name == ROWS
        return model.get_input_embeddings() if inner else model.get_output_embeddings()


class _Masked:
    """Keeps the chess tokens' rows of every table as they are while the rest trains."""

    def __init__(self, model: QueenModel) -> None:
        self.ids = _chess_ids(model)
        modules: list[Any] = [model.get_input_embeddings(), model.get_output_embeddings()]
        tables: set[Any] = {module.weight for module in modules}
        self.handles = [table.register_hook(self._drop) for table in tables]

    def undo(self, model: QueenModel) -> None:
        for handle in self.handles:
            handle.remove()

    def _drop(self, gradient: Tensor) -> Tensor:
        kept = gradient.clone()
        kept[self.ids] = 0
        return kept


@torch.no_grad()
def _put_back(model: QueenModel, module: nn.Module, rows: Tensor) -> None:
    table = _weight(module)
    table[torch.tensor(_chess_ids(model), device=table.device)] = rows.to(table)


def _weight(module: nn.Module) -> nn.Parameter:
    return cast(nn.Parameter, module.weight)


def _tables(model: QueenModel) -> list[str]:
    """The parameters that chess tokens' rows need: one, or two where the head is not tied."""
    tied = model.get_output_embeddings().weight is model.get_input_embeddings().weight
    return [ROWS] if tied else [ROWS, HEAD_ROWS]


def _chess_ids(model: QueenModel) -> list[int]:
    return [*(model.config.square_ids or ()), *(model.config.piece_ids or ())]


def _keep(model: QueenModel, *held: _Rows | _Masked) -> None:
    model.__dict__["_held_apart"] = list(held)


def _undo(model: QueenModel) -> None:
    for held in model.__dict__.pop("_held_apart", ()):
        held.undo(model)
