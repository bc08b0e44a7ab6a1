"""The reference shows the value of a default, where its name is private: `window_s: float = 604800.0`."""

from __future__ import annotations

import ast
import operator
import re
from typing import TYPE_CHECKING

import griffe

if TYPE_CHECKING:
    from collections.abc import Callable

#: A constant of a module that no user imports, and no attribute of something.
_CONSTANT = re.compile(r"(?<![\w.])_?[A-Z][A-Z0-9_]+\b(?!\.)")
_SIGNS: dict[type[ast.operator], Callable[[float, float], float]] = {
    ast.Add: operator.add,
    ast.Sub: operator.sub,
    ast.Mult: operator.mul,
    ast.Div: operator.truediv,
}


class Values(griffe.Extension):
    """An extension of griffe, which reads the source for mkdocstrings."""

    def on_function(self, *, func: griffe.Function, **_: object) -> None:
        """Give each parameter the value of its default."""
        for each in func.parameters:
            if each.default is not None:
                each.default = shown(each.default, func.module)

    def on_attribute(self, *, attr: griffe.Attribute, **_: object) -> None:
        """The same for a field: the parameters of a dataclass are made of them later."""
        if attr.value is not None and isinstance(attr.parent, griffe.Class):
            attr.value = shown(attr.value, attr.module)


def shown(value: str | griffe.Expr, module: griffe.Module) -> str | griffe.Expr:
    """The value as it is, unless it names constants of the module."""
    text = str(value)
    names = {name for name in _CONSTANT.findall(text) if name in module.members}
    if not names:
        return value
    for name in names:
        found = module.members[name]
        if isinstance(found, griffe.Alias):
            try:
                found = found.final_target
            except griffe.AliasResolutionError:
                return value
        if not isinstance(found, griffe.Attribute) or found.value is None or found.value is value:
            return value  # the last: a text in which a constant's own name is a word
        behind = str(shown(found.value, found.module))
        if not (name.startswith("_") or _figure(behind) is not None):
            return value  # a name that users know, of an object
        text = re.sub(rf"\b{name}\b", behind, text)
    figure = _figure(text)
    return text if figure is None else repr(figure)


def _figure(text: str) -> float | None:
    """What a product or sum of literals comes to; None: it is none."""

    def of(node: ast.expr) -> float:
        if isinstance(node, ast.Constant) and isinstance(node.value, int | float):
            return node.value
        if isinstance(node, ast.BinOp) and type(node.op) in _SIGNS:
            return _SIGNS[type(node.op)](of(node.left), of(node.right))
        raise ValueError(text)

    try:
        return of(ast.parse(text, mode="eval").body)
    except (SyntaxError, ValueError):
        return None
