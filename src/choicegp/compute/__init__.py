"""How programs run: compiled programs, devices with their memory and threads, progress."""
