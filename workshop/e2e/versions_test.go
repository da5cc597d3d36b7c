package e2e

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"github.com/holdfastq/holdfast"
	"github.com/holdfastq/holdfast/schema"
	"github.com/holdfastq/holdfast/workshop/sim/patch"
	"github.com/holdfastq/holdfast/workshop/slow"
)

// nextVersion builds the program of the next version once and returns its path. That program has one more migration and
// writes messages of the next version. A newer build may do both while this build is running.
var nextVersion = sync.OnceValues(func() (string, error) {
	path, work := filepath.Join(programs, "next"), filepath.Join(programs, "next-sources")
	root, err := filepath.Abs("../..")
	if err := errors.Join(err, os.MkdirAll(work, 0o755)); err != nil {
		return "", err
	}
	migration := "-- +goose Up\nalter table tasks add column note text;\n\n-- +goose Down\nalter table tasks drop column note;\n"
	return path, patch.Program(root, work, "./cmd/holdfast", path, []patch.Edit{
		{File: fmt.Sprintf("schema/postgres/%05d_note.sql", schema.Latest()+1), New: migration},
		{File: fmt.Sprintf("schema/sqlite/%05d_note.sql", schema.Latest()+1), New: migration},
		{File: "internal/message/encoding.go", Old: "const Version = 1\n", New: "const Version = 2\n"},
	})
})

// command runs a subcommand of the program at path and returns its standard output.
func (w *world) command(t *testing.T, path string, args ...string) string {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), path, args...)
	cmd.Env = w.environment()
	var stderr strings.Builder
	cmd.Stderr = &stderr
	out, err := cmd.Output()
	if err != nil {
		t.Fatalf("%s %v: %v\n%s", filepath.Base(path), args, err, stderr.String())
	}
	return string(out)
}

// builds returns the paths of the programs of this version and of the next one.
func builds(t *testing.T) (current, next string) {
	t.Helper()
	current, err := binary()
	if err != nil {
		t.Fatal(err)
	}
	next, err = nextVersion()
	if err != nil {
		t.Fatal(err)
	}
	return current, next
}

// During an upgrade, two versions run at the same time. The older version runs on the schema of the newer one, and
// leaves the messages of the newer version to it. The older version continues when the newer one has ended.
func TestTwoVersionsSideBySide(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	current, next := builds(t)
	target := newTarget(t, func(call) int { return http.StatusOK })
	tasks := slow.Pick(50, 200)
	file := filepath.Join(t.TempDir(), "tasks.jsonl")
	line, err := json.Marshal(map[string]any{"type": "http", "payload": httpTask(target).Payload})
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(file, []byte(strings.Repeat(string(line)+"\n", tasks)), 0o600); err != nil {
		t.Fatal(err)
	}

	older := w.spawnProgram(t, current, nil)
	older.awaitReady()
	w.command(t, next, "migrate", "up")
	w.command(t, next, "enqueue", "--jsonl", file)
	poll(t, func() string { return "the older version has not moved the messages of the newer version" }, func(ctx context.Context) bool {
		depths, err := w.Broker.Depths(ctx, []string{w.Topology.Unread()})
		return err == nil && depths[w.Topology.Unread()].Ready > 0
	})

	newer := w.spawnProgram(t, next, nil)
	newer.awaitReady()
	w.awaitCount(t, holdfast.Done, int64(tasks))
	for _, path := range []string{current, next} {
		w.command(t, path, "enqueue", "--jsonl", file)
	}
	w.awaitCount(t, holdfast.Done, int64(3*tasks))

	newer.Kill()
	older.Kill()
	older = w.spawnProgram(t, current, nil)
	older.awaitReady()
	w.command(t, current, "migrate", "up") // there is no migration to apply
	w.command(t, current, "enqueue", "--jsonl", file)
	w.awaitCount(t, holdfast.Done, int64(4*tasks))
	depths, err := w.Broker.Depths(t.Context(), []string{w.Topology.Quarantine()})
	if err != nil || depths[w.Topology.Quarantine()].Ready > 0 {
		t.Errorf("the quarantine has %v, %v", depths, err)
	}
}

// This version runs on a file that the next version has migrated.
func TestAFileOfTheNextVersion(t *testing.T) {
	slow.Skip(t)
	t.Parallel()
	w := newFile(t)
	current, next := builds(t)
	target := newTarget(t, func(call) int { return http.StatusOK })
	w.command(t, next, "migrate", "up")
	older := w.spawnProgram(t, current, nil)
	older.awaitReady()
	w.enqueue(t, 20, httpTask(target))
	w.awaitCount(t, holdfast.Done, 20)
	w.command(t, current, "migrate", "up")
}
