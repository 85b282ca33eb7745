"""Editors behind a server that speaks the ``/v1/images/edits`` of OpenAI."""
