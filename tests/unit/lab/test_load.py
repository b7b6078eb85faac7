"""The program of the load's pod has all modules that it needs beside those of the image."""

import ast
import io
import zipfile

from e2e.load.harness import program


def test_should_have_every_module_of_the_checkout_that_it_imports() -> None:
    with zipfile.ZipFile(io.BytesIO(program())) as archive:
        names = {name.removesuffix("/__init__.py").removesuffix(".py").replace("/", ".") for name in archive.namelist()}
        trees = [ast.parse(archive.read(name)) for name in archive.namelist()]
    imported = {
        node.module for tree in trees for node in ast.walk(tree) if isinstance(node, ast.ImportFrom) and node.module
    }
    wanted = {module for module in imported if module.startswith(("tests.", "e2e.", "bench."))}
    assert wanted
    assert wanted <= names
