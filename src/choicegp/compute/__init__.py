"""How programs run: compiled programs, devices, threads, progress."""
