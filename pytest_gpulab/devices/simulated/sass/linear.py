"""A solver of small linear programs: Mehrotra's predictor-corrector interior-point method (SIAM J. Optim. 2, 1992).

Among several optimal solutions, it finds one in their middle.
"""

import numpy as np
import numpy.typing as npt

Vector = npt.NDArray[np.float64]
Matrix = npt.NDArray[np.float64]
_ROUNDS, _GAP, _TOLERANCE = 60, 1e-9, 1e-6


def minimise(cost: Vector, matrix: Matrix, right: Vector) -> Vector:
    """Return x >= 0 with `matrix @ x == right` that minimises `cost @ x`, which is not negative: a minimum exists.

    The matrix, (m, n), must have linearly independent rows; else it may raise `numpy.linalg.LinAlgError`.
    """
    gram = np.linalg.inv(matrix @ matrix.T + 1e-9 * np.eye(len(right)))
    x, dual = matrix.T @ (gram @ right), gram @ (matrix @ cost)
    slack = cost - matrix.T @ dual
    x, slack = x + max(-1.5 * x.min(), 0.0), slack + max(-1.5 * slack.min(), 0.0)
    product = 0.5 * float(x @ slack)
    x, slack = x + product / max(slack.sum(), 1e-12) + 1e-6, slack + product / max(x.sum(), 1e-12) + 1e-6
    for _ in range(_ROUNDS):
        short, gap = right - matrix @ x, float(x @ slack) / len(x)
        if gap < _GAP and np.abs(short).max() < _TOLERANCE:
            break
        step = _Step(matrix, x, slack, short, cost - matrix.T @ dual - slack)
        dx, _, ds = step.towards(-x * slack)
        reached = float((x + _length(x, dx) * dx) @ (slack + _length(slack, ds) * ds)) / len(x)
        dx, dy, ds = step.towards(-x * slack - dx * ds + gap * (reached / gap) ** 3)
        primal, other = _length(x, dx, 0.99), _length(slack, ds, 0.99)
        x, dual, slack = x + primal * dx, dual + other * dy, slack + other * ds
    return np.asarray(x)


class _Step:
    """Newton steps from one point, towards given products of variables and slacks."""

    def __init__(self, matrix: Matrix, x: Vector, slack: Vector, short: Vector, rest: Vector) -> None:
        self.matrix, self.x, self.slack, self.short, self.rest = matrix, x, slack, short, rest
        self.ratio = x / slack
        self.normal = (matrix * self.ratio) @ matrix.T
        lower = np.linalg.cholesky(self.normal + 1e-13 * np.diag(self.normal.diagonal()))
        self.root = np.linalg.inv(lower)

    def towards(self, product: Vector) -> tuple[Vector, Vector, Vector]:
        right = self.short + self.matrix @ (self.ratio * self.rest - product / self.slack)
        dual = self.root.T @ (self.root @ right)
        dual = dual + self.root.T @ (self.root @ (right - self.normal @ dual))  # iterative refinement
        slack = self.rest - self.matrix.T @ dual
        return (product - self.x * slack) / self.slack, dual, slack


def _length(values: Vector, step: Vector, share: float = 1.0) -> float:
    """Return the step length, at most 1: `share` of the distance at which a value becomes negative."""
    falling = step < 0
    return min(1.0, share * float((-values[falling] / step[falling]).min(initial=1.0 / share)))
