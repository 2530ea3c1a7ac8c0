"""The owner's pages."""

from fastapi import APIRouter

router = APIRouter()
