"""Tables in and out: from text and columns to a draft of choice data with everything that is wrong with it."""
