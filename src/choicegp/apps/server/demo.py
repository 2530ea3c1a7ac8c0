"""A study to click through: which laptop would you keep?  Run ``python -m choicegp.apps.server.demo [FOLDER]``."""

import math
import sys
from pathlib import Path
from typing import Any

from choicegp.apps import terminal
from choicegp.apps.server.command import ServeRequest
from choicegp.apps.server.serve import serve
from choicegp.files import made_folder

STUDY = """\
title = { en = "Which laptop would you keep?", de = "Welchen Laptop würden Sie behalten?" }
sets = 10
set_size = 4
consent = { en = "consent.txt", de = "einwilligung.txt" }

[[features]]
column = "price_eur"
label = { en = "Price", de = "Preis" }

[[features]]
column = "cpu_score"
label = { en = "Speed (points)", de = "Tempo (Punkte)" }

[[features]]
column = "memory_gb"
label = { en = "Memory", de = "Speicher" }

[[features]]
column = "battery_h"
label = { en = "Battery", de = "Akku" }

[[features]]
column = "weight_kg"
label = { en = "Weight", de = "Gewicht" }

[[features]]
column = "screen_in"
label = { en = "Screen", de = "Bildschirm" }
unit = "″"

[[features]]
column = "keyboard"
label = { en = "Keyboard", de = "Tastatur" }

[texts.en]
welcome = "Imagine that you need a new laptop. We will show you four at a time. Each time, tick every one that \
you would not reject: one, several or all of them. There are no right or wrong answers."

[texts.de]
welcome = "Stellen Sie sich vor, Sie brauchen einen neuen Laptop. Wir zeigen Ihnen jeweils vier. Kreuzen Sie jedes \
Mal alle an, die Sie nicht ablehnen würden: einen, mehrere oder alle. Es gibt keine richtigen oder falschen Antworten."
"""
CONSENT = """\
This is a demonstration. The laptops are made up.

Your ticks are kept in a file on this machine, without your name. Nothing is sent anywhere else.
"""
EINWILLIGUNG = """\
Dies ist eine Vorführung. Die Laptops sind erfunden.

Ihre Kreuze werden in einer Datei auf diesem Rechner gespeichert, ohne Ihren Namen. Nichts wird anderswohin gesendet.
"""
_WIDTH, _HEIGHT, _FINE = 480, 320, 2
_COLOURS = ("#4c6a85", "#7a6a8a", "#5f7d6b", "#8a6f5a", "#5b7f8c", "#86596a", "#6b7280", "#7f7a4f")


def make_demo(folder: str) -> Path:
    """Write the laptops, their pictures and the study file into a folder."""
    from choicegp import datasets
    from choicegp.reading.text import write_table

    place = made_folder(folder)
    catalogue = datasets.laptops()
    write_table(catalogue.reset_index(), place / "laptops.csv")
    for name, text in (("study.toml", STUDY), ("consent.txt", CONSENT), ("einwilligung.txt", EINWILLIGUNG)):
        (place / name).write_text(text, encoding="utf-8")
    pictures = made_folder(place / "pictures")
    families: dict[str, int] = {}
    for label, row in catalogue.iterrows():
        family = str(label).split()[0]
        colour = _COLOURS[families.setdefault(family, len(families)) % len(_COLOURS)]
        draw_laptop(float(row["screen_in"]), float(row["weight_kg"]), colour).save(pictures / f"{label}.png")
    return place


def draw_laptop(inches: float, weight: float, colour: str) -> Any:
    """Draw a laptop: as wide as its screen, and as thick as it is heavy."""
    from PIL import Image, ImageDraw

    picture = Image.new("RGB", (_WIDTH * _FINE, _HEIGHT * _FINE), "#ffffff")
    pen = ImageDraw.Draw(picture)

    def box(left: float, top: float, right: float, bottom: float, fill: str, round_by: float) -> None:
        pen.rounded_rectangle([_FINE * one for one in (left, top, right, bottom)], _FINE * round_by, fill)

    half = 16.0 * inches * 0.66
    tall = 2 * half * 0.6
    thick = 9.0 + 6.0 * math.sqrt(weight)
    middle, floor = _WIDTH / 2, _HEIGHT / 2 + tall / 2 + 6
    box(middle - half, floor - tall, middle + half, floor, "#2b3640", 12)
    box(middle - half + 11, floor - tall + 11, middle + half - 11, floor - 8, colour, 5)
    box(middle - half + 30, floor - tall + 34, middle - 10, floor - tall + 44, "#ffffff", 5)
    box(middle - half + 30, floor - tall + 56, middle - half / 2, floor - tall + 64, "#dfe6ec", 4)
    box(middle - half - 24, floor, middle + half + 24, floor + thick, "#9aa7b2", 8)
    box(middle - 36, floor, middle + 36, floor + 5, "#7b8894", 2)
    return picture.resize((_WIDTH, _HEIGHT))


def main(folder: str = "choicegp-page") -> None:
    """Make the demo study, or continue it, and serve it."""
    place = make_demo(folder)
    serve(
        ServeRequest(
            str(place / "laptops.csv"),
            images=str(place / "pictures"),
            db=str(place / "study.sqlite"),
            study=str(place / "study.toml"),
            new_owner_link=True,
        )
    )


if __name__ == "__main__":
    sys.exit(terminal.run(lambda: main(*sys.argv[1:2])))
