"""The README as a package index shows it, where a path into this repository leads nowhere.

A relative link becomes an absolute one under the address ``[project.urls] Files`` once the project
has one, and plain words until then; figures become their description.  Called by the build.
"""

from __future__ import annotations

import re

from hatchling.metadata.plugin.interface import MetadataHookInterface

LINK = re.compile(r"(!?)\[([^\]]*)\]\((?!\w+:)([^)\s]+)\)")


def long_description(readme: str, address: str | None = None) -> str:
    """``readme`` with its relative links absolute under ``address``, or as words without one."""

    def replaced(match: re.Match[str]) -> str:
        mark, words, target = match.groups()
        if address is not None:
            return f"{mark}[{words}]({address.rstrip('/')}/{target})"
        return f"*{words}.*" if mark else words

    blocks = re.split(r"(^```.*?^```$)", readme, flags=re.S | re.M)  # code is left alone
    return "".join(b if b.startswith("```") else LINK.sub(replaced, b) for b in blocks)


class LongDescription(MetadataHookInterface):
    """Gives the project its ``readme``."""

    def update(self, metadata: dict) -> None:
        with open(f"{self.root}/README.md", encoding="utf-8") as file:
            text = long_description(file.read(), metadata.get("urls", {}).get("Files"))
        metadata["readme"] = {"content-type": "text/markdown", "text": text}
