"""Whether a test asserts something about a symbol, read from its source without running it.

A value is about the symbol if it was computed from it: by name, through helpers of the tests,
through fixtures, or from other values that are.  A test asserts something about the symbol if such
a value stands in an ``assert``, in a call that must raise, or in a helper that asserts.
"""

import ast
from functools import cache
from importlib import import_module
from inspect import isclass, ismodule
from pathlib import Path

TESTS = Path(__file__).resolve().parent

BINDERS = (ast.Assign, ast.AnnAssign, ast.AugAssign, ast.NamedExpr, ast.For, ast.comprehension)
FUNCTIONS = (ast.FunctionDef, ast.AsyncFunctionDef)
HELPERS = (*FUNCTIONS, ast.ClassDef)
MUTATORS = ("append", "extend", "add", "update")


def asserts_about(test, symbol):
    """Whether a test, "tests/test_x.py::test_name", asserts something about a dotted name."""
    file, _, name = test.partition("::")
    source = Source.of(Path(file).stem)
    return Search(symbol).asserts(source, source.functions[name])


class Source:
    """A module of the tests: what its names mean."""

    def __init__(self, path):
        self.tree = ast.parse(path.read_text(encoding="utf-8"))
        self.functions = {n.name: n for n in ast.walk(self.tree) if isinstance(n, HELPERS)}
        self.imports, self.values = {}, {}
        for node in ast.walk(self.tree):
            if isinstance(node, ast.Import):
                self.imports |= {a.asname or a.name.split(".")[0]: a.name for a in node.names}
            elif isinstance(node, ast.ImportFrom):
                self.imports |= {a.asname or a.name: f"{node.module}:{a.name}" for a in node.names}
        for node in self.tree.body:
            if isinstance(node, ast.Assign | ast.AnnAssign) and node.value is not None:
                self.values |= values_of(node)

    @staticmethod
    @cache
    def of(stem):
        """The module of that name among the tests."""
        return Source(TESTS / f"{stem}.py")

    def meaning(self, name):
        """A name as "module:name" or dotted, as it was imported; "" if it was not."""
        first, _, rest = name.partition(".")
        if first in self.values and isinstance(self.values[first], ast.Attribute):
            return self.meaning(f"{ast.unparse(self.values[first])}.{rest}".rstrip("."))
        if first not in self.imports:
            return ""
        return f"{self.imports[first]}.{rest}".rstrip(".")


class Search:
    """Looks for one symbol: a function, class or module by identity, a member by its name."""

    def __init__(self, symbol):
        self.object = resolved(symbol)
        parent, _, last = symbol.rpartition(".")
        self.member = last if isclass(resolved(parent)) else None
        self.open = set()

    def asserts(self, source, function):
        """Whether what the function asserts is about the symbol."""
        about = self.values_about(source, function)
        return any(self.is_assertion(source, node, about) for node in ast.walk(function))

    def is_assertion(self, source, node, about):
        """An assert, a block that must raise, or a call of a helper that asserts."""
        if isinstance(node, ast.Assert):
            return self.mentioned(source, node.test, about)
        if isinstance(node, ast.With):
            raising = any("raises" in ast.dump(item.context_expr) for item in node.items)
            return raising and any(self.mentioned(source, one, about) for one in node.body)
        if isinstance(node, ast.Expr) and isinstance(node.value, ast.Call):
            helper = self.asserting_helper(source, node.value.func)
            return helper and self.mentioned(source, node.value, about)
        return False

    def asserting_helper(self, source, called):
        """Whether a called function, ours or numpy's, fails by an assertion."""
        found = self.function_of(source, ast.unparse(called))
        if found is None:
            return isinstance(called, ast.Attribute) and called.attr.startswith("assert_")
        return any(
            isinstance(node, ast.Assert)
            or (isinstance(node, ast.Call) and self.asserting_helper(found[0], node.func))
            for node in ast.walk(found[1])
        )

    def values_about(self, source, function):
        """Names in a function whose values come from the symbol."""
        names = [each.arg for each in (*function.args.args, *function.args.kwonlyargs)]
        about = {name for name in names if self.fixture_about(source, name)}
        for decorator in function.decorator_list:
            named = isinstance(decorator, ast.Name | ast.Attribute)
            found = self.value_of(source, ast.unparse(decorator)) if named else None
            where, written = found or (source, decorator)
            if self.mentioned(where, written, set()):
                about |= {name for name in names if name in literal_words(written)}
        nodes = [node for node in ast.walk(function) if node is not function]
        while True:
            more = set().union(*(self.made_about(source, node, about) for node in nodes))
            if more <= about:
                return about
            about |= more

    def made_about(self, source, node, about):
        """The names that a statement makes about the symbol."""
        if isinstance(node, BINDERS) and self.mentioned(source, origin(node), about):
            return bound_names(node)
        if isinstance(node, ast.withitem) and self.mentioned(source, node.context_expr, about):
            return names_in(node.optional_vars or ast.Pass())
        if isinstance(node, FUNCTIONS) and self.mentioned(source, node, about):
            return {node.name}
        # What is appended or added to comes to be about it, too.
        adds = isinstance(node, ast.Call) and getattr(node.func, "attr", None) in MUTATORS
        return names_in(node.func.value) if adds and self.mentioned(source, node, about) else set()

    def mentioned(self, source, node, about):
        """Whether an expression names the symbol, a value about it, or a helper that uses it."""
        for part in ast.walk(node):
            if isinstance(part, ast.Name | ast.Attribute):
                name = ast.unparse(part)
                member = self.member is not None and getattr(part, "attr", None) == self.member
                if member or name in about or self.name_about(source, name):
                    return True
        return False

    def name_about(self, source, name):
        """Whether a name is the symbol, a helper that uses it, or a constant made from it."""
        if self.is_object(source, name):
            return True
        found = self.function_of(source, name)
        if found is not None:
            return self.uses(*found)
        value = self.value_of(source, name)
        if value is None or value in self.open:
            return False
        self.open.add(value)
        said = self.mentioned(*value, set())
        self.open.discard(value)
        return said

    def uses(self, source, function):
        """Whether a helper names the symbol anywhere, directly or through other helpers."""
        if function in self.open:
            return False
        self.open.add(function)
        said = any(self.mentioned(source, one, set()) for one in function.body)
        if not isinstance(function, ast.ClassDef):
            said = said or any(self.fixture_about(source, each.arg) for each in function.args.args)
        self.open.discard(function)
        return said

    def fixture_about(self, source, name):
        """Whether an argument is a fixture, of the module or of all tests, that uses the symbol."""
        for where in (source, Source.of("conftest")):
            fixture = where.functions.get(name)
            if fixture is not None and "fixture" in "".join(map(ast.dump, fixture.decorator_list)):
                return self.uses(where, fixture)
        return False

    def function_of(self, source, name):
        """The module of a helper of the tests that is called so, and the helper."""
        return self.defined(source, name, lambda where: where.functions)

    def value_of(self, source, name):
        """The module of a constant of the tests that is called so, and its expression."""
        return self.defined(source, name, lambda where: where.values)

    def defined(self, source, name, kind):
        """Where among the tests a dotted name is defined, and what it is there; or None."""
        if name in kind(source):
            return source, kind(source)[name]
        module, _, last = source.meaning(name).replace(":", ".").rpartition(".")
        if module and (TESTS / f"{module}.py").is_file():
            return self.defined(Source.of(module), last, kind)
        return None

    def is_object(self, source, name):
        """Whether a dotted name is the symbol itself, whatever it is called here."""
        return self.object is not None and resolved(source.meaning(name)) is self.object


@cache
def resolved(dotted):
    """What a name of our packages is: an attribute before a module of the same name.

    Before a colon stands a module, whatever else is called so.
    """
    if not dotted.startswith("polyattn"):
        return None
    start, _, rest = dotted.partition(":" if ":" in dotted else ".")
    return reached(import_module(start), rest.split(".") if rest else [])


def reached(found, names):
    """What a chain of names leads to from an object, or None."""
    if not names or found is None:
        return found
    first, rest = names[0], names[1:]
    value = reached(getattr(found, first, None), rest)
    if value is not None or not ismodule(found):
        return value
    try:
        return reached(import_module(f"{found.__name__}.{first}"), rest)
    except ImportError:
        return None


def origin(node):
    """What a binding takes its values from."""
    return node.iter if isinstance(node, ast.For | ast.comprehension) else node.value or node


def bound_names(node):
    """The names that a binding gives values to."""
    targets = node.targets if isinstance(node, ast.Assign) else [node.target]
    return set().union(*map(names_in, targets))


def values_of(node):
    """What each name of a binding is; of ``a, b = x, y`` one by one."""
    target = node.targets[0] if isinstance(node, ast.Assign) else node.target
    if isinstance(target, ast.Tuple) and isinstance(node.value, ast.Tuple):
        pairs = zip(target.elts, node.value.elts, strict=False)
        return {name.id: value for name, value in pairs if isinstance(name, ast.Name)}
    return dict.fromkeys(bound_names(node), node.value)


def names_in(node):
    """All names in an expression; of ``a.b = x`` and ``a[0] = x`` that is a."""
    return {part.id for part in ast.walk(node) if isinstance(part, ast.Name)}


def literal_words(decorator):
    """The argument names that a ``parametrize`` lists."""
    texts = [n.value for n in ast.walk(decorator) if isinstance(n, ast.Constant)]
    return {word.strip() for text in texts if isinstance(text, str) for word in text.split(",")}
