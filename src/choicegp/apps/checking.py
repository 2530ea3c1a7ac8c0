"""The command that checks answers against a model, and people for their attention."""

from choicegp.apps.options import ModelFile, Seed, TableOptions, takes_options
from choicegp.apps.terminal import say


@takes_options
def check(
    model: ModelFile,
    table: TableOptions,
    seed: Seed = 0,
) -> None:
    """Check whether answers look like those that a model would make.

    Answers to the same sets are simulated from the model and compared with the answers of the table. With --respondent,
    people who tick at random, or who tick everything, are named.
    """
    from choicegp.apps.models import known_to, load
    from choicegp.reporting.summaries import checks_in_words

    fitted = load(model)
    say(checks_in_words(fitted, table.read(**known_to(fitted)), seed))
