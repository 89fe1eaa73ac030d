"""The one-document layout of a bundle, in use before inference-sim/blis-schemas 0.2.0: everything in the Scenario.

Files of that time still lie in scenario repositories, so the bundle reader takes them: the tree is rearranged into the
two documents of today before anything is decoded, and the Scenario keeps a remark that validation shows as a warning.
The rules for what a file may hold are the same as today's.
"""

from __future__ import annotations

from pykernel.documents.nodes import Mapping, Scalar, is_null

_TO_CLUSTER = ("hardware", "fabric")
_TO_DEPLOYMENT = ("pools", "offload", "pd_transfer")


def is_one_document(root: Mapping) -> bool:
    """Whether a document by itself is a bundle in the older layout."""
    return any(key in root.entries for key in ("pools", *_TO_CLUSTER))


def split(root: Mapping) -> tuple[Mapping, Mapping, str]:
    """The Scenario and the Deployment inside one document, and a remark on the keys that have moved.

    A key whose new place is taken or missing stays where it is, to be reported as unknown there.
    """
    scenario, deployment, cluster = Mapping(root.line), Mapping(root.line), Mapping(root.line)
    held = root.entries.get("cluster")
    moved: list[str] = []
    for key, node in root.entries.items():
        line = root.lines[key]
        if key in _TO_DEPLOYMENT:
            deployment.put(key, node, line)
            moved.append(f"{key} (now in the Deployment)")
        elif key in _TO_CLUSTER and isinstance(held, Mapping) and key not in held.entries:
            cluster.put(key, node, line)
            moved.append(f"{key} (now cluster.{key})")
        elif key == "workload" and isinstance(node, Scalar) and not is_null(node):
            shape = Mapping(line)
            shape.put("shape", node, line)
            scenario.put(key, shape, line)
            moved.append("workload (now workload.shape)")
        else:
            scenario.put(key, node, line)
    if isinstance(held, Mapping):
        for key, node in held.entries.items():
            cluster.put(key, node, held.lines[key])
        scenario.put("cluster", cluster, root.lines["cluster"])
    deployment.put("kind", Scalar("Deployment", root.line, True), root.line)
    if "name" in root.entries:
        deployment.put("name", root.entries["name"], root.lines["name"])
    remark = f"the file has the one-document layout of before schemas 0.2.0; keys with a new place: {', '.join(moved)}"
    return scenario, deployment, remark
