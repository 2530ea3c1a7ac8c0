"""Descent by L-BFGS that reports its progress, stops by a rule of its own and walks around what is not finite."""

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np

from choicegp.inference.driver import Watch

_MEMORY = 10  # iterations over which L-BFGS must gain something
_NO_BETTER = "L-BFGS found no better point"
Loss = Callable[[np.ndarray], tuple[Any, Any]]  # value and gradient


class Descent(NamedTuple):
    """Where L-BFGS stands, with the loss after every iteration, and how many descents led there."""

    x: np.ndarray
    losses: tuple[float, ...] = ()
    status: str = "stopped"
    message: str = ""
    n_runs: int = 0


def _guarded(loss: Loss) -> Any:
    """Put a wall where ``loss`` is not finite, not so high that a line search comes back with a tiny step."""
    seen: list[float] = []

    def finite(x: np.ndarray) -> tuple[float, np.ndarray]:
        value, gradient = (np.asarray(part, float) for part in loss(x))
        if not (np.isfinite(value) and np.all(np.isfinite(gradient))):
            return 2.0 * max(map(abs, seen), default=1e10), np.zeros_like(gradient)
        seen.append(float(value))
        return seen[-1], gradient

    return finite


def descend(
    watch: Watch, phase: str, loss: Loss, start: Descent, max_iter: int, tol: float, bounds: Any = None,
    flat: float = 0.0,
) -> Descent:  # fmt: skip
    """Continue by L-BFGS until some iterations gain less than ``tol`` (times each 100 nats of loss).

    It also ends where no slope is steeper than ``flat``.
    """
    from scipy.optimize import minimize

    status = "stopped" if start.losses else "failed"
    now = start._replace(status=status, message=_NO_BETTER, n_runs=start.n_runs + 1)

    def look(intermediate_result: Any) -> None:
        nonlocal now
        losses = (*now.losses, float(intermediate_result.fun))
        now = now._replace(x=intermediate_result.x.copy(), losses=losses, status="stopped")
        if len(losses) % _MEMORY == 0:
            watch.report(phase, len(losses), -losses[-1])
        gained = losses[-_MEMORY - 1] - losses[-1] if len(losses) > _MEMORY else np.inf
        if gained < tol * max(1.0, abs(losses[-1]) / 100.0):
            now = now._replace(status="converged", message=f"{_MEMORY} iterations gained {gained:.2g} nats")
        elif len(losses) >= max_iter:
            now = now._replace(message=f"the limit of {max_iter} iterations")
        elif watch.is_up:
            now = now._replace(message=watch.out_of_time)
        else:
            return
        raise StopIteration

    how: Any = {"maxiter": max_iter, "maxfun": 20 * max_iter, "ftol": 0.0, "gtol": flat, "maxcor": 30}
    end = minimize(_guarded(loss), now.x, method="L-BFGS-B", jac=True, bounds=bounds, callback=look, options=how)
    steepest = np.abs(end.jac).max(initial=0.0)
    if now.losses and now.message == _NO_BETTER and steepest <= flat:
        now = now._replace(status="converged", message=f"the steepest slope is {steepest:.2g} nats")
    return now
