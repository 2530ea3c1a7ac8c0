"""The paper's tables and figures, run again, and the test of honesty, on the public names of choicegp alone."""
