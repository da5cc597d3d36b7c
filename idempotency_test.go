package holdfast_test

import (
	"strings"
	"testing"
	"time"

	"github.com/holdfastq/holdfast"
)

// Receivers drop requests with a known key. So two tasks must never have the same key, even if their stores were
// restored.
func TestIdempotencyKeysAreNeverShared(t *testing.T) {
	t.Parallel()
	at := time.Date(2026, 3, 1, 12, 0, 0, 123456000, time.UTC)
	task := holdfast.Task{ID: 42, Attempt: 1, CreatedAt: at, Payload: []byte(`{"n":1}`)}
	change := func(f func(*holdfast.Task)) holdfast.Task {
		changed := task
		f(&changed)
		return changed
	}
	seen := map[string]string{}
	for name, key := range map[string]string{
		"the task":                           task.WithIncarnation("store-1").IdempotencyKey(),
		"the same id in another store":       task.WithIncarnation("store-2").IdempotencyKey(),
		"another id":                         change(func(t *holdfast.Task) { t.ID = 43 }).WithIncarnation("store-1").IdempotencyKey(),
		"the id again, later":                change(func(t *holdfast.Task) { t.CreatedAt = at.Add(time.Microsecond) }).WithIncarnation("store-1").IdempotencyKey(),
		"an edited payload":                  change(func(t *holdfast.Task) { t.Payload = []byte(`{"n":2}`) }).WithIncarnation("store-1").IdempotencyKey(),
		"the same text, divided differently": change(func(t *holdfast.Task) { t.ID = 2 }).WithIncarnation("store-14").IdempotencyKey(),
	} {
		if other, taken := seen[key]; taken {
			t.Errorf("%s and %s share the key %s", name, other, key)
		}
		seen[key] = name
		if !strings.HasPrefix(key, "task_") || len(key) > 64 || strings.Trim(key, "abcdefghijklmnopqrstuvwxyz0123456789_") != "" {
			t.Errorf("%s: the key %q does not have the documented form", name, key)
		}
	}
	if key := task.WithIncarnation("store-1").IdempotencyKey(); !strings.HasPrefix(key, "task_42_") {
		t.Errorf("the key %q does not begin with the id", key)
	}
}

// Receivers keep keys for days, so every later version must compute the same keys.
func TestIdempotencyKeysStayTheSame(t *testing.T) {
	t.Parallel()
	created := time.Date(2026, 3, 1, 12, 0, 0, 123456000, time.UTC)
	task := holdfast.Task{ID: 42, State: holdfast.Running, Attempt: 1, CreatedAt: created, Payload: []byte(`{"n":1}`)}
	const want = "task_42_q4ddkvalukpvwvlsdis6nt3hji"
	if got := task.WithIncarnation("0b5f4c1e-1d1f-4c7a-9b07-6f0a8f1f2b3c").IdempotencyKey(); got != want {
		t.Errorf("got %s, want %s", got, want)
	}
	later := task
	later.Attempt, later.Failures, later.Crashes, later.Worker, later.LastError = 7, 4, 2, 9, "boom"
	later.CreatedAt, later.NextRunAt, later.StartedAt = created.In(time.FixedZone("east", 3600)), created.Add(time.Hour), created.Add(2*time.Hour)
	if got := later.WithIncarnation("0b5f4c1e-1d1f-4c7a-9b07-6f0a8f1f2b3c").IdempotencyKey(); got != want {
		t.Errorf("a later attempt has the key %s, the first one %s", got, want)
	}
	later.ImportedKey = "kept"
	if got := later.WithIncarnation("another-store").IdempotencyKey(); got != "kept" {
		t.Errorf("an imported task with the key \"kept\" has %s", got)
	}
}
