"""The paper's tables and figures, run again: one module each, on the public names of choicegp alone."""
