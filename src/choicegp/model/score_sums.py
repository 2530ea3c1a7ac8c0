"""Derivatives of probabilities that are ratios of sums of products over pairs.

With scores S_o = sum_v log s(o,v), whose factors s(o,v) are affine in each Φ(z_i(o,v)), such a probability is

    p = sum_o b_o e^S_o / sum_o e^S_o,

where b does not depend on the utility in question.  With the shares r_o of the first sum and w_o of the second,
g_o = dS_o / du, their mean g_w under w and g = d log p / du = sum_o (r_o - w_o) g_o,

    -d² log p / du² = sum_o (r_o - w_o) (-d² S_o / du² - (g_o - g_w)(g_o - g_w)^T) + g g^T,

and -d² S_o / dz² = f (z + f) for f = dS_o / dz of each pair, as everywhere in `choicegp.model.derivatives`.  Where
p is only a part k = p / (p + rest) of a sum with other terms, the gradient is k g, and the Hessian of the sum has
k times the first terms, and k² times the last.
"""

from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array
from jaxtyping import Float

from choicegp.model.derivatives import laplacian, to_objects
from choicegp.model.likelihood import Pairs, of_all_pairs


class Slopes(NamedTuple):
    """Derivatives of the scores of the two objects of each pair with respect to how far each is ahead of the other.

    Attributes
    ----------
    forth, back : Array (d, P, m, S)
        dS_first / dz and -dS_second / dz, where z = u(first) - u(second).
    """

    forth: Float[Array, "d P m S"]
    back: Float[Array, "d P m S"]


def averaged_ratio(
    z: Float[Array, "d P m S"],
    slopes: Slopes,
    above: Float[Array, "#d a m S"],
    below: Float[Array, "#d a m S"],
    kept: Float[Array, "#d m S"],
    pairs: Pairs,
) -> tuple[Float[Array, "d a m"], Float[Array, "d a a m"]]:
    """Average gradient and negative Hessian of log(p + rest) over samples.

    Parameters
    ----------
    z : Array (d, P, m, S)
    slopes : Slopes
    above, below : Array (d or 1, a, m, S)
        Shares r and w of the objects in the sums above and below the line.
    kept : Array (d or 1, m, S)
        k, the share of p in the sum with the rest.
    pairs : Pairs
    """
    forth, back = slopes
    n_samples, n_pairs = z.shape[-1], kept[:, None]

    def slope_of(share: Float[Array, "#d a m S"]) -> Float[Array, "d P m S"]:
        return share[:, pairs.first] * forth - share[:, pairs.second] * back

    change = above - below
    first, second = change[:, pairs.first] * forth, change[:, pairs.second] * back
    bend = first * (z + forth) + second * (back - z)
    of_pairs = n_pairs * (first - second)
    slope = to_objects(of_pairs, pairs)
    f = jax.vmap(lambda ahead, behind: of_all_pairs(ahead, behind, pairs, 0.0))(forth, back)
    diagonal = np.eye(f.shape[1], dtype=bool)[None, :, :, None, None]
    rows = jnp.where(diagonal, jnp.sum(f, axis=2, keepdims=True), -f) - to_objects(slope_of(below), pairs)[:, None]
    weight = jnp.broadcast_to((n_pairs * change)[:, :, None], rows.shape)
    curvature = laplacian(jnp.mean(n_pairs * bend, axis=-1), pairs)
    curvature -= jnp.einsum("iopms,ioqms->ipqm", weight * rows, rows) / n_samples
    curvature += jnp.einsum("ioms,ipms->iopm", slope, slope) / n_samples
    return jnp.mean(slope, axis=-1), curvature
