package holdfast_test

import (
	"go/parser"
	"go/token"
	"io/fs"
	"maps"
	"os"
	"os/exec"
	"path"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
)

const module = "github.com/holdfastq/holdfast"

// imports are what the packages of the module import, by folder; "." is the root.
type imports struct{ code, tests map[string][]string }

// readImports parses every file's imports. Besides being quick, it makes the files part of
// what the test's cached result depends on, which running a command would not.
func readImports(t *testing.T) imports {
	t.Helper()
	found := imports{make(map[string][]string), make(map[string][]string)}
	err := filepath.WalkDir(".", func(file string, entry fs.DirEntry, err error) error {
		name := entry.Name()
		switch {
		case err != nil:
			return err
		case entry.IsDir() && file != "." && (strings.HasPrefix(name, ".") || name == "testdata" || nested(file)):
			return filepath.SkipDir
		case entry.IsDir() || !strings.HasSuffix(name, ".go"):
			return nil
		}
		parsed, err := parser.ParseFile(token.NewFileSet(), file, nil, parser.ImportsOnly)
		if err != nil {
			return err
		}
		into := found.code
		if strings.HasSuffix(name, "_test.go") {
			into = found.tests
		}
		folder := filepath.ToSlash(filepath.Dir(file))
		for _, spec := range parsed.Imports {
			imported, err := strconv.Unquote(spec.Path.Value)
			if err != nil {
				return err
			}
			if !slices.Contains(into[folder], imported) {
				into[folder] = append(into[folder], imported)
			}
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	return found
}

// nested reports whether the folder is a module of its own.
func nested(folder string) bool {
	_, err := os.Stat(filepath.Join(folder, "go.mod"))
	return err == nil
}

// inside reports whether a folder is one of the others or below it.
func inside(folder string, others ...string) bool {
	return slices.ContainsFunc(others, func(other string) bool {
		return folder == other || strings.HasPrefix(folder, other+"/")
	})
}

// own returns the folder of an imported package of this module.
func own(imported string) (folder string, ok bool) {
	if imported == module {
		return ".", true
	}
	return strings.CutPrefix(imported, module+"/")
}

// TestLayers says which package may import which: the domain imports none, the messages import the domain, contracts
// import both, services, the doctor and adapters import contracts but not each other, and app joins them. Adapters import
// the doctor for the type of its checks.
func TestLayers(t *testing.T) {
	t.Parallel()
	found := readImports(t)
	allowed := map[string][]string{ // packages of the module, by folder
		".":                        {},
		"schema":                   {".", "store"},
		"internal/message":         {"."},
		"store":                    {".", "internal/message"},
		"broker":                   {"."},
		"configs":                  {".", "internal/hosts"},
		"producer":                 {".", "internal/message", "store", "broker", "configs"},
		"consumer":                 {".", "internal/message", "presence", "store", "broker", "configs"},
		"janitor":                  {".", "internal/message", "presence", "store", "broker", "configs"},
		"doctor":                   {".", "store", "broker"},
		"consumer/webhook":         {".", "internal/hosts"},
		"store/internal/column":    {"."},
		"store/internal/roles":     {".", "internal/message", "store", "store/internal/column", "store/internal/scan"},
		"store/internal/scan":      {".", "internal/message", "store"},
		"store/internal/statement": {},
		"store/postgres": {".", "presence", "internal/message", "store", "store/internal/column", "store/internal/roles", "store/internal/scan",
			"store/internal/statement", "schema", "doctor"},
		"store/sqlite": {".", "presence", "internal/message", "store", "store/internal/column", "store/internal/roles", "store/internal/scan",
			"store/internal/statement", "schema", "doctor"},
		"broker/rabbitmq":   {".", "presence", "broker", "doctor"},
		"broker/inproc":     {".", "presence", "broker"},
		"store/storetest":   {".", "presence", "internal/message", "store", "doctor"},
		"broker/brokertest": {".", "presence", "broker", "doctor"},

		"internal/hosts":         {},
		"internal/load":          {},
		"internal/transfer":      {".", "store"},
		"internal/sim/simstore":  {".", "presence", "internal/message", "store"},
		"internal/sim/simbroker": {".", "presence", "internal/message", "broker"},
	}
	for folder, may := range allowed {
		for _, imported := range found.code[folder] {
			if to, ok := own(imported); ok && to != "internal/logs" && to != "internal/backoff" && !slices.Contains(may, to) {
				t.Errorf("%s imports %s", folder, to)
			}
		}
	}
	for folder, list := range found.code {
		for _, imported := range list {
			to, ok := own(imported)
			switch {
			case !ok:
			case inside(to, "cmd"):
				t.Errorf("%s imports %s", folder, to)
			case inside(to, "app") && !inside(folder, "cmd", "internal", "app", "queue"),
				inside(to, "queue") && !inside(folder, "cmd", "internal", "queue"):
				t.Errorf("%s imports %s", folder, to)
			case strings.HasSuffix(path.Base(to), "test") && !strings.HasSuffix(path.Base(folder), "test") && !inside(folder, "internal"):
				t.Errorf("%s imports %s, which is for tests", folder, to)
			}
		}
	}
}

func TestTheDomainImportsTheStandardLibraryOnly(t *testing.T) {
	t.Parallel()
	for _, imported := range readImports(t).code["."] {
		if first, _, _ := strings.Cut(imported, "/"); strings.Contains(first, ".") {
			t.Errorf("the root package imports %s", imported)
		}
	}
}

// TestLibrariesStayWhereTheyBelong keeps each driver behind the package that wraps it.
// Tests below internal, which look at real servers, may use drivers too.
func TestLibrariesStayWhereTheyBelong(t *testing.T) {
	t.Parallel()
	found := readImports(t)
	for library, folders := range map[string][]string{
		"github.com/rabbitmq/amqp091-go":                 {"broker/rabbitmq"},
		"github.com/jmoiron/sqlx":                        {"store/postgres", "store/sqlite"},
		"github.com/lib/pq":                              {"store/postgres"},
		"modernc.org/sqlite":                             {"store/sqlite"},
		"github.com/gofrs/flock":                         {"store/sqlite"},
		"github.com/pressly/goose":                       {"schema"},
		"github.com/urfave/cli":                          {"cmd"},
		"github.com/prometheus":                          {"app"},
		"github.com/knadh/koanf":                         {"configs"},
		"code.dny.dev/ssrf":                              {"consumer/webhook"},
		"github.com/cenkalti/backoff":                    {"internal/backoff"},
		"github.com/standard-webhooks/standard-webhooks": {"consumer/webhook"},
	} {
		for user, list := range found.code {
			if i := slices.IndexFunc(list, func(s string) bool { return inside(s, library) }); i >= 0 && !inside(user, folders...) {
				t.Errorf("%s imports %s, which belongs to %s", user, list[i], strings.Join(folders, " and "))
			}
		}
		for user, list := range found.tests {
			if i := slices.IndexFunc(list, func(s string) bool { return inside(s, library) }); i >= 0 && !inside(user, append(folders, "internal")...) {
				t.Errorf("the tests of %s import %s, which belongs to %s", user, list[i], strings.Join(folders, " and "))
			}
		}
	}
}

// dependencies returns everything that is linked into the packages.
func dependencies(t *testing.T, packages ...string) []string {
	t.Helper()
	readImports(t) // of which the result depends
	if _, err := os.ReadFile("go.mod"); err != nil {
		t.Fatal(err)
	}
	command := exec.CommandContext(t.Context(), "go", append([]string{"list", "-e", "-deps"}, packages...)...)
	command.Stderr = os.Stderr
	listed, err := command.Output()
	if err != nil {
		t.Fatal(err)
	}
	return strings.Fields(string(listed))
}

// TestAProgramLinksNoDaemon: package queue has no metrics, no HTTP server or client, no task type of its own, no command
// line, and no pgx.
func TestAProgramLinksNoDaemon(t *testing.T) {
	t.Parallel()
	for _, linked := range dependencies(t, "./queue") {
		if inside(linked, "net/http", "github.com/prometheus", "github.com/jackc/pgx/v5", "github.com/urfave/cli/v2", module+"/app/daemon",
			module+"/consumer/webhook", module+"/cmd", module+"/internal/sim", "testing") {
			t.Errorf("package queue links %s", linked)
		}
	}
}

// TestAProgramByHandLinksOneStore: a program that wires the services itself links them, one store, one broker, and neither
// configuration nor composition.
func TestAProgramByHandLinksOneStore(t *testing.T) {
	t.Parallel()
	file, err := parser.ParseFile(token.NewFileSet(), "consumer/example_by_hand_test.go", nil, parser.ImportsOnly)
	if err != nil {
		t.Fatal(err)
	}
	var imported []string
	for _, spec := range file.Imports {
		path, err := strconv.Unquote(spec.Path.Value)
		if err != nil {
			t.Fatal(err)
		}
		imported = append(imported, path)
	}
	for _, linked := range dependencies(t, imported...) {
		if inside(linked, "net/http", "github.com/prometheus", "github.com/knadh/koanf", "github.com/rabbitmq/amqp091-go", "github.com/lib/pq", "testing",
			module+"/app", module+"/configs", module+"/queue", module+"/store/postgres", module+"/broker/rabbitmq") {
			t.Errorf("the program links %s", linked)
		}
	}
}

// TestNoTestCodeInTheBinary looks at everything that is linked into the commands.
func TestNoTestCodeInTheBinary(t *testing.T) {
	t.Parallel()
	found := readImports(t)
	if !slices.ContainsFunc(slices.Collect(maps.Keys(found.code)), func(folder string) bool { return inside(folder, "cmd") }) {
		t.Skip("there is no command yet")
	}
	for _, dependency := range dependencies(t, "./cmd/...") {
		if inside(dependency, "testing", "github.com/stretchr/testify", "go.uber.org/goleak", "pgregory.net/rapid", "github.com/rogpeppe/go-internal") ||
			inside(dependency, module) && strings.HasSuffix(dependency, "test") {
			t.Errorf("%s is linked into the binary", dependency)
		}
	}
}

// TestTheDriverHasItsOwnLibc: the SQLite driver is translated code that fits one version of its C library only,
// and another dependency may ask for a newer one. Source: the driver's release notes.
func TestTheDriverHasItsOwnLibc(t *testing.T) {
	t.Parallel()
	ask := func(format, path string) string {
		command := exec.CommandContext(t.Context(), "go", "list", "-m", "-f", format, path)
		command.Stderr = os.Stderr
		answer, err := command.Output()
		if err != nil {
			t.Fatal(err)
		}
		return strings.TrimSpace(string(answer))
	}
	wants, err := os.ReadFile(ask("{{.GoMod}}", "modernc.org/sqlite"))
	if err != nil {
		t.Fatal(err)
	}
	if has := ask("{{.Version}}", "modernc.org/libc"); !strings.Contains(string(wants), "modernc.org/libc "+has+"\n") {
		t.Errorf("modernc.org/libc is at %s, which is not what modernc.org/sqlite was made with", has)
	}
}
