"""Alice and the laptops: a simulated catalogue and a simulated person with two goals."""

import numpy as np
import pandas as pd

from choicegp.checks import number_option, seed, whole_number
from choicegp.data.choices import ChoiceData
from choicegp.data.pareto import undominated
from choicegp.datasets.simulated import SetSize, SyntheticChoices, draw_sets, random_generator
from choicegp.errors import ChoiceGPError

_FAMILIES = (
    *("Alder", "Borealis", "Cinder", "Dune", "Ember", "Fjord", "Harbour", "Juniper"),
    *("Kestrel", "Lumen", "Meridian", "Osprey", "Pebble", "Quartz", "Sable", "Tundra"),
)
_SCREENS = np.array([13.3, 14.0, 15.6, 16.0, 17.3])
_SCREEN_SHARES = np.array([0.2, 0.3, 0.25, 0.15, 0.1])
_USUAL_WEIGHT = np.array([1.2, 1.35, 1.75, 1.9, 2.5])
_MEMORY = np.array([8, 16, 32, 64])
_KEYBOARDS = np.array(["us", "uk", "de"])
_KEYBOARD_SHARES = np.array([0.3, 0.5, 0.2])
_GRADES = np.array(["Lite", "Plus", "Pro", "Max"])


def laptops(n_objects: int = 120, random_state: int | None = 0) -> pd.DataFrame:
    """Make up a catalogue of laptops.

    Fast machines have more memory, weigh more, run shorter on a battery and cost more; big screens are
    heavy; being light for its size, or running long, has its price.

    Parameters
    ----------
    n_objects : int
    random_state : int or None
        Seed. None: a new one.

    Returns
    -------
    DataFrame
        Indexed by `model`, a unique readable name, with the columns `cpu_score` (points of a benchmark),
        `memory_gb`, `weight_kg`, `battery_h`, `screen_in`, `price_eur` and `keyboard` ("us", "uk" or "de").

    Examples
    --------
    >>> catalogue = laptops(5)
    >>> list(catalogue.columns)
    ['cpu_score', 'memory_gb', 'weight_kg', 'battery_h', 'screen_in', 'price_eur', 'keyboard']
    """
    n = whole_number("n_objects", n_objects, 2)
    rng = random_generator(random_state)
    grade = rng.standard_normal(n)  # how much of a workstation it is
    kind = rng.choice(len(_SCREENS), size=n, p=_SCREEN_SHARES)
    screen, usual_weight = _SCREENS[kind], _USUAL_WEIGHT[kind]

    cpu = np.round(13000 * np.exp(0.4 * grade + 0.05 * (screen - 14) + 0.1 * rng.standard_normal(n)), -2)
    steps = np.digitize(grade + 0.5 * rng.standard_normal(n), [-0.9, 0.5, 1.6])
    memory = _MEMORY[steps]
    weight = usual_weight * np.exp(0.05 * grade + 0.08 * rng.standard_normal(n))
    battery = np.clip(11 - 1.2 * grade - 0.3 * (screen - 14) + 2 * rng.standard_normal(n), 4, 20)
    dearer = (
        0.30 * grade
        + 0.08 * np.log2(memory / 16)
        + 0.8 * np.log(usual_weight / weight)
        + 0.02 * (battery - 11)
        + 0.03 * (screen - 14)
        + 0.12 * rng.standard_normal(n)
    )
    price = np.round(980 * np.exp(dearer), -1) - 1
    return pd.DataFrame(
        {
            "cpu_score": cpu.astype(int),
            "memory_gb": memory,
            "weight_kg": np.round(weight, 2),
            "battery_h": np.round(2 * battery) / 2,
            "screen_in": screen,
            "price_eur": price.astype(int),
            "keyboard": rng.choice(_KEYBOARDS, size=n, p=_KEYBOARD_SHARES),
        },
        index=pd.Index(_model_names(rng, screen, grade), name="model"),
    )


def _model_names(rng: np.random.Generator, screen: np.ndarray, grade: np.ndarray) -> list[str]:
    families = rng.choice(_FAMILIES, size=len(screen))
    grades = _GRADES[np.digitize(grade, [-0.7, 0.4, 1.3])]
    seen: dict[str, int] = {}
    names = []
    for family, inches, word in zip(families, screen, grades, strict=True):
        name = f"{family} {int(inches)} {word}"
        seen[name] = seen.get(name, 0) + 1
        names.append(name if seen[name] == 1 else f"{name} mk{seen[name]}")
    return names


def alice(catalogue: pd.DataFrame) -> np.ndarray:
    """Return what the laptops are worth to Alice: power for the money, and comfort.

    Power for the money rises with the logarithm of the processor's score and of the memory (beyond 32 GB
    she has no use for it), falls with the logarithm of the price, and falls steeply above her budget of
    1500 euros::

        log2(cpu_score / 10000) + 0.5 log2(min(memory_gb, 32) / 16)
            - 0.8 log2(price_eur / 1000) - 1.5 max(0, price_eur / 1500 - 1)

    Comfort falls with the weight, rises with the battery's hours, less and less (a day is enough), is best
    at a screen of 14 inches (a bigger one annoys her on the train, a smaller one at her desk), and drops
    when the keyboard is not the British one she is used to::

        -1.2 weight_kg + 3 (1 - exp(-battery_h / 6)) - 0.2 (screen_in - 14)^2 - 0.5 [keyboard is not "uk"]

    Parameters
    ----------
    catalogue : DataFrame
        With the columns of `laptops`.

    Returns
    -------
    ndarray of shape (t, 2)

    Examples
    --------
    >>> alice(laptops(5)).shape
    (5, 2)
    """
    if not isinstance(catalogue, pd.DataFrame):
        raise ChoiceGPError("alice needs a DataFrame with the columns of datasets.laptops()")
    numbers = ["cpu_score", "memory_gb", "weight_kg", "battery_h", "screen_in", "price_eur"]
    missing = [column for column in [*numbers, "keyboard"] if column not in catalogue.columns]
    if missing:
        raise ChoiceGPError(f"the catalogue lacks what Alice looks at: {', '.join(missing)}")
    cpu, memory, weight, battery, screen, price = (catalogue[column].to_numpy(dtype=float) for column in numbers)
    strange_keyboard = (catalogue["keyboard"] != "uk").to_numpy(dtype=float)
    power = np.log2(cpu / 10000) + 0.5 * np.log2(np.minimum(memory, 32) / 16)
    cost = 0.8 * np.log2(price / 1000) + 1.5 * np.maximum(0, price / 1500 - 1)
    comfort = -1.2 * weight + 3 * (1 - np.exp(-battery / 6)) - 0.2 * (screen - 14) ** 2 - 0.5 * strange_keyboard
    return np.column_stack([power - cost, comfort])


def alice_choices(
    n_objects: int = 120, n_sets: int = 100, set_size: SetSize = 4, error: float = 0.0, random_state: int | None = 0
) -> SyntheticChoices:
    """Simulate Alice ticking, on each page of a few laptops, every one that she would not reject.

    Parameters
    ----------
    n_objects : int
        The catalogue is ``laptops(n_objects, random_state)``.
    n_sets : int
    set_size : int or (int, int)
        As in `random_sets`.
    error : float
        The probability, for each set, that she does not look and ticks any non-empty subset,
        each as likely as the others (the right one included). The sets do not depend on it.
    random_state : int or None
        Seed. None: a new one.

    Returns
    -------
    SyntheticChoices

    Examples
    --------
    >>> simulated = alice_choices(n_sets=20, error=0.1)
    >>> len(simulated.data), simulated.U.shape
    (20, (120, 2))
    """
    error = number_option("error, a probability,", error, 0, 1)
    random_state = seed(random_state)  # one for all three streams
    catalogue = laptops(n_objects, random_state)
    U = alice(catalogue)
    shown = draw_sets(random_generator(random_state, stream=1), len(catalogue), n_sets, set_size)
    chosen = [rows[undominated(U[rows])] for rows in shown]
    rng = random_generator(random_state, stream=2)
    for k in np.flatnonzero(rng.random(len(shown)) < error).tolist():
        chosen[k] = _any_subset(rng, shown[k])
    return SyntheticChoices(ChoiceData.from_sets(catalogue, shown, chosen), U, "alice")


def _any_subset(rng: np.random.Generator, rows: np.ndarray) -> np.ndarray:
    while True:
        ticked = rng.random(len(rows)) < 0.5
        # Refusing the empty subset leaves the others equally likely.
        if ticked.any():
            return rows[ticked]
