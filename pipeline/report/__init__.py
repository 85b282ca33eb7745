"""The report: one static HTML page about a run, made from what its steps published.

``page`` puts it together; ``sections`` has one file per section; ``charts`` and ``bar_charts`` draw; ``template.html`` and ``page.css``
are the layout.
The page contains everything it needs: it opens offline and has no script. Images in full size are in a folder beside it.
"""
