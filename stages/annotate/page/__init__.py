"""The rating page: people open a personal link and rate groups; their scores are stored in a database in the run directory.

In: the packet ``annotate/export/``, the plan ``annotate/plan.json``, the roster ``annotate/page/roster.json``. Out:
``annotate/page/submissions.sqlite``, which `pipeline annotate ingest` reads (:mod:`stages.annotate.page.database` describes its tables).
The page does not write to the ledger.

- ``packet``: the packet and the plan in memory, and each person's order of candidates
- ``roster``: people, their pseudonyms and the hashes of their links; ``session``: the person of a request
- ``database``: tables; ``assignment``: the next group of a person; ``submissions``: incoming scores and drafts
- ``exam``: results of exams, feedback of training
- ``lead``, ``people``, ``rated``: statistics of the lead's page
- ``app``, ``lead_routes``: the HTTP interface; ``static/``: the pages
"""
