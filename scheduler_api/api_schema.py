"""What /api/openapi.json says beyond the types: an example of each body, made from those of its parts, and the problems.

A schema's example is that of its class (`examples` in its configuration), else it is put together from its fields.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from pydantic import ConfigDict

from scheduler_api.api_problems import MEDIA_TYPE, Problem

type Json = dict[str, Any]

_PROBLEM = "#/components/schemas/Problem"
_PLAIN: Json = {"string": "", "integer": 1, "number": 1.0, "boolean": True, "object": {}, "null": None}
#: What stands in addresses.
IDS: Json = {"server_id": 1, "run_id": 12, "alert_id": 31, "silence_id": 5, "window_id": 2, "drift_id": 3, "guard_id": 8}
IDS |= {"key": "equal-shares", "name": "my-chat", "slot": 1}
VERBS = ("get", "put", "post", "patch", "delete")


def example(**fields: Any) -> ConfigDict:
    """The configuration of a schema that shows this. `from_` stands for a field named `from`."""
    return ConfigDict(json_schema_extra={"examples": [{name.rstrip("_"): value for name, value in fields.items()}]})


def documented(schema: Json) -> Json:
    """The OpenAPI object of django-ninja with examples and problems, changed in place."""
    schemas = schema["components"]["schemas"]
    schemas["Problem"] = Problem.model_json_schema(ref_template="#/components/schemas/{model}")
    schemas |= schemas["Problem"].pop("$defs", {})
    for operation in operations(schema):
        for parameter in operation.get("parameters", ()):
            if parameter.get("required"):
                parameter["example"] = IDS.get(parameter["name"], _PLAIN.get(parameter["schema"].get("type"), ""))
        for content in contents(operation):
            if "schema" in content and "example" not in content:
                content["example"] = example_of(content["schema"], schemas)
        problem = {"schema": {"$ref": _PROBLEM}, "example": example_of({"$ref": _PROBLEM}, schemas)}
        operation["responses"]["default"] = {"description": "A problem", "content": {MEDIA_TYPE: problem}}
    return schema


def operations(schema: Json) -> Iterator[Json]:
    for methods in schema["paths"].values():
        yield from (operation for verb, operation in methods.items() if verb in VERBS)


def contents(operation: Json) -> Iterator[Json]:
    """Of the request and of all responses."""
    bodies = [operation.get("requestBody") or {}, *operation["responses"].values()]
    for body in bodies:
        yield from (body.get("content") or {}).values()


def example_of(schema: Mapping[str, Any], schemas: Mapping[str, Json]) -> Any:
    if "examples" in schema:
        return schema["examples"][0]
    if "$ref" in schema:
        return example_of(schemas[schema["$ref"].rpartition("/")[2]], schemas)
    if "default" in schema:
        return schema["default"]
    for choice in (*schema.get("anyOf", ()), *schema.get("allOf", ())):
        return example_of(choice, schemas)
    if "const" in schema or "enum" in schema:
        return schema.get("const", (schema.get("enum") or [None])[0])
    if schema.get("type") == "array":
        return [example_of(schema.get("items", {}), schemas)]
    if "properties" in schema:
        return {name: example_of(each, schemas) for name, each in schema["properties"].items()}
    return _PLAIN.get(schema.get("type", "null"))
