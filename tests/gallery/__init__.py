"""A picture of every page: with no, little and much data, light and dark, 1440 and 390 px wide. For eyes, not for assertions.

`python -m tests.gallery OUT` takes all of them, `python -m tests.gallery OUT board much` those of an area and an amount of data.
An area is a module here with `PAGES`, and `fill(amount)`, which puts made-up rows into the database of the trial; every name and
figure in the pictures is invented. The web process and Valkey are real, and so is what an area
names in `STARTS`; nothing else runs.
"""
