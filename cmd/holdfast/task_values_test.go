package main

import (
	"encoding/json"
	"strings"
	"testing"
	"time"

	"github.com/jedib0t/go-pretty/v6/text"

	"github.com/holdfastq/holdfast"
	"github.com/holdfastq/holdfast/internal/message"
	"github.com/holdfastq/holdfast/store"
	"github.com/holdfastq/holdfast/store/sqlite"
)

// "task get", "task explain" and "task output" show what attempts have stored, and nothing of it for other tasks.
func TestValuesOfATask(t *testing.T) {
	t.Parallel()
	environment := newFile(t)
	run := func(want int, args ...string) string {
		t.Helper()
		code, out, errs := onTerminal(t, environment, args...)
		if code != want {
			t.Fatalf("%v: exit code %d\n%s%s", args, code, out, errs)
		}
		return out + errs
	}
	run(exitOK, "enqueue", "--type", "mail")
	path := strings.TrimPrefix(environment[0], "DATABASE_URL=sqlite:")
	// attempt claims the task and calls do while it runs.
	attempt := func(do func(s *sqlite.Store, task holdfast.Task)) {
		t.Helper()
		s, err := sqlite.Open(t.Context(), sqlite.Options{Path: path})
		if err != nil {
			t.Fatal(err)
		}
		defer func() { _ = s.Close() }()
		worker, err := s.RegisterWorker(t.Context(), store.WorkerInfo{Name: "worker"}, time.Hour)
		if err != nil {
			t.Fatal(err)
		}
		claims, err := s.Claim(t.Context(), worker, store.AnyOf("mail"), []message.Ticket{{Task: 1, Attempt: 1}}, store.IntoExecutors)
		if err != nil || claims[0].Verdict != store.Claimed {
			t.Fatal(claims, err)
		}
		do(s, *claims[0].Task)
	}
	if got := run(exitOK, "task", "get", "1", "-o", "json"); strings.Contains(got, `"output"`) || strings.Contains(got, `"steps"`) ||
		strings.Contains(got, `"progress"`) || strings.Contains(got, `"checkpoint"`) {
		t.Errorf("without values:\n%s", got)
	}
	if got := run(exitOK, "task", "get", "1"); strings.Contains(got, "STEP") || strings.Contains(got, "checkpoint") {
		t.Errorf("without values:\n%s", got)
	}
	if got := run(exitNotFound, "task", "output", "1"); !strings.Contains(got, "task 1 has no output; its state is ready") {
		t.Error(got)
	}
	attempt(func(s *sqlite.Store, task holdfast.Task) {
		err := s.SaveData(t.Context(), store.Fence{Task: task.ID, Attempt: task.Attempt, Worker: task.Worker}, []store.Datum{
			{Name: store.ProgressData, Value: json.RawMessage(`{"percent":50,"note":"charged ` + strings.Repeat("the customer ", 10) + `\nstate            done"}`)},
			{Name: store.CheckpointData, Value: json.RawMessage(`{"line":12345678901234567890}`)},
			{Name: store.StepData("charge"), Value: json.RawMessage(`{"id":"ch_1"}`)},
			{Name: store.StepData("ship"), Value: json.RawMessage(`"` + strings.Repeat("x", 5000) + `"`)},
			{Name: "later", Value: json.RawMessage(`1`)},
		})
		if err != nil {
			t.Fatal(err)
		}
		if got := run(exitOK, "task", "explain", "1"); !strings.Contains(got, "ago it was 50% done") {
			t.Error(got)
		}
		move, err := holdfast.Settle(task, holdfast.Returned(nil), time.Now(), holdfast.DefaultPolicy())
		if err != nil {
			t.Fatal(err)
		}
		move.Effects = &holdfast.Effects{Output: json.RawMessage(`{"sum":7}`)}
		if accepted, err := s.Apply(t.Context(), []holdfast.Transition{move}); err != nil || !accepted[0] {
			t.Fatal(accepted, err)
		}
	})
	got := run(exitOK, "task", "get", "1")
	for _, want := range []string{
		"output           {\n", "  \"sum\": 7\n", "progress         50% charged the customer ", "checkpoint       by attempt 1, ", "\"line\": 12345678901234567890\n",
		"STEP    ATTEMPT  AT", "charge  1 ", `{"id":"ch_1"}`, `"xxxxx`, "x…\n",
	} {
		if !strings.Contains(got, want) {
			t.Errorf("%q is missing in\n%s", want, got)
		}
	}
	if strings.Count(got, "\nstate            done") != 1 || strings.Contains(got, "later") {
		t.Error(got)
	}
	for line := range strings.Lines(got) {
		if n := text.StringWidthWithoutEscSequences(strings.TrimSuffix(line, "\n")); n > 80 {
			t.Errorf("%d columns: %s", n, line)
		}
	}
	got = run(exitOK, "task", "get", "1", "-o", "json")
	for _, want := range []string{
		`"output":{"sum":7},"progress":{"percent":50,"note":"charged `, `,"attempt":1,"at":"20`, `"checkpoint":{"value":{"line":12345678901234567890},"attempt":1,"at":"20`,
		`"steps":[{"name":"charge","value":{"id":"ch_1"},"attempt":1,"at":"20`, strings.Repeat("x", 5000),
	} {
		if !strings.Contains(got, want) {
			t.Errorf("%q is missing in\n%s", want, got)
		}
	}
	if got := run(exitOK, "task", "output", "1"); got != `{"sum":7}`+"\n" {
		t.Error(got)
	}
	run(exitNotFound, "task", "output", "2")
}
