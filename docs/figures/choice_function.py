"""The picture of the start page: python docs/figures/choice_function.py docs/figures/choice-function.png."""

import sys

import matplotlib.pyplot as plt

LAPTOPS = {"Alder": (2.2, 8.6), "Borealis": (8.6, 3.0), "Ember": (5.8, 6.4), "Cinder": (1.4, 4.8), "Dune": (7.0, 1.6)}
KEPT, REJECTED = "#D55E00", "0.45"


def draw(path: str) -> None:
    """Draw one utility, where somebody must be best, beside two, where three laptops are kept."""
    figure, (one, two) = plt.subplots(
        1, 2, figsize=(9.2, 3.7), layout="constrained", gridspec_kw={"width_ratios": [0.75, 1]}
    )
    for name, (fast, light) in LAPTOPS.items():
        total = fast + light
        best = name == "Ember"
        one.plot(0, total, "D" if best else "o", color=KEPT if best else REJECTED, markersize=8)
        one.annotate(name, (0, total), (14, -4), textcoords="offset points")
    one.set(
        xlim=(-0.5, 1.6), ylim=(5, 13.3), ylabel="the only utility", xticks=[], title="One utility: one best laptop"
    )
    for name, (fast, light) in LAPTOPS.items():
        beaten = any(a > fast and b > light for a, b in LAPTOPS.values())
        two.plot(fast, light, "o" if beaten else "D", color=REJECTED if beaten else KEPT, markersize=8)
        two.annotate(name, (fast, light), (9, 5), textcoords="offset points")
        if not beaten:
            two.fill_between([0, fast], 0, light, color=KEPT, alpha=0.10, linewidth=0)
    two.set(xlim=(0, 10.6), ylim=(0, 10), xlabel="fast for the money", ylabel="pleasant to carry")
    two.set_title("Two utilities: she keeps three")
    two.plot([], [], "D", color=KEPT, label="kept: nothing beats it in both")
    two.plot([], [], "o", color=REJECTED, label="rejected: another is better in both")
    two.legend(loc="lower left", fontsize=8, frameon=True)
    figure.savefig(path, dpi=140)


if __name__ == "__main__":
    draw(sys.argv[1])
