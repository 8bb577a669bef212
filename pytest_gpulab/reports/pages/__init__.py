"""HTML pages.

- `environment`: templates and the security policy.
- `views`: a grade as pages show it.
- `feedback`: one page per student.
- `explained_page`, `dataflow`, `warp_figures`: figures of the threads of a block.
- `annotated_html`: annotated listings.
"""
