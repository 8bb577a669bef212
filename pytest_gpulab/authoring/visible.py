"""Python source of an exercise without its hidden cases, for students.

A hidden case is a call with `hidden=True`. It is removed from the tuple or list that it is written in; a comprehension
of hidden cases becomes empty. Comments are lost, as they may describe a hidden case, and so are names that only hidden
cases use. `handout` loads the result and compares it with the original.
"""

import ast
from collections import Counter
from dataclasses import fields

from pytest_gpulab.exercise import Case

INSTEAD = "write each hidden case as Case(..., hidden=True) in a tuple"
MAKERS = ("Exercise", "single_kernel")
_PLACE = [field.name for field in fields(Case)].index("hidden")
_SEQUENCES = ("tuple", "list", "sorted")


class ComputedHidden(Exception):
    """An argument `hidden` that is an expression, at the line `line`."""

    def __init__(self, line: int) -> None:
        super().__init__(f"line {line} computes `hidden`")
        self.line = line


def without_hidden_cases(source: str, hidden_points: float) -> str:
    """Return the text of exercise.py, or of a module beside it, without hidden cases; the same text if it has none.

    `hidden_points` are those of the exercise's hidden cases, for the argument of that name. Raises ComputedHidden if an
    argument `hidden` is neither True nor False.
    """
    before, tree = ast.parse(source), ast.parse(source)
    for keyword in (node for node in ast.walk(tree) if isinstance(node, ast.keyword) and node.arg == "hidden"):
        if not isinstance(keyword.value, ast.Constant):
            raise ComputedHidden(keyword.lineno)
    remover = _Remover()
    remover.visit(tree)
    makers = [node for node in ast.walk(tree) if isinstance(node, ast.Call) and _name(node.func) in MAKERS]
    for maker in makers if hidden_points else ():
        maker.keywords.append(ast.keyword("hidden_points", ast.Constant(hidden_points)))
    if not (remover.removed or (makers and hidden_points)):
        return source
    _remove_unused(tree, _loaded(before))
    return ast.unparse(ast.fix_missing_locations(tree)) + "\n"


class _Remover(ast.NodeTransformer):
    """A transformer that removes hidden cases; `removed` is True if there were any."""

    def __init__(self) -> None:
        self.removed = False
        self._names: set[str] = set()

    def visit_Assign(self, node: ast.Assign) -> ast.AST | None:
        if _is_hidden_case(node.value) and all(isinstance(target, ast.Name) for target in node.targets):
            self._names |= {target.id for target in node.targets if isinstance(target, ast.Name)}
            self.removed = True
            return None
        return self.generic_visit(node)

    def visit_Expr(self, node: ast.Expr) -> ast.AST | None:
        if any(_is_hidden_case(inner) for inner in ast.walk(node)):
            self.removed = True
            return None
        return self.generic_visit(node)

    def visit(self, node: ast.AST) -> ast.AST | None:
        if isinstance(node, ast.Tuple | ast.List):
            kept = [element for element in node.elts if not self._is_hidden(element)]
            self.removed |= len(kept) < len(node.elts)
            node.elts = kept
        elif isinstance(node, ast.expr) and self._is_hidden(node) and not isinstance(node, ast.Name):
            self.removed = True
            is_list = isinstance(node, ast.ListComp) or (isinstance(node, ast.Call) and _name(node.func) == "list")
            return ast.List([], ast.Load()) if is_list else ast.Tuple([], ast.Load())
        found: ast.AST | None = super().visit(node)
        return found

    def _is_hidden(self, node: ast.expr) -> bool:
        """Return True for a hidden case, and for a sequence of hidden cases by a comprehension."""
        if isinstance(node, ast.Starred):
            return self._is_hidden(node.value)
        if isinstance(node, ast.GeneratorExp | ast.ListComp):
            return self._is_hidden(node.elt)
        if isinstance(node, ast.Call) and _name(node.func) in _SEQUENCES and len(node.args) == 1:
            return self._is_hidden(node.args[0])
        return _is_hidden_case(node) or (isinstance(node, ast.Name) and node.id in self._names)


def _is_hidden_case(node: ast.AST) -> bool:
    if not isinstance(node, ast.Call):
        return False
    values = [keyword.value for keyword in node.keywords if keyword.arg == "hidden"]
    values += node.args[_PLACE : _PLACE + 1] if _name(node.func) == "Case" else []
    return any(isinstance(value, ast.Constant) and value.value is True for value in values)


def _name(function: ast.expr) -> str:
    return function.attr if isinstance(function, ast.Attribute) else getattr(function, "id", "")


def _loaded(tree: ast.AST) -> Counter[str]:
    """Return the names that a module reads, with their numbers."""
    return Counter(node.id for node in ast.walk(tree) if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Load))


def _remove_unused(tree: ast.Module, before: Counter[str]) -> None:
    """Remove what the module defined or imported for its hidden cases only: it was read before, and is no longer."""
    while True:
        unused = set(before) - set(_loaded(tree))
        body = [kept for statement in tree.body if (kept := _without(statement, unused)) is not None]
        if len(body) == len(tree.body):
            return
        tree.body = body


def _without(statement: ast.stmt, unused: set[str]) -> ast.stmt | None:
    if isinstance(statement, ast.Import | ast.ImportFrom):
        statement.names = [alias for alias in statement.names if (alias.asname or alias.name) not in unused]
        return statement if statement.names else None
    names = {getattr(statement, "name", "")}  # of a function or a class
    if isinstance(statement, ast.Assign):
        names = {target.id if isinstance(target, ast.Name) else "" for target in statement.targets}
    elif isinstance(statement, ast.AnnAssign) and isinstance(statement.target, ast.Name):
        names = {statement.target.id}
    return None if names <= unused else statement
