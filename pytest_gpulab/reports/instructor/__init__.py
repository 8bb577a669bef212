"""The instructor's report: one HTML file about a whole class, made from its gradebook alone.

Figures come first and know nothing of HTML: `standings` (who earned what), `summary`, `ladders`, `speeds` and
`flags`. `plots` draws some of them, `svg` makes the drawings fit for a page, `page` puts everything together.
"""
