"""Stores a task and waits for it, with the standard library only.

API_URL is the address of the API, and API_TOKEN the secret of a token. Without tokens, on this machine, API_TOKEN may be
missing.
"""

import json
import os
import sys
import time
import urllib.error
import urllib.parse
import urllib.request
import uuid

URL = os.environ.get("API_URL", "http://127.0.0.1:8480")
TOKEN = os.environ.get("API_TOKEN", "")


def call(method, path, body=None, **headers):
    """Returns the JSON of an answer. A problem is an exception with its text and hint."""
    headers = {name.replace("_", "-"): value for name, value in headers.items()}
    if TOKEN:
        headers["Authorization"] = "Bearer " + TOKEN
    data = None
    if body is not None:
        headers["Content-Type"] = "application/json"
        data = json.dumps(body).encode()
    request = urllib.request.Request(URL + "/api/v1" + path, data, headers, method=method)
    try:
        with urllib.request.urlopen(request, timeout=30) as answer:
            return json.load(answer)
    except urllib.error.HTTPError as error:
        problem = json.load(error)
        raise RuntimeError(problem["detail"] + "; " + problem.get("hint", "")) from None


def enqueue(task, tries=5):
    """Stores a task once. The key makes it safe to send the request again if no answer arrives."""
    key = str(uuid.uuid4())
    for attempt in range(tries):
        try:
            return call("POST", "/tasks", task, Idempotency_Key=key)["id"]
        except OSError:
            if attempt == tries - 1:
                raise
            time.sleep(2**attempt)


def tasks(query):
    """Yields all tasks that match a search, page by page."""
    before = None
    while True:
        parameters = {"q": query, "limit": 100} | ({"before": before} if before else {})
        page = call("GET", "/tasks?" + urllib.parse.urlencode(parameters))
        yield from page["tasks"]
        before = page["next"]
        if before is None:
            return


if __name__ == "__main__":
    task = enqueue({"type": "mail", "payload": {"to": "ada@example.com"}, "delay": "1h"})
    print("stored task", task)
    print("state:", call("GET", "/tasks/" + task)["state"])
    for cause in call("GET", f"/tasks/{task}/explanation")["causes"]:
        print("why:", cause["text"])
    print("waiting:", sum(1 for _ in tasks("state:ready type:mail")))
    print("cancelled:", call("POST", f"/tasks/{task}/cancel?reason=example", {})["state"])
    try:
        call("POST", "/tasks", {"payload": 1})
        sys.exit("a task without a type was accepted")
    except RuntimeError as problem:
        print("refused:", problem)
