package e2e

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/holdfastq/holdfast"
	"github.com/holdfastq/holdfast/workshop/slow"
)

// A worker whose limit of open files is too low for its concurrency logs a warning at the start. When it reaches the
// limit, it reports that it is not ready, charges no task a failure, takes fewer tasks and finishes all of them.
func TestTooFewFileDescriptorsChargeNoTask(t *testing.T) {
	slow.Skip(t)
	t.Parallel()
	const tasks, concurrency, descriptors = 100, 50, 48
	w := newFile(t)
	path, err := binary()
	if err != nil {
		t.Fatal(err)
	}
	limited := filepath.Join(t.TempDir(), "limited")
	shell := fmt.Sprintf("#!/bin/sh\nulimit -n %d || exit 1\nexec '%s' \"$@\"\n", descriptors, path)
	if err := os.WriteFile(limited, []byte(shell), 0o700); err != nil {
		t.Fatal(err)
	}
	// The target answers no request until the worker has reached its limit.
	reached := make(chan struct{})
	tg := newTarget(t, func(c call) int {
		select {
		case <-reached:
		case <-c.ctx.Done():
		}
		return 200
	})
	p := w.spawnProgram(t, limited, nil, "--concurrency", fmt.Sprint(concurrency))
	p.awaitReady()
	if !p.Logged("the limit of open files is low for the concurrency") {
		t.Error("the worker did not warn at the start")
	}
	ids := w.enqueue(t, tasks, httpTask(tg))
	poll(t, func() string { return "the worker did not reach its limit" }, func(context.Context) bool {
		return p.Logged("worker fault: tasks are deferred")
	})

	close(reached)
	awaitReadiness := func(want string) {
		t.Helper()
		last := ""
		poll(t, func() string { return "the readiness endpoint returns " + last }, func(ctx context.Context) bool {
			last = readiness(ctx, p.ready)
			return strings.Contains(last, want)
		})
	}
	awaitReadiness("at fault itself")
	w.awaitCount(t, holdfast.Done, tasks)
	for _, id := range ids {
		if task := w.task(t, id); task.Failures+task.Crashes+task.Deferrals > 0 {
			t.Errorf("task %s has %d failures, %d crashes and %d deferrals: %s", id, task.Failures, task.Crashes, task.Deferrals, task.LastError)
		}
	}
	awaitReadiness(`"ok"`)
}

// readiness returns the response of the readiness endpoint, or the text of the error.
func readiness(ctx context.Context, url string) string {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
	if err != nil {
		return err.Error()
	}
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		return err.Error()
	}
	defer resp.Body.Close()
	body, _ := io.ReadAll(resp.Body)
	return string(body)
}
