package holdfast_test

import (
	"go/ast"
	"go/parser"
	"go/token"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/holdfastq/holdfast/configs"
)

// TestPackagesBelowAppNameNoCommand checks the texts in the packages below app. None may name a command, a flag, a
// setting or an environment variable: only the command line does that. Package configs may name its own settings.
func TestPackagesBelowAppNameNoCommand(t *testing.T) {
	t.Parallel()
	forbidden := forbiddenNames(t)
	allowed := map[string]string{
		"internal/transfer": "holdfast export", // names the file format
	}
	folders := below(readImports(t), "app/daemon")
	for _, want := range []string{".", "doctor", "store", "store/postgres", "store/sqlite", "broker/rabbitmq", "consumer/webhook", "janitor", "producer", "schema"} {
		if !slices.Contains(folders, want) {
			t.Errorf("the daemon does not use %s", want)
		}
	}
	for _, folder := range folders {
		if folder == "configs" || inside(folder, "app", "api", "console", "internal/access") { // surfaces, like the command line, and what they share
			continue
		}
		for _, text := range stringsOf(t, folder) {
			if found := forbidden.FindString(text.value); found != "" && text.value != allowed[folder] {
				t.Errorf("%s names %q: %q", text.position, found, text.value)
			}
		}
	}
}

// TestForbiddenNames checks the pattern of the test above.
func TestForbiddenNames(t *testing.T) {
	t.Parallel()
	forbidden := forbiddenNames(t)
	for text, want := range map[string]bool{
		"run: holdfast migrate up":                  true,
		"start holdfast serve, then":                true,
		"choose another with --listen":              true,
		"set database.direct_url":                   true,
		"of webhook.secret_hosts.billing":           true,
		"types.mail.retry.base is":                  true,
		"check the host in DATABASE_URL":            true,
		"HOLDFAST_WORKER_LEASE is odd":              true,
		"not a holdfast message: %d bytes":          false,
		"rabbitmqctl set_permissions":               false,
		"set synchronous_commit = on":               false,
		"add target_session_attrs=read-write":       false,
		"holdfast.v1.main.default":                  false,
		"the machine slept -- or its clock was set": false,
	} {
		if got := forbidden.MatchString(text); got != want {
			t.Errorf("%q: found %t, want %t", text, got, want)
		}
	}
}

// below returns the folders of the packages that a package imports, directly or indirectly.
func below(found imports, folder string) []string {
	var folders []string
	for todo := []string{folder}; len(todo) > 0; todo = todo[1:] {
		for _, imported := range found.code[todo[0]] {
			if to, ok := own(imported); ok && !slices.Contains(folders, to) {
				folders, todo = append(folders, to), append(todo, to)
			}
		}
	}
	slices.Sort(folders)
	return folders
}

// forbiddenNames returns a pattern for the names that only the command line may use.
func forbiddenNames(t *testing.T) *regexp.Regexp {
	t.Helper()
	parts := []string{`\bHOLDFAST_[A-Z]`, `(^|[\s(])--[a-z][a-z-]+`}
	for _, v := range configs.Variables() {
		if v.Also != "" {
			parts = append(parts, `\b`+v.Also+`\b`)
		}
		if key := regexp.QuoteMeta(v.Key); strings.Contains(key, ".") {
			parts = append(parts, `\b`+strings.ReplaceAll(key, "<name>", `[\w<>%.-]+`))
		}
	}
	commands := commandNames(t)
	if !slices.Contains(commands, "serve") || !slices.Contains(commands, "migrate") {
		t.Fatalf("commands are missing in %q", commands)
	}
	return regexp.MustCompile(strings.Join(append(parts, `\bholdfast (`+strings.Join(commands, "|")+`)\b`), "|"))
}

// commandNames returns the names of the commands: the first word of the first argument of each call of noun and verb in
// cmd/holdfast.
func commandNames(t *testing.T) (names []string) {
	t.Helper()
	inspect(t, "cmd/holdfast", func(_ *token.FileSet, node ast.Node) {
		call, ok := node.(*ast.CallExpr)
		if !ok || len(call.Args) == 0 {
			return
		}
		called := ""
		switch function := call.Fun.(type) {
		case *ast.Ident:
			called = function.Name
		case *ast.SelectorExpr:
			called = function.Sel.Name
		}
		value, isText := call.Args[0].(*ast.BasicLit)
		if !isText || called != "noun" && called != "verb" {
			return
		}
		if use, err := strconv.Unquote(value.Value); err == nil {
			name, _, _ := strings.Cut(use, " ")
			names = append(names, regexp.QuoteMeta(name))
		}
	})
	return names
}

type text struct{ value, position string }

// stringsOf returns the string literals of a package, except those in tests, tags and imports.
func stringsOf(t *testing.T, folder string) (texts []text) {
	t.Helper()
	skip := make(map[*ast.BasicLit]bool)
	inspect(t, folder, func(files *token.FileSet, node ast.Node) {
		switch node := node.(type) {
		case *ast.ImportSpec:
			skip[node.Path] = true
		case *ast.Field:
			skip[node.Tag] = true
		case *ast.BasicLit:
			if value, err := strconv.Unquote(node.Value); err == nil && node.Kind == token.STRING && !skip[node] {
				texts = append(texts, text{value, files.Position(node.Pos()).String()})
			}
		}
	})
	return texts
}

// inspect calls f with every node of the Go files of a folder, except tests.
func inspect(t *testing.T, folder string, f func(*token.FileSet, ast.Node)) {
	t.Helper()
	files := token.NewFileSet()
	names, err := filepath.Glob(filepath.Join(folder, "*.go"))
	if err != nil || len(names) == 0 {
		t.Fatalf("no files in %s: %v", folder, err)
	}
	for _, name := range names {
		if strings.HasSuffix(name, "_test.go") {
			continue
		}
		parsed, err := parser.ParseFile(files, name, nil, 0)
		if err != nil {
			t.Fatal(err)
		}
		ast.Inspect(parsed, func(node ast.Node) bool {
			f(files, node)
			return true
		})
	}
}
