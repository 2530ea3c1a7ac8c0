"""What was chosen: choice data, their validation, tables and data sets."""
