"""The commands `choicegp serve` and `choicegp work`: their options, and nothing heavy."""

from dataclasses import dataclass
from typing import Annotated

from typer import Argument, Option

from choicegp.apps.options import takes_options


@dataclass(frozen=True)
class ServeRequest:
    """What `choicegp serve` is asked for."""

    objects: Annotated[str, Argument(metavar="OBJECTS", help="A table with one row per object.", show_default=False)]
    object_id: Annotated[
        str | None,
        Option("--object-id", metavar="COLUMN", help="Column with the ids.", show_default="alt_id, or the first"),
    ] = None
    images: Annotated[
        str | None,
        Option("--images", metavar="FOLDER", help="Folder with pictures, named as the objects.", show_default=False),
    ] = None
    db: Annotated[
        str, Option("--db", metavar="URL", help="Where answers are kept: a file, or the URL of a PostgreSQL database.")
    ] = "study.sqlite"
    study: Annotated[str | None, Option("--study", metavar="FILE", help="A study file (TOML).", show_default=False)] = (
        None
    )
    sets: Annotated[int | None, Option("--sets", min=1, help="Number of questions.", show_default="12")] = None
    set_size: Annotated[
        int | None, Option("--set-size", min=2, max=6, help="Number of objects in a question.", show_default="4")
    ] = None
    host: Annotated[str, Option("--host", metavar="ADDRESS", help="Address to listen on.")] = "127.0.0.1"
    port: Annotated[int, Option("--port", min=1, max=65535, help="Port to listen on.")] = 8000
    url: Annotated[
        str | None, Option("--url", metavar="URL", help="Address by which others reach the page.", show_default=False)
    ] = None
    new_owner_link: Annotated[
        bool, Option("--new-owner-link", help="Make a new link for the owner; the old one ends.")
    ] = False
    log: Annotated[bool, Option("--log", help="Print a line for each request, without who and what.")] = False
    workers: Annotated[
        int, Option("--workers", min=0, max=64, help="Number of processes that fit; 0 leaves it to choicegp work.")
    ] = 1


@takes_options
def serve(request: ServeRequest) -> None:
    """Serve a page on which people answer and an owner watches.

    People tick what they would keep of a few objects at a time; the next question depends on their answers. The command
    prints two links: one for participants and one for the owner, who sees what is learned and downloads it.
    """
    from choicegp.apps.server.serve import serve as run

    run(request)


def work(
    db: Annotated[str, Option("--db", metavar="URL", help="The database of the study.")] = "study.sqlite",
    workers: Annotated[int, Option("--workers", min=1, max=64, help="Number of processes.")] = 1,
) -> None:
    """Fit models for a page that other processes serve.

    Several servers and workers, on one machine or on many, share a study in one PostgreSQL database. Each worker takes
    what is wanted next and leaves the result in the database.
    """
    from choicegp.apps.server.serve import work as run

    run(db, workers)
