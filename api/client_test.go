package api_test

import (
	"context"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/holdfastq/holdfast"
	"github.com/holdfastq/holdfast/store"
	"github.com/holdfastq/holdfast/workshop/backendtest"
	"github.com/holdfastq/holdfast/workshop/slow"
)

// clientTools are the generator, the library that its types need, and the compiler.
var clientTools = []string{"openapi-typescript@7.13.0", "openapi-fetch@0.14.1", "typescript@5.9.3"}

// runnerIn returns a function that runs a program in a folder and returns what it prints.
func runnerIn(t *testing.T, folder string) func(program string, args ...string) (string, error) {
	return func(program string, args ...string) (string, error) {
		ctx, cancel := context.WithTimeout(t.Context(), slow.Patience())
		defer cancel()
		command := exec.CommandContext(ctx, program, args...)
		command.Dir = folder
		command.WaitDelay = 10 * time.Second
		text, err := command.CombinedOutput()
		return string(text), err
	}
}

// TestAGeneratedClientWorks generates a client from the served document, checks a program against its types, and runs the
// program, which stores, lists, retries and pauses. The test needs node and the npm registry.
func TestAGeneratedClientWorks(t *testing.T) {
	slow.Skip(t) // it installs packages
	t.Parallel()
	if _, err := exec.LookPath("npm"); err != nil {
		t.Skip("SKIPPED: the test of a generated client needs npm and node")
	}
	folder := t.TempDir()
	run := runnerIn(t, folder)
	if text, err := run("npm", append([]string{"install", "--no-audit", "--no-fund", "--prefix", folder}, clientTools...)...); err != nil {
		t.Skipf("SKIPPED: npm cannot install %s: %v\n%s", strings.Join(clientTools, " "), err, text)
	}
	program, err := os.ReadFile("testdata/client.mts")
	if err != nil {
		t.Fatal(err)
	}
	w := newWorld(t, backendtest.FileSettings(t), nil)
	for name, text := range map[string]string{"client.mts": string(program), "openapi.json": w.get("/api/v1/openapi.json").text} {
		if err := os.WriteFile(filepath.Join(folder, name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	tool := func(name string) string { return filepath.Join(folder, "node_modules", ".bin", name) }
	if text, err := run(tool("openapi-typescript"), "openapi.json", "-o", "api.d.ts"); err != nil {
		t.Fatalf("generate the client: %v\n%s", err, text)
	}
	if text, err := run(tool("tsc"), "--strict", "--skipLibCheck", "--target", "es2022", "--module", "nodenext", "--lib", "es2023,dom", "client.mts"); err != nil {
		t.Fatalf("the program does not fit the generated types: %v\n%s", err, text)
	}
	dead := w.Dead(holdfast.NewTask{Type: "mail"})
	if text, err := run("node", "client.mjs", w.url, dead.String()); err != nil {
		t.Fatalf("the program failed: %v\n%s", err, text)
	}
	entries, err := w.Store.AuditLog(w.Context(), store.AuditFilter{Action: store.ActionRetry})
	if err != nil || len(entries) != 1 || entries[0].Reason != "the target is back" {
		t.Errorf("audit log: %+v, %v", entries, err)
	}
	gates, err := w.Store.Gates(w.Context())
	if err != nil || len(gates) != 1 || gates[0].Queue != "mail" {
		t.Errorf("gates: %+v, %v", gates, err)
	}
	if list := w.get("/api/v1/tasks?q=type:mail+queue:mail"); list.at("tasks.2") == nil || list.at("tasks.0.tags.0") != "a:b" {
		t.Errorf("tasks: %s", list.text)
	}
}

// These are the generator of the Go client, and the module that its code needs.
const (
	goGenerator = "github.com/oapi-codegen/oapi-codegen/v2/cmd/oapi-codegen@v2.8.2"
	goRuntime   = "github.com/oapi-codegen/runtime@v1.9.0"
)

// TestAGeneratedGoClientWorks generates a client in a module of its own, and runs a program, which stores, lists, retries
// and reads a problem. The test needs a proxy of Go modules.
func TestAGeneratedGoClientWorks(t *testing.T) {
	slow.Skip(t) // it downloads and compiles the generator
	t.Parallel()
	folder := t.TempDir()
	run := runnerIn(t, folder)
	program, err := os.ReadFile("testdata/client/main.go")
	if err != nil {
		t.Fatal(err)
	}
	w := newWorld(t, backendtest.FileSettings(t), nil)
	for name, text := range map[string]string{
		"go.mod": "module client\n\ngo 1.26\n", "main.go": string(program), "openapi.json": w.get("/api/v1/openapi.json").text,
	} {
		if err := os.WriteFile(filepath.Join(folder, name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	if text, err := run("go", "get", goRuntime); err != nil {
		t.Skipf("SKIPPED: go cannot get %s: %v\n%s", goRuntime, err, text)
	}
	if text, err := run("go", "run", goGenerator, "-generate", "types,client", "-package", "main", "-o", "client.gen.go", "openapi.json"); err != nil {
		t.Fatalf("generate the client: %v\n%s", err, text)
	}
	dead := w.Dead(holdfast.NewTask{Type: "mail"})
	if text, err := run("go", "run", ".", w.url, dead.String()); err != nil {
		t.Fatalf("the program failed: %v\n%s", err, text)
	}
	if task, err := w.Store.Task(w.Context(), dead); err != nil || task.State != holdfast.Ready {
		t.Errorf("the task after the retry: %+v, %v", task, err)
	}
}
