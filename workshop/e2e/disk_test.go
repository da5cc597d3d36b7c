//go:build linux

package e2e

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/holdfastq/holdfast"
)

// The disk of a server becomes full, and later has free space again. Enqueue returns an error, the server resumes
// without a restart, and all accepted tasks are delivered.
func TestFullDiskLosesNothing(t *testing.T) {
	t.Parallel()
	folder := t.TempDir()
	if err := syscall.Mount("tmpfs", folder, "tmpfs", 0, "size=8m"); err != nil {
		t.Skipf("NOT TESTED: a file system cannot be mounted here: %v", err)
	}
	t.Cleanup(func() { _ = syscall.Unmount(folder, syscall.MNT_DETACH) })
	w := newFileAt(t, filepath.Join(folder, "holdfast.db"))
	tg := newTarget(t, func(c call) int {
		select {
		case <-time.After(20 * time.Millisecond):
		case <-c.ctx.Done():
		}
		return 200
	})
	server := w.serve(t, nil, "--concurrency", "5")
	ballast := filepath.Join(folder, "ballast")
	if err := os.WriteFile(ballast, make([]byte, 2<<20), 0o600); err != nil {
		t.Fatal(err)
	}

	payload, err := json.Marshal(map[string]any{"url": tg.URL, "body": string(bytes.Repeat([]byte("x"), 20_000))})
	if err != nil {
		t.Fatal(err)
	}
	p := w.Producer(nil)
	defer p.Close()
	accepted := int64(0)
	for err == nil && accepted < 1000 {
		if _, err = p.Enqueue(t.Context(), holdfast.NewTask{Type: "http", Payload: payload}); err == nil {
			accepted++
		}
	}
	if !errors.Is(err, holdfast.ErrUnavailable) || !strings.Contains(err.Error(), "is full") || !strings.Contains(holdfast.HintOf(err).Arg, "free space") {
		t.Fatalf("after %d tasks: %v", accepted, err)
	}
	_, problems, code := w.run(t, "enqueue", "--type", "http", "--payload", string(payload))
	if code != 6 || !strings.Contains(problems, "is full") || !strings.Contains(problems, "free space") {
		t.Errorf("enqueue: exit code %d: %s", code, problems)
	}
	poll(t, func() string { return "the server does not log why it makes no progress" }, func(context.Context) bool { return server.logged("free space") })

	if err := os.Remove(ballast); err != nil {
		t.Fatal(err)
	}
	w.awaitCount(t, holdfast.Done, accepted)
	server.awaitReady()
	calls, _ := tg.snapshot()
	groups := byTask(calls)
	t.Logf("%d tasks were accepted, %d reached the target, with %d calls", accepted, len(groups), len(calls))
	if int64(len(groups)) != accepted {
		t.Error("a task was lost")
	}
}
