"""The rating page: people open a personal link, rate groups, and their scores go into a database in the run directory.

In: the packet ``annotate/export/``, the plan ``annotate/plan.json``, the roster ``annotate/page/roster.json``. Out:
``annotate/page/submissions.sqlite``, which `pipeline annotate ingest` reads (:mod:`stages.annotate.page.database` describes its
tables). The page has no other way to the ledger.

- ``work``: the packet and the plan in memory, in the order in which each person sees them
- ``roster``: people, their pseudonyms and the hashes of their links
- ``database``: tables; ``handing_out``: which group next; ``submissions``: scores and drafts in
- ``exam``: what gold says about somebody's scores
- ``lead``: the figures of the lead's page
- ``app``, ``lead_routes``: the HTTP interface; ``static/``: the pages
"""
