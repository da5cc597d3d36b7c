package postgres

import (
	"io/fs"
	"maps"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/holdfastq/holdfast"
	"github.com/holdfastq/holdfast/schema"
	"github.com/holdfastq/holdfast/store"
	"github.com/holdfastq/holdfast/store/internal/statement"
)

// The domain defines the states and events. SQL may quote only their names.
func TestQuotedWordsAreKnown(t *testing.T) {
	known := map[string]bool{"queue": true, "epoch": true, "incarnation": true, "advisory": true, "relation": true, "synchronous_commit": true, "off": true,
		// the keys of exported records
		"task": true, "attempt": true, "event": true, "worker_name": true, "started_at": true, "finished_at": true,
		"class": true, "error": true, "stack": true, "details": true,
		"held": true, "blocked": true, "later": true, "ended": true, // results of topic_release for a task
		"http":         true, // the type of tasks with targets
		"lock_timeout": true, "idle_in_transaction_session_timeout": true,
		"migrations": true, "all": true, "setback": true, "r": true, "usage": true, "select": true, "insert": true, "update": true, "delete": true}
	for _, fault := range store.Faults() {
		known[string(fault.Code)] = true
	}
	for event := range holdfast.Moves() {
		known[string(event)] = true
	}
	for _, state := range holdfast.States() {
		known[string(state)] = true
	}
	for _, state := range []store.TokenState{store.TokenActive, store.TokenExpired, store.TokenRevoked} {
		known[string(state)] = true
	}
	for _, other := range []string{string(store.GatePause), string(store.GateBreaker), string(store.ByWorker), holdfast.TypeHTTP, store.OutputData} {
		known[other] = true
	}
	for _, action := range store.Actions() {
		known[string(action)] = true
	}
	for _, state := range []store.PlanState{store.PlanPaused, store.PlanDone, store.PlanCancelled, store.PlanDeleted} {
		known[string(state)] = true
	}
	for _, state := range []store.PlanItemState{store.ItemOpen, store.ItemClosed, store.ItemDead} {
		known[string(state)] = true
	}
	known[string(store.OperationPlanned)] = true
	known[string(store.BatchKind)] = true
	for _, member := range []string{"name", "value", "at"} { // of the JSON that an export writes
		known[member] = true
	}
	for _, result := range []store.FirstResult{store.FirstSucceeded, store.FirstFailed, store.FirstOther} {
		known[string(result)] = true
	}
	for _, state := range []store.WorkerState{store.WorkerLive, store.WorkerDead, store.WorkerStopped} {
		known[string(state)] = true
	}
	known["g"] = true // is after each digit of a fingerprint
	word := regexp.MustCompile(`'\{?([a-z_]+)\}?'`)
	texts := statements("holdfast")
	migration, err := fs.ReadFile(schema.Postgres.FS(), "00001_tables.sql")
	if err != nil {
		t.Fatal(err)
	}
	tables, _, _ := strings.Cut(string(migration), "create function last_url") // the functions quote words for people
	texts["the migration"] = strings.NewReplacer("'null'", "", "('default')", "", "'settings_version'", "").Replace(statement.Compact(tables))
	for name, text := range texts {
		for _, match := range word.FindAllStringSubmatch(text, -1) {
			if !known[match[1]] {
				t.Errorf("%s quotes %q, which is neither a state nor an event", name, match[1])
			}
		}
	}
}

// A caller's transaction may have any search_path.
func TestStatementsNameTheSchema(t *testing.T) {
	table := regexp.MustCompile(`(?i)\b(from|join|into|update|delete from) (tasks|outbox|workers|attempts|cancellations|queues|meta|migrations)\b`)
	for _, name := range slices.Sorted(maps.Keys(statements("odd_name"))) {
		text := statements("odd_name")[name]
		if match := table.FindString(text); match != "" {
			t.Errorf("%s contains %q without a schema", name, match)
		}
		if strings.Contains(text, "holdfast.") || strings.Contains(text, "{{") || strings.Contains(text, "--") {
			t.Errorf("%s contains a placeholder or a comment: %s", name, text)
		}
	}
}

func TestMicros(t *testing.T) {
	for in, want := range map[int64]int64{0: 0, 1: 1, 999: 1, 1000: 1, 1001: 2, 1<<63 - 1: 9223372036854776} {
		if got := micros(time.Duration(in)); got != want {
			t.Errorf("%d ns are %d µs, want %d", in, got, want)
		}
	}
}
