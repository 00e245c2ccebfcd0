"""The studio: a web application for one person on one machine, over the same library as the command line.

`app.py` serves it, `access.py` lets nobody else in, `service.py` does what is asked, `api.py` and `pages.py` say it in
JSON and in HTML. Runs are jobs (`jobs.py`) in processes of their own (`worker.py`), so that they
outlive the server. No row and no cell is ever shown.
"""
