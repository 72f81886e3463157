"""Runs in files: `document` writes one, `importing` reads it back, `report` lays it out to be read without the console."""
