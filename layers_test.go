package holdfast_test

import (
	"go/parser"
	"go/token"
	"io/fs"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
)

const module = "github.com/holdfastq/holdfast"

// imports has the imports of each package of the module, by folder; "." is the root.
type imports struct{ code, tests map[string][]string }

// readImports parses the imports of every file. It is fast. Because it reads the files itself, they are inputs of the
// cached test result, unlike files that a command reads.
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

// nested reports whether the folder is a separate module.
func nested(folder string) bool {
	_, err := os.Stat(filepath.Join(folder, "go.mod"))
	return err == nil
}

// inside reports whether a folder is one of the others, or is below one of them.
func inside(folder string, others ...string) bool {
	return slices.ContainsFunc(others, func(other string) bool {
		return folder == other || strings.HasPrefix(folder, other+"/")
	})
}

// own returns the folder of an imported package if it belongs to this module.
func own(imported string) (folder string, ok bool) {
	if imported == module {
		return ".", true
	}
	return strings.CutPrefix(imported, module+"/")
}

// TestLayers checks which package imports which:
//
//   - The domain imports no other package of the module, and the messages import only the domain.
//   - Contracts import the domain and the messages.
//   - Services, the doctor and adapters import contracts, but not each other. Adapters also import the doctor, for the
//     type of its checks.
//   - The client of PostgreSQL knows nothing of messages and roles.
//   - Package app joins them. Package surface uses it, and the command line, the API and the console use surface.
//   - Only tests and the workshop import the workshop.
func TestLayers(t *testing.T) {
	t.Parallel()
	found := readImports(t)
	allowed := map[string][]string{ // packages of the module, by folder
		".":                        {},
		"schema":                   {".", "store"},
		"internal/message":         {"."},
		"internal/ordered":         {"."},
		"internal/slots":           {"."},
		"store":                    {".", "internal/message", "internal/ordered"},
		"internal/permit":          {".", "store"},
		"internal/breaker":         {"store"},
		"broker":                   {".", "internal/message"},
		"configs":                  {".", "internal/hosts", "internal/serverurl"},
		"producer":                 {".", "internal/message", "store", "broker", "configs"},
		"consumer":                 {".", "internal/breaker", "internal/effect", "internal/message", "internal/payload", "internal/plan", "presence", "store", "broker", "configs"},
		"janitor":                  {".", "internal/message", "internal/operate", "internal/plan", "presence", "store", "broker", "configs"},
		"doctor":                   {".", "internal/plan", "store", "broker"},
		"consumer/webhook":         {".", "internal/hosts"},
		"store/internal/column":    {"."},
		"store/internal/transact":  {".", "store", "store/internal/column", "store/internal/scan"},
		"store/internal/flow":      {".", "internal/message", "internal/ordered", "internal/breaker", "internal/permit", "internal/slots", "store", "store/internal/column", "store/internal/scan", "store/internal/transact"},
		"store/desk":               {".", "store", "store/internal/column", "store/internal/scan", "store/internal/statement", "store/internal/transact"},
		"store/internal/roles":     {".", "schema", "internal/message", "internal/ordered", "store", "store/internal/column", "store/internal/scan", "store/internal/statement", "store/internal/flow", "store/internal/transact"},
		"store/internal/scan":      {".", "internal/message", "internal/ordered", "internal/breaker", "internal/permit", "store", "store/internal/column"},
		"store/internal/statement": {},
		"store/postgres": {".", "presence", "internal/message", "internal/ordered", "store", "store/internal/column", "store/internal/flow", "store/internal/roles", "store/internal/scan",
			"store/internal/statement", "store/internal/transact", "store/desk", "store/postgres/pgclient", "schema", "doctor"},
		"store/postgres/pgclient": {".", "internal/serverurl", "schema", "store", "store/internal/column", "store/internal/statement"},
		"store/sqlite": {".", "presence", "internal/message", "internal/ordered", "store", "store/internal/column", "store/internal/flow", "store/internal/roles", "store/internal/scan",
			"store/internal/statement", "store/internal/transact", "store/desk", "schema", "doctor"},
		"broker/rabbitmq":     {".", "presence", "internal/serverurl", "broker", "doctor"},
		"broker/inproc":       {".", "presence", "broker"},
		"workshop/storetest":  {".", "presence", "internal/message", "internal/ordered", "workshop/slow", "store", "store/desk", "doctor"},
		"workshop/brokertest": {".", "presence", "workshop/slow", "broker", "doctor"},

		"tracing":                {"."},
		"internal/access":        {".", "app", "configs", "store"},
		"internal/cron":          {"."},
		"internal/payload":       {},
		"internal/settings":      {".", "store", "configs"},
		"internal/change":        {".", "internal/payload", "store"},
		"internal/operate":       {".", "internal/change", "store"},
		"internal/effect":        {".", "store"},
		"internal/plan":          {".", "internal/cron", "store"},
		"internal/hosts":         {},
		"internal/serverurl":     {},
		"internal/load":          {},
		"internal/transfer":      {".", "internal/ordered", "store"},
		"store/memory":           {".", "presence", "internal/message", "internal/ordered", "internal/breaker", "internal/permit", "internal/slots", "store"},
		"workshop/sim/simbroker": {".", "presence", "internal/message", "broker"},
	}
	for folder, may := range allowed {
		for _, imported := range found.code[folder] {
			if to, ok := own(imported); ok && to != "internal/logs" && to != "internal/backoff" && to != "internal/contain" && !slices.Contains(may, to) {
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
			case inside(to, "internal") && inside(folder, "examples"):
				t.Errorf("%s imports %s; an example shows what other programs can do", folder, to)
			case inside(to, "app") && !inside(folder, "cmd", "internal", "workshop", "app", "queue", "surface", "api", "console", "examples"),
				inside(to, "surface") && !inside(folder, "cmd", "workshop", "app/daemon", "api", "console"),
				inside(to, "queue") && !inside(folder, "cmd", "internal", "workshop", "queue", "examples"):
				t.Errorf("%s imports %s", folder, to)
			case inside(to, "workshop") && !inside(folder, "workshop"):
				t.Errorf("%s imports %s; only tests and the workshop import the workshop", folder, to)
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

// TestLibrariesStayWhereTheyBelong checks that only the package that wraps a driver imports it. Tests in the workshop
// use real servers and may also import drivers.
func TestLibrariesStayWhereTheyBelong(t *testing.T) {
	t.Parallel()
	found := readImports(t)
	for library, folders := range map[string][]string{
		"github.com/rabbitmq/amqp091-go":                 {"broker/rabbitmq"},
		"github.com/jmoiron/sqlx":                        {"store/postgres", "store/sqlite", "store/internal/column"},
		"github.com/lib/pq":                              {"store/postgres", "workshop/pgtest"},
		"modernc.org/sqlite":                             {"store/sqlite"},
		"github.com/gofrs/flock":                         {"store/sqlite"},
		"github.com/pressly/goose":                       {"schema"},
		"github.com/urfave/cli":                          {"cmd"},
		"charm.land/bubbletea":                           {"cmd"},
		"github.com/creack/pty":                          {"cmd"},
		"github.com/charmbracelet/x":                     {"cmd"},
		"github.com/prometheus":                          {"app"},
		"go.opentelemetry.io":                            {"tracing", "app/daemon"},
		"github.com/knadh/koanf":                         {"configs"},
		"code.dny.dev/ssrf":                              {"consumer/webhook"},
		"github.com/evanphx/json-patch":                  {"internal/change"},
		"github.com/cenkalti/backoff":                    {"internal/backoff"},
		"github.com/standard-webhooks/standard-webhooks": {"consumer/webhook"},
	} {
		for user, list := range found.code {
			if i := slices.IndexFunc(list, func(s string) bool { return inside(s, library) }); i >= 0 && !inside(user, folders...) {
				t.Errorf("%s imports %s, which belongs to %s", user, list[i], strings.Join(folders, " and "))
			}
		}
		for user, list := range found.tests {
			if i := slices.IndexFunc(list, func(s string) bool { return inside(s, library) }); i >= 0 && !inside(user, append(folders, "workshop")...) {
				t.Errorf("the tests of %s import %s, which belongs to %s", user, list[i], strings.Join(folders, " and "))
			}
		}
	}
}

// TestTracingLinksNoSDK checks that package tracing links no SDK and no exporter, which a program chooses itself.
func TestTracingLinksNoSDK(t *testing.T) {
	t.Parallel()
	for _, linked := range dependencies(t, "./tracing") {
		if inside(linked, "go.opentelemetry.io/otel/sdk", "go.opentelemetry.io/otel/exporters", "google.golang.org/grpc") {
			t.Errorf("package tracing links %s", linked)
		}
	}
}

// dependencies returns the packages that the given packages link.
func dependencies(t *testing.T, packages ...string) []string {
	t.Helper()
	readImports(t) // makes the files inputs of the cached result
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

// TestAProgramLinksNoDaemon checks that package queue links no metrics, tracing, HTTP, task type, command line or pgx.
func TestAProgramLinksNoDaemon(t *testing.T) {
	t.Parallel()
	for _, linked := range dependencies(t, "./queue") {
		if inside(linked, "net/http", "github.com/prometheus", "go.opentelemetry.io", "github.com/jackc/pgx/v5", "github.com/urfave/cli/v2", "charm.land", module+"/app/daemon",
			module+"/consumer/webhook", module+"/cmd", module+"/workshop/sim", "testing") {
			t.Errorf("package queue links %s", linked)
		}
	}
}

// TestAProgramByHandLinksOneStore checks a program that wires the services itself. It must link one store and one
// broker, and neither package configs nor package app.
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
		if inside(linked, "net/http", "github.com/prometheus", "go.opentelemetry.io", "github.com/knadh/koanf", "github.com/rabbitmq/amqp091-go", "github.com/lib/pq", "testing",
			module+"/app", module+"/configs", module+"/queue", module+"/store/postgres", module+"/broker/rabbitmq") {
			t.Errorf("the program links %s", linked)
		}
	}
}

// TestNoTestCodeInTheBinary checks the packages that the commands link.
func TestNoTestCodeInTheBinary(t *testing.T) {
	t.Parallel()
	found := readImports(t)
	if !slices.ContainsFunc(slices.Collect(maps.Keys(found.code)), func(folder string) bool { return inside(folder, "cmd") }) {
		t.Skip("there is no command yet")
	}
	for _, dependency := range dependencies(t, "./cmd/...") {
		if inside(dependency, "testing", "github.com/stretchr/testify", "go.uber.org/goleak", "pgregory.net/rapid", "github.com/rogpeppe/go-internal",
			"github.com/creack/pty", "github.com/charmbracelet/x/vt") ||
			inside(dependency, module+"/workshop") {
			t.Errorf("%s is linked into the binary", dependency)
		}
	}
}

// TestTheDriverHasItsOwnLibc checks the version of the translated C library. The SQLite driver works with exactly one
// version, and another dependency may require a newer one. See the release notes of the driver.
func TestTheDriverHasItsOwnLibc(t *testing.T) {
	t.Parallel()
	query := func(format, path string) string {
		command := exec.CommandContext(t.Context(), "go", "list", "-m", "-f", format, path)
		command.Stderr = os.Stderr
		answer, err := command.Output()
		if err != nil {
			t.Fatal(err)
		}
		return strings.TrimSpace(string(answer))
	}
	required, err := os.ReadFile(query("{{.GoMod}}", "modernc.org/sqlite"))
	if err != nil {
		t.Fatal(err)
	}
	if has := query("{{.Version}}", "modernc.org/libc"); !strings.Contains(string(required), "modernc.org/libc "+has+"\n") {
		t.Errorf("modernc.org/libc is at %s; modernc.org/sqlite requires another version", has)
	}
}
