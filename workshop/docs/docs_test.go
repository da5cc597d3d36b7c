package docs

import (
	"bufio"
	"bytes"
	"encoding/json"
	"fmt"
	"go/ast"
	"go/format"
	"go/parser"
	"go/token"
	"io/fs"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"

	"github.com/holdfastq/holdfast/configs"
	"github.com/holdfastq/holdfast/workshop/slow"
)

const root = "../.."

// page is one Markdown file.
type page struct {
	path string // relative to the root of the module
	text string
}

// pages returns the README, the changelog and similar files, and all pages in docs.
func pages(t *testing.T) []page {
	t.Helper()
	paths := []string{"README.md", "CHANGELOG.md", "CONTRIBUTING.md", "SECURITY.md"}
	err := fs.WalkDir(os.DirFS(root), "docs", func(path string, _ fs.DirEntry, err error) error {
		if strings.HasSuffix(path, ".md") {
			paths = append(paths, path)
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	all := make([]page, len(paths))
	for i, path := range paths {
		all[i] = page{path, read(t, path)}
	}
	return all
}

// read returns the text of a file of the module.
func read(t *testing.T, path string) string {
	t.Helper()
	text, err := os.ReadFile(filepath.Join(root, path))
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

var fence = regexp.MustCompile("(?ms)^ *```([a-z]*)\n(.*?)^ *```$")

// blocks returns the text of the fenced blocks of a language.
func (p page) blocks(language string) []string {
	var found []string
	for _, block := range fence.FindAllStringSubmatch(p.text, -1) {
		if block[1] == language {
			found = append(found, block[2])
		}
	}
	return found
}

// prose returns the text without fenced blocks.
func (p page) prose() string { return fence.ReplaceAllString(p.text, "") }

var span = regexp.MustCompile("`([^`]+)`")

// code returns all text that is marked as code: code spans, and the lines of blocks except Go and text blocks.
func (p page) code() []string {
	var found []string
	for _, s := range span.FindAllStringSubmatch(p.prose(), -1) {
		found = append(found, strings.Join(strings.Fields(s[1]), " "))
	}
	for _, block := range fence.FindAllStringSubmatch(p.text, -1) {
		if block[1] != "go" && block[1] != "text" {
			found = append(found, strings.Split(block[2], "\n")...)
		}
	}
	return found
}

// Every Go block is formatted. Every Go block that is a whole program compiles as a package of the module. It runs its
// task, and stops without an error after SIGINT and after SIGTERM.
func TestGoInPagesCompilesAndRuns(t *testing.T) {
	t.Parallel()
	programs := 0
	for _, p := range pages(t) {
		for i, block := range p.blocks("go") {
			if formatted, err := format.Source([]byte(block)); err != nil {
				t.Errorf("%s, Go block %d: %v", p.path, i+1, err)
			} else if string(formatted) != block {
				t.Errorf("%s, Go block %d is not formatted", p.path, i+1)
			}
			if !strings.HasPrefix(block, "package main\n") {
				continue
			}
			programs++
			program, err := build(t, block)
			if err != nil {
				t.Errorf("%s, Go block %d: %v", p.path, i+1, err)
				continue
			}
			for _, sig := range []os.Signal{os.Interrupt, syscall.SIGTERM} {
				if logs, err := runUntil(t, program, "welcome, ada@example.com (attempt 1)", sig); err != nil {
					t.Errorf("%s, Go block %d, after %s: %v\n%s", p.path, i+1, sig, err, logs)
				}
			}
		}
	}
	if programs == 0 {
		t.Error("no page contains a Go program")
	}
}

// build compiles a program as a package in a folder of this package, and returns the path of the binary. It uses an
// overlay and creates no file in the module.
func build(t *testing.T, program string) (string, error) {
	t.Helper()
	dir := t.TempDir()
	file := filepath.Join(dir, "main.go")
	if err := os.WriteFile(file, []byte(program), 0o600); err != nil {
		t.Fatal(err)
	}
	here, err := filepath.Abs(".")
	if err != nil {
		t.Fatal(err)
	}
	overlay, err := json.Marshal(map[string]any{"Replace": map[string]string{filepath.Join(here, "program", "main.go"): file}})
	if err != nil {
		t.Fatal(err)
	}
	list := filepath.Join(dir, "overlay.json")
	if err := os.WriteFile(list, overlay, 0o600); err != nil {
		t.Fatal(err)
	}
	binary := filepath.Join(dir, "binary")
	out, err := exec.CommandContext(t.Context(), "go", "build", "-buildvcs=false", "-overlay", list, "-o", binary, "./program").CombinedOutput()
	if err != nil {
		return "", fmt.Errorf("%w\n%s", err, out)
	}
	return binary, nil
}

// runUntil runs a program on a new database file and waits for its end. It sends the program a signal when a log line
// contains text.
func runUntil(t *testing.T, program, text string, sig os.Signal) (logs string, err error) {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), program)
	cmd.Env = append(os.Environ(), "DATABASE_URL=sqlite:"+filepath.Join(t.TempDir(), "holdfast.db"), "AMQP_URL=inproc:", "HOLDFAST_LISTEN=127.0.0.1:0")
	stderr, err := cmd.StderrPipe()
	if err != nil {
		return "", err
	}
	if err := cmd.Start(); err != nil {
		return "", err
	}
	var all strings.Builder
	for lines := bufio.NewScanner(stderr); lines.Scan(); {
		fmt.Fprintln(&all, lines.Text())
		if strings.Contains(lines.Text(), text) {
			_ = cmd.Process.Signal(sig) // if the program has ended, Wait returns the reason
		}
	}
	return all.String(), cmd.Wait()
}

var testName = regexp.MustCompile(`^(Test|Fuzz|Benchmark|Example)[A-Z]\w*$`)

// Every test that a page names exists.
func TestNamedTestsExist(t *testing.T) {
	t.Parallel()
	known := map[string]bool{}
	walkGo(t, func(path string, file *ast.File) {
		for _, decl := range file.Decls {
			if f, ok := decl.(*ast.FuncDecl); ok && strings.HasSuffix(path, "_test.go") {
				known[f.Name.Name] = true
			}
		}
	})
	named := 0
	for _, p := range pages(t) {
		for _, code := range p.code() {
			code, _, _ = strings.Cut(code, "/") // a subtest
			if !testName.MatchString(code) {
				continue
			}
			named++
			if !known[code] {
				t.Errorf("%s names the test %s, which does not exist", p.path, code)
			}
		}
	}
	if named == 0 {
		t.Error("no page names a test")
	}
}

// quickTests returns the names of the tests that make test runs: their first statements do not skip them.
func quickTests(t *testing.T) map[string]bool {
	t.Helper()
	quick := map[string]bool{}
	walkGo(t, func(path string, file *ast.File) {
		for _, decl := range file.Decls {
			if f, ok := decl.(*ast.FuncDecl); ok && strings.HasSuffix(path, "_test.go") && f.Body != nil && !skips(f.Body.List) {
				quick[f.Name.Name] = true
			}
		}
	})
	return quick
}

// sections returns the sections of a page by their titles.
func sections(t *testing.T, path string) map[string]page {
	t.Helper()
	found := map[string]page{}
	for _, section := range strings.Split(read(t, path), "\n## ")[1:] {
		title, text, _ := strings.Cut(section, "\n")
		found[title] = page{path, text}
	}
	return found
}

// tests returns the tests that a page names; of a subtest, the test.
func (p page) tests() []string {
	var found []string
	for _, code := range p.code() {
		if name, _, _ := strings.Cut(code, "/"); strings.HasPrefix(name, "Test") && testName.MatchString(name) {
			found = append(found, name)
		}
	}
	return found
}

var boldItem = regexp.MustCompile(`(?m)^(?:- )?(\*\*[^*]+)\*\*`)

// Every section of guarantees.md except the glossary ends with a link to the section of proofs.md with its title. That
// section names at least one test that make test runs. guarantees.md itself names no test, so that a reader finds
// promises and limits only. The section "Also promised" has many promises: each has its own line of proofs.
func TestEveryPromiseHasAProof(t *testing.T) {
	t.Parallel()
	quick, promises, proofs := quickTests(t), sections(t, "docs/guarantees.md"), sections(t, "docs/proofs.md")
	delete(promises, "Words")
	for title, promise := range promises {
		if names := promise.tests(); len(names) > 0 {
			t.Errorf("guarantees.md names the tests %q in the section %q: they belong in proofs.md", names, title)
		}
		names := proofs[title].tests()
		if !slices.ContainsFunc(names, func(name string) bool { return quick[name] }) {
			t.Errorf("proofs.md names no test that make test runs for the section %q: %q", title, names)
		}
		if link := "Proof: [the tests](proofs.md#" + anchor(title) + ")."; !strings.HasSuffix(promise.text, "\n\n"+link+"\n") {
			t.Errorf("the section %q of guarantees.md does not end with %s", title, link)
		}
	}
	for title := range proofs {
		if _, ok := promises[title]; !ok {
			t.Errorf("proofs.md has a section %q, but guarantees.md has none", title)
		}
	}
	const many = "Also promised"
	for _, item := range boldItem.FindAllStringSubmatch(promises[many].text, -1) {
		name := strings.TrimSuffix(item[1], ".")
		_, proof, _ := strings.Cut("\n"+proofs[many].text, "\n- "+name+"**:")
		proof, _, _ = strings.Cut(proof, "\n- ")
		if len(page{text: proof}.tests()) == 0 {
			t.Errorf("proofs.md has no test for %s** in the section %q", name, many)
		}
	}
}

var treePath = regexp.MustCompile(`^(cmd|workshop)/[\w/]+\.(go|txt)$`)

// Every script and every file of a suite that proofs.md names exists.
func TestNamedProofFilesExist(t *testing.T) {
	t.Parallel()
	named := 0
	for _, code := range (page{text: read(t, "docs/proofs.md")}).code() {
		if treePath.MatchString(code) {
			named++
			if _, err := os.Stat(filepath.Join(root, code)); err != nil {
				t.Errorf("proofs.md names the file %s, which does not exist", code)
			}
		}
	}
	if named == 0 {
		t.Error("proofs.md names no file")
	}
}

// Every section of patterns.md has a command to type, and names at least one test that make test runs.
// TestNamedCommandsExist and TestNamedTestsExist check that all of them exist.
func TestEveryPatternHasACommandAndAQuickTest(t *testing.T) {
	t.Parallel()
	quick := quickTests(t)
	patterns := sections(t, "docs/patterns.md")
	for title, section := range patterns {
		if !slices.ContainsFunc(section.blocks("sh"), invocation.MatchString) {
			t.Errorf("the section %q has no command", title)
		}
		if names := section.tests(); !slices.ContainsFunc(names, func(name string) bool { return quick[name] }) {
			t.Errorf("the section %q names no test that make test runs: %q", title, names)
		}
	}
	if len(patterns) < 6 {
		t.Errorf("the page has only %d sections", len(patterns))
	}
}

// skips reports whether a test begins with slow.Skip(t), maybe after other calls.
func skips(body []ast.Stmt) bool {
	for _, statement := range body {
		call, ok := statement.(*ast.ExprStmt)
		if !ok {
			return false
		}
		if c, ok := call.X.(*ast.CallExpr); ok {
			if f, ok := c.Fun.(*ast.SelectorExpr); ok && f.Sel.Name == "Skip" {
				return true
			}
		}
	}
	return false
}

// walkGo parses every Go file in the tree and calls visit for it.
func walkGo(t *testing.T, visit func(path string, file *ast.File)) {
	t.Helper()
	err := filepath.WalkDir(root, func(path string, entry fs.DirEntry, err error) error {
		switch {
		case err != nil:
			return err
		case entry.IsDir() && path != root && strings.HasPrefix(entry.Name(), "."):
			return fs.SkipDir
		case entry.IsDir() || !strings.HasSuffix(path, ".go"):
			return nil
		}
		file, err := parser.ParseFile(token.NewFileSet(), path, nil, parser.SkipObjectResolution)
		if err == nil {
			visit(path, file)
		}
		return nil // the compiler reports files that cannot be parsed
	})
	if err != nil {
		t.Fatal(err)
	}
}

var (
	link    = regexp.MustCompile(`\]\(([^)\s]+)\)`)
	heading = regexp.MustCompile(`(?m)^#+ (.+)$`)
	dropped = regexp.MustCompile(`[^\p{L}\p{N} _-]`)
)

// anchor returns the link anchor of a heading.
func anchor(title string) string {
	return strings.ReplaceAll(dropped.ReplaceAllString(strings.ToLower(title), ""), " ", "-")
}

// anchors returns the link anchors of the headings of a page.
func anchors(text string) map[string]bool {
	found := map[string]bool{}
	for _, h := range heading.FindAllStringSubmatch(text, -1) {
		found[anchor(h[1])] = true
	}
	return found
}

// Every relative link leads to a file that exists, and to a heading in it if the link has an anchor.
func TestLinksResolve(t *testing.T) {
	t.Parallel()
	for _, p := range pages(t) {
		for _, l := range link.FindAllStringSubmatch(p.prose(), -1) {
			if strings.Contains(l[1], "://") {
				continue
			}
			path, anchor, _ := strings.Cut(l[1], "#")
			target := filepath.Join(filepath.Dir(p.path), path)
			if path == "" {
				target = p.path
			}
			if _, err := os.Stat(filepath.Join(root, target)); err != nil {
				t.Errorf("%s links to %s, which does not exist", p.path, l[1])
				continue
			}
			if anchor != "" && !anchors(read(t, target))[anchor] {
				t.Errorf("%s links to %s, but the page has no such heading", p.path, l[1])
			}
		}
	}
}

// A page shows each picture in docs/images.
func TestEveryPictureIsShown(t *testing.T) {
	t.Parallel()
	var text strings.Builder
	for _, p := range pages(t) {
		text.WriteString(p.prose())
	}
	pictures, err := os.ReadDir(filepath.Join(root, "docs", "images"))
	if err != nil {
		t.Fatal(err)
	}
	for _, picture := range pictures {
		if !strings.Contains(text.String(), "images/"+picture.Name()+")") {
			t.Errorf("no page shows docs/images/%s", picture.Name())
		}
	}
}

var (
	firstCell = regexp.MustCompile(`(?m)^\|([^|]+)\|`)
	folder    = regexp.MustCompile("`([a-z]+)/`")
)

// The table of folders in CONTRIBUTING.md names every top-level folder, and no folder that does not exist.
func TestTheTableOfFoldersIsComplete(t *testing.T) {
	t.Parallel()
	named := map[string]bool{}
	for _, cell := range firstCell.FindAllStringSubmatch(read(t, "CONTRIBUTING.md"), -1) {
		for _, f := range folder.FindAllStringSubmatch(cell[1], -1) {
			named[f[1]] = true
		}
	}
	entries, err := os.ReadDir(root)
	if err != nil {
		t.Fatal(err)
	}
	for _, entry := range entries {
		name := entry.Name()
		if entry.IsDir() && !strings.HasPrefix(name, ".") && name != "bin" && !named[name] {
			t.Errorf("the table of folders in CONTRIBUTING.md lacks %s/", name)
		}
		delete(named, name)
	}
	for name := range named {
		t.Errorf("the table of folders in CONTRIBUTING.md names %s/, which does not exist", name)
	}
}

// buildCommand builds the holdfast program and returns its path. If the program does not compile, buildCommand skips
// the test, because the tests of the program report that.
func buildCommand(t *testing.T) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "holdfast")
	out, err := exec.CommandContext(t.Context(), "go", "build", "-buildvcs=false", "-o", path, root+"/cmd/holdfast").CombinedOutput()
	if err != nil {
		t.Skipf("the program does not compile: %v: %s", err, bytes.TrimSpace(out))
	}
	return path
}

// help has the help texts of the holdfast program.
type help struct {
	commands map[string]string // help text by command, such as "dead retry"
	global   string            // help text of the flags that every command has
}

var (
	commandLine = regexp.MustCompile(`(?m)^  ([a-z][a-z-]*) {2,}\S`)
	flagLine    = regexp.MustCompile(`(?m)^  (?:-\w, )?(--[a-z-]+)`)
)

// readHelp runs the program with --help for every command.
func readHelp(t *testing.T) help {
	t.Helper()
	path := buildCommand(t)
	h := help{commands: map[string]string{}}
	out, err := exec.CommandContext(t.Context(), path, "help", "flags").Output()
	if err != nil {
		t.Fatalf("holdfast help flags: %v", err)
	}
	h.global = string(out)
	var (
		mu    sync.Mutex // guards h.commands
		calls sync.WaitGroup
		visit func(words []string)
	)
	places := make(chan struct{}, runtime.NumCPU()) // most of the time passes while the program starts
	visit = func(words []string) {
		places <- struct{}{}
		out, err := exec.CommandContext(t.Context(), path, append(slices.Clone(words), "--help")...).Output()
		<-places
		if err != nil {
			t.Errorf("holdfast %s --help: %v", strings.Join(words, " "), err)
			return
		}
		text := string(out)
		mu.Lock()
		h.commands[strings.Join(words, " ")] = text
		mu.Unlock()
		list, _, _ := strings.Cut(commandsIn(text), "\nFor the help of a command")
		for _, c := range commandLine.FindAllStringSubmatch(list, -1) {
			calls.Go(func() { visit(append(slices.Clone(words), c[1])) })
		}
	}
	visit(nil)
	calls.Wait()
	return h
}

// commandsIn returns the list of commands in a help text, and what follows. The program has one under several headings.
func commandsIn(text string) string {
	for _, heading := range []string{"\nRun:\n", "\nCommands:\n"} {
		if _, list, found := strings.Cut(text, heading); found {
			return list
		}
	}
	return ""
}

// find returns the command at the beginning of words. ok is false if words names no command, or if a word after a
// command is not one of its subcommands.
func (h help) find(words []string) (path string, ok bool) {
	for len(words) > 0 {
		next := strings.TrimSpace(path + " " + words[0])
		if _, known := h.commands[next]; !known {
			break
		}
		path, words = next, words[1:]
	}
	if path == "" && len(words) == 2 && words[0] == "help" { // "help flags" and "help search"
		return path, true
	}
	hasSubcommands := commandsIn(h.commands[path]) != ""
	return path, !hasSubcommands || len(words) == 0 && path != ""
}

var (
	invocation = regexp.MustCompile(`(?:^|[\s/])holdfast ([^#|&;]*)`)
	word       = regexp.MustCompile(`^[a-z][a-z-]*$`)
	flag       = regexp.MustCompile(`^--[a-z-]+`)
)

// Every command and every flag that a page names in code exists.
func TestNamedCommandsExist(t *testing.T) {
	t.Parallel()
	h := readHelp(t)
	seen := 0
	for _, p := range pages(t) {
		for _, code := range p.code() {
			for _, found := range invocation.FindAllStringSubmatch(code, -1) {
				seen++
				fields := strings.Fields(found[1])
				var words []string
				for _, f := range fields {
					if !word.MatchString(f) {
						break
					}
					words = append(words, f)
				}
				path, ok := h.find(words)
				if !ok {
					t.Errorf("%s: %q: holdfast has no command %s", p.path, code, strings.Join(words, " "))
					continue
				}
				for _, f := range fields {
					name := flag.FindString(f)
					if name == "" || name == "--help" {
						continue
					}
					if !slices.ContainsFunc(flagLine.FindAllStringSubmatch(h.commands[path]+h.global, -1), func(m []string) bool { return m[1] == name }) {
						t.Errorf("%s: %q: holdfast %s has no flag %s", p.path, code, path, name)
					}
				}
			}
		}
	}
	if seen == 0 {
		t.Error("no page names a command")
	}
}

var (
	settingKey = regexp.MustCompile(`^(database|amqp|log|worker|producer|janitor|webhook|defaults)\.[a-z_.]+$`)
	variable   = regexp.MustCompile(`HOLDFAST_[A-Z_]+(?:<NAME>[A-Z_]*)?`)
)

// Every setting and every environment variable that a page names in code exists.
func TestNamedSettingsExist(t *testing.T) {
	t.Parallel()
	keys, variables := map[string]bool{}, map[string]bool{configs.FileVariable: true, slow.Variable: true, slow.FactorVariable: true}
	for _, v := range configs.Variables() {
		keys[v.Key], variables[v.Name] = true, true
		if v.File != "" {
			variables[v.File] = true
		}
	}
	for _, p := range pages(t) {
		for _, code := range p.code() {
			if settingKey.MatchString(code) && !keys[code] {
				t.Errorf("%s names the setting %s, which does not exist", p.path, code)
			}
			for _, name := range variable.FindAllString(code, -1) {
				if name != "HOLDFAST_" && !variables[name] {
					t.Errorf("%s names the variable %s, which does not exist", p.path, name)
				}
			}
		}
	}
}

// literals returns the string literals of a Go file.
func literals(t *testing.T, path string) []string {
	t.Helper()
	file, err := parser.ParseFile(token.NewFileSet(), filepath.Join(root, path), nil, parser.SkipObjectResolution)
	if err != nil {
		t.Fatal(err)
	}
	var found []string
	ast.Inspect(file, func(n ast.Node) bool {
		if lit, ok := n.(*ast.BasicLit); ok && lit.Kind == token.STRING {
			if text, err := strconv.Unquote(lit.Value); err == nil {
				found = append(found, text)
			}
		}
		return true
	})
	return found
}

var (
	metricName  = regexp.MustCompile(`^(holdfast_)?[a-z]+(_[a-z]+)*_(total|seconds|tasks|groups)$|^holdfast_(gates|limit_[a-z_]+|[a-z_]+_blocked|topics_waiting|schedules_late|slices_dead|source_late|batches|file_wal_bytes|workers|executors)$`)
	metricInDoc = regexp.MustCompile(`holdfast_[a-z_]+`)
)

// docs/monitor.md lists every metric of package daemon, and no page names a metric that does not exist.
func TestMetricsMatchTheCode(t *testing.T) {
	t.Parallel()
	inCode := map[string]bool{}
	for _, text := range slices.Concat(literals(t, "app/daemon/metrics.go"), literals(t, "app/daemon/collectors.go"), literals(t, "app/daemon/gates.go"),
		literals(t, "app/daemon/queues.go"), literals(t, "app/daemon/wal.go")) {
		if metricName.MatchString(text) {
			inCode["holdfast_"+strings.TrimPrefix(text, "holdfast_")] = true
		}
	}
	text := read(t, "docs/monitor.md")
	_, section, _ := strings.Cut(text, "\n## Metrics\n")
	section, _, _ = strings.Cut(section, "\n## ")
	inTable := map[string]bool{}
	for _, line := range strings.Split(section, "\n") {
		if strings.HasPrefix(line, "| `holdfast_") {
			inTable[metricInDoc.FindString(line)] = true
		}
	}
	for _, name := range slices.Sorted(maps.Keys(inCode)) {
		if !inTable[name] {
			t.Errorf("docs/monitor.md does not list the metric %s", name)
		}
	}
	for _, p := range pages(t) {
		for _, name := range metricInDoc.FindAllString(p.text, -1) {
			if !inCode[name] && (inTable[name] || metricName.MatchString(name)) {
				t.Errorf("%s names the metric %s, which does not exist", p.path, name)
			}
		}
	}
}

// docs/configure.md lists exactly the exit codes of cmd/holdfast/errors.go.
func TestExitCodesMatchTheCode(t *testing.T) {
	t.Parallel()
	file, err := parser.ParseFile(token.NewFileSet(), filepath.Join(root, "cmd/holdfast/errors.go"), nil, parser.SkipObjectResolution)
	if err != nil {
		t.Fatal(err)
	}
	var inCode []string
	ast.Inspect(file, func(n ast.Node) bool {
		if v, ok := n.(*ast.ValueSpec); ok && len(v.Names) == 1 && len(v.Values) == 1 && strings.HasPrefix(v.Names[0].Name, "exit") {
			if lit, ok := v.Values[0].(*ast.BasicLit); ok {
				inCode = append(inCode, lit.Value)
			}
		}
		return true
	})
	_, section, _ := strings.Cut(read(t, "docs/configure.md"), "\n## Exit codes\n")
	section, _, _ = strings.Cut(section, "\n## ")
	var inTable []string
	for _, row := range regexp.MustCompile(`(?m)^\| (\d+) \|`).FindAllStringSubmatch(section, -1) {
		inTable = append(inTable, row[1])
	}
	if !slices.Equal(inCode, inTable) {
		t.Errorf("docs/configure.md lists the exit codes %v, but the code has %v", inTable, inCode)
	}
}

// The diagram in the README has a box for each main package.
func TestDiagramShowsPackages(t *testing.T) {
	t.Parallel()
	diagrams := page{text: read(t, "README.md")}.blocks("text")
	if len(diagrams) == 0 {
		t.Fatal("the README has no diagram")
	}
	for _, name := range []string{"producer", "store", "broker", "consumer", "janitor"} {
		if !strings.Contains(diagrams[0], name) {
			t.Errorf("the diagram lacks %s", name)
		}
		if _, err := os.Stat(filepath.Join(root, name)); err != nil {
			t.Errorf("the diagram has a box %s, but there is no such package", name)
		}
	}
}
