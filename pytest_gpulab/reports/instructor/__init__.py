"""The instructor's report: one HTML file about a class.

- `page`: the file.
- `flags`, `ladders`, `speeds`, `people`: figures and rows, without HTML.
- `comparison`: two sources side by side.
- `plots`, `svg`: charts.
- `sweep`: the page of a sweep.
"""
