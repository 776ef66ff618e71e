"""The page of `explain_html`: one file that needs nothing else."""

from __future__ import annotations

import dataclasses
import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

import jinja2
from markupsafe import Markup

import fusion
from fusion.errors import OptionError
from fusion.report.device_work import device_work
from fusion.report.page_data import graph_columns
from fusion.report.placement import placement_of
from fusion.signature import TensorSpec, require_static
from fusion.system.files import as_path

if TYPE_CHECKING:
    from fusion.compiled_module import CompiledModule
    from fusion.module.settings import Settings
    from fusion.module.specialization import Specialization
    from fusion.report.profile import Profile

_SCRIPTS = ("model.js", "layout.js", "draw.js", "panel.js", "main.js")


def render_module(module: CompiledModule, title: str, profile: Profile | None = None) -> str:
    """Return the page of `module`; times are measured where `profile` is that of its form used last."""
    forms = module.specializations
    settings = module.settings
    data = [_form(form, profile if form is forms[-1] else None, settings) for form in forms]
    subtitle = settings.device or f"{settings.architecture}, {settings.threads} threads"
    return render_page(title, subtitle, data)


def write_page(module: CompiledModule, path: str | Path, title: str, profile: Profile | None) -> None:
    """Write the page of `module`; see `CompiledModule.explain_html`.

    Raises:
        OptionError: The file cannot be written.
        ShapeError: The module has open dimensions and has not been called: there is nothing to draw.
    """
    if not module.specializations:
        require_static(module.inputs)
    if profile is not None and not hasattr(profile, "kernels"):
        raise OptionError(
            f"profile= cannot be a {type(profile).__name__}", hint="give what module.profile() returned"
        )
    write_html(path, render_module(module, str(title), profile))


def write_html(path: str | Path, text: str) -> None:
    """Write a page.

    Raises:
        OptionError: The file cannot be written.
    """
    try:
        as_path(path).write_text(text, encoding="utf-8", errors="replace")
    except (OSError, ValueError) as error:  # the path holds a NUL, or half of a surrogate pair
        raise OptionError(
            f"cannot write {str(path)[:200]!r}",
            why=getattr(error, "strerror", None) or str(error),
            hint="check that the folder exists and has room",
        ) from error


def _form(form: Specialization, profile: Profile | None, settings: Settings) -> dict[str, Any]:
    label = ", ".join(_spec(spec) for spec in form.inputs)
    if form.opened is not None:
        times = f", times at {profile.sizes}" if profile is not None and profile.sizes else ""
        label += f" (drawn at {form.opened.describe_typical()}{times})"
    return {
        "label": label,
        "outputs": ", ".join(_spec(spec) for spec in form.outputs),
        **graph_columns(form.graph(), form.kernels, profile, device_work(form, settings), settings.generator),
        "fallbacks": [dataclasses.asdict(node) for node in form.fallbacks],
        "placement": str(placement_of(form, settings.generator)),
        "notes": list(form.notes),
    }


def _spec(spec: TensorSpec) -> str:
    between = "x" if spec.is_static else " x "  # of names
    shape = between.join("?" if extent is None else str(extent) for extent in spec.declared or ()) or "scalar"
    return f"{spec.name} {spec.dtype} {shape}"


def render_page(title: str, subtitle: str, forms: list[dict[str, Any]]) -> str:
    """Return the page that shows `forms`, each as `graph_columns` returns it, with label, outputs, fallbacks and
    notes."""
    environment = page_environment()
    return environment.get_template("page.html.j2").render(
        title=title,
        subtitle=subtitle,
        version=fusion.__version__,
        style=_source(environment, "style.css"),
        scripts=[_source(environment, name) for name in _SCRIPTS],
        data=Markup(script_json(forms)),
    )


def page_environment() -> jinja2.Environment:
    """Return what renders the templates of pages."""
    loader = jinja2.PackageLoader("fusion.report", "page")
    return jinja2.Environment(loader=loader, autoescape=True, undefined=jinja2.StrictUndefined)


def script_json(value: Any) -> str:
    """Return JSON that no text inside can end the script element around it with."""
    text = json.dumps(value, separators=(",", ":"))
    return text.replace("&", "\\u0026").replace("<", "\\u003c").replace(">", "\\u003e")


def _source(environment: jinja2.Environment, name: str) -> Markup:
    assert environment.loader is not None
    return Markup(environment.loader.get_source(environment, name)[0])
