"""Inputs that must be refused in one clear line. Add a case to the table in `cases.py`."""
