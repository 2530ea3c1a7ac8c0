"""Version 1: a study, its participants and its events."""

import sqlalchemy as sa
from alembic import op

revision = "0001"
down_revision = None

_Id = sa.BigInteger().with_variant(sa.Integer, "sqlite")


def upgrade() -> None:
    """Create the tables."""
    op.create_table(
        "choicegp_study",
        sa.Column("id", sa.Integer, primary_key=True, autoincrement=False),
        sa.Column("created", sa.String(40), nullable=False),
        sa.Column("state", sa.String(10), nullable=False),
        sa.Column("owner_hash", sa.String(64), nullable=False),
        sa.Column("settings", sa.JSON, nullable=False),
        sa.Column("catalogue", sa.JSON, nullable=False),
        sa.CheckConstraint("id = 1", name="one_study"),
    )
    op.create_table(
        "choicegp_participants",
        sa.Column("id", _Id, primary_key=True),
        sa.Column("token_hash", sa.String(64), unique=True),
        sa.Column("name", sa.String(200), unique=True),
        sa.Column("state", sa.String(10), nullable=False),
        sa.Column("joined", sa.String(40), nullable=False),
        sa.Column("panel", sa.JSON, nullable=False),
        sqlite_autoincrement=True,
    )
    op.create_table(
        "choicegp_events",
        sa.Column("id", _Id, primary_key=True),
        sa.Column("at", sa.String(40), nullable=False),
        sa.Column("kind", sa.String(10), nullable=False),
        sa.Column("participant", _Id, sa.ForeignKey("choicegp_participants.id")),
        sa.Column("question", sa.String(100)),
        sa.Column("step", sa.SmallInteger),
        sa.Column("shown", sa.JSON),
        sa.Column("chosen", sa.JSON),
        sa.Column("again", sa.String(100)),
        sa.Column("design", sa.String(40)),
        sa.Column("value", sa.Float(53)),
        sa.Column("model", sa.String(100)),
        sa.Column("reason", sa.Text),
        sa.UniqueConstraint("question", "step", name="one_event_a_step"),
        sqlite_autoincrement=True,
    )
    op.create_index("choicegp_events_of_participant", "choicegp_events", ["participant", "id"])
