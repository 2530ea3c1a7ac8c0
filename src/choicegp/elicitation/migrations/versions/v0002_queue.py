"""Version 2: what is to be worked out, and what was."""

import sqlalchemy as sa
from alembic import op

revision = "0002"
down_revision = "0001"

_Id = sa.BigInteger().with_variant(sa.Integer, "sqlite")


def upgrade() -> None:
    """Create the tables of the queue."""
    op.create_table(
        "choicegp_jobs",
        sa.Column("kind", sa.String(10), primary_key=True),
        sa.Column("participant", _Id, primary_key=True, autoincrement=False),
        sa.Column("version", _Id, nullable=False),
        sa.Column("due", sa.String(40), nullable=False),
        sa.Column("claimed", sa.String(40)),
        sa.Column("worker", sa.String(100)),
        sa.Column("tries", sa.SmallInteger, nullable=False),
    )
    op.create_table(
        "choicegp_results",
        sa.Column("kind", sa.String(10), primary_key=True),
        sa.Column("participant", _Id, primary_key=True, autoincrement=False),
        sa.Column("version", _Id, nullable=False),
        sa.Column("at", sa.String(40), nullable=False),
        sa.Column("content", sa.LargeBinary),
    )
