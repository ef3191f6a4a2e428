"""The pages of the desk, one file each."""

from __future__ import annotations

from fastapi import APIRouter

from bayesdrop.serve.desk import data, health, items, queue, versions

router = APIRouter(include_in_schema=False)
for _part in (queue, items, health, versions, data):
    router.include_router(_part.router)
