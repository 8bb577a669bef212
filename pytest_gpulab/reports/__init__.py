"""Grades -> what people and programs read: terminal tables and files. Yields lines, prints nothing; no pytest in it."""
