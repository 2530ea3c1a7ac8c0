"""Pictures: of a fitted model, of a search for the number of utilities, and the style that all pictures share."""
