"""Faces: command line and plots."""
