package change_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/holdfastq/holdfast"
	"github.com/holdfastq/holdfast/internal/change"
	"github.com/holdfastq/holdfast/store"
	"github.com/holdfastq/holdfast/workshop/slow"
)

var due = time.Date(2030, 1, 31, 9, 0, 0, 123456000, time.UTC)

const maxPayload = holdfast.DefaultMaxPayload

func task(state holdfast.State) holdfast.Task {
	return holdfast.Task{
		ID: 42, Type: "mail", Queue: "default", State: state, Attempt: 3, MaxAttempts: 5, Failures: 2, Crashes: 1, NextRunAt: due,
		Payload: json.RawMessage(`{"order": {"id": 12345678901234567890}, "html": "<b>"}`),
	}
}

func TestEveryStateAllowsWhatTheTableSays(t *testing.T) {
	t.Parallel()
	for _, action := range []store.Action{store.ActionRetry, store.ActionCancel, store.ActionArchive, store.ActionRestore, store.ActionPurge} {
		allowed := make(map[holdfast.State]bool)
		for _, state := range change.Allowed(action) {
			allowed[state] = true
		}
		for _, state := range holdfast.States() {
			got, err := change.Of(action, task(state))
			if (err == nil) != allowed[state] || err != nil && !errors.Is(err, holdfast.ErrConflict) {
				t.Errorf("%s of a task that is %s: %v", action, state, err)
			}
			if err == nil && (got.Action != action || (got.Move == nil) != (action == store.ActionPurge)) {
				t.Errorf("%s of a task that is %s: %+v", action, state, got)
			}
		}
	}
	if _, err := change.Of("explode", task(holdfast.Dead)); !errors.Is(err, holdfast.ErrInvalid) {
		t.Errorf("an unknown action: %v", err)
	}
}

func TestPatches(t *testing.T) {
	t.Parallel()
	for patch, want := range map[string]string{
		`[{"op":"replace","path":"/payload/order/id","value":7}]`:                                           `{"order":{"id":7},"html":"<b>"}`,
		`[{"op":"remove","path":"/payload/order"}]`:                                                         `{"html":"<b>"}`,
		`[{"op":"test","path":"/queue","value":"default"},{"op":"replace","path":"/payload","value":null}]`: `null`,
		`[{"op":"add","path":"/payload/n","value":1.10}]`:                                                   `{"order":{"id":12345678901234567890},"html":"<b>","n":1.10}`,
	} {
		got, err := change.Patch(t.Context(), task(holdfast.Dead), []byte(patch), maxPayload)
		if err != nil {
			t.Errorf("%s: %v", patch, err)
			continue
		}
		if !sameMembers(t, string(got.Payload), want) {
			t.Errorf("%s: %s, want %s", patch, got.Payload, want)
		}
	}
	for patch, want := range map[string]string{
		`{}`:                                 "is not a JSON Patch",
		`[{"op":"explode","path":"/queue"}]`: "unsupported operation",
		`[{"op":"remove"}]`:                  "missing path",
		`[{"op":"replace","path":"/state","value":"done"}]`:     "does not fit task 42",
		`[{"op":"add","path":"/state","value":"done"}]`:         "unknown field",
		`[{"op":"test","path":"/queue","value":"mail"}]`:        "does not fit task 42",
		`[{"op":"remove","path":"/queue"}]`:                     "must keep the members",
		`[{"op":"replace","path":"/max_attempts","value":"x"}]`: "the edited document",
		`[{"op":"replace","path":"/run_at","value":"soon"}]`:    "the edited document",
	} {
		_, err := change.Patch(t.Context(), task(holdfast.Dead), []byte(patch), maxPayload)
		if !errors.Is(err, holdfast.ErrInvalid) || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v, want %q", patch, err, want)
		}
	}
}

// sameMembers reports whether two JSON texts have equal members. It compares numbers digit by digit.
func sameMembers(t *testing.T, a, b string) bool {
	t.Helper()
	normal := func(text string) string {
		decoder := json.NewDecoder(strings.NewReader(text))
		decoder.UseNumber()
		var value any
		if err := decoder.Decode(&value); err != nil {
			t.Fatalf("%s: %v", text, err)
		}
		encoded, err := json.Marshal(value)
		if err != nil {
			t.Fatal(err)
		}
		return string(encoded)
	}
	return normal(a) == normal(b)
}

// A patch of the queue must keep every character of the payload, because the idempotency key depends on them.
func TestAPatchLeavesOtherPayloadsAlone(t *testing.T) {
	t.Parallel()
	for _, payload := range []string{`{"url":"https://example.com/?a=1&b=<2>"}`, "{ \"text\" : \"\u2028 \\u0026 é\" }", `[1.10, 12345678901234567890]`, `null`} {
		task := task(holdfast.Dead)
		task.Payload = json.RawMessage(payload)
		to, err := change.Patch(t.Context(), task, []byte(`[{"op":"replace","path":"/queue","value":"mail"}]`), maxPayload)
		if err != nil {
			t.Errorf("%s: %v", payload, err)
			continue
		}
		if got, err := change.Edit(task, to, change.Rules{MaxPayload: maxPayload}); err != nil || got.Edit.Payload != nil {
			t.Errorf("%s: %v, the edit replaces the payload by %s", payload, err, got.Edit.Payload)
		}
	}
	task := task(holdfast.Dead)
	task.Payload = json.RawMessage(`{"n":1,"url":"https://example.com/?a=1&b=<2>"}`)
	to, err := change.Patch(t.Context(), task, []byte(`[{"op":"replace","path":"/payload/n","value":2}]`), maxPayload)
	if err != nil || !strings.Contains(string(to.Payload), "?a=1&b=<2>") {
		t.Errorf("%s, %v", to.Payload, err)
	}
}

// Each step may copy the whole document. Without a limit, a patch of a few hundred bytes could need any amount of
// memory.
func TestAPatchMayNotCopyMoreThanAPayload(t *testing.T) {
	t.Parallel()
	steps := strings.Repeat(`{"op":"copy","from":"/payload","path":"/payload/a"},{"op":"copy","from":"/payload","path":"/payload/b"},`, 20)
	_, err := change.Patch(t.Context(), task(holdfast.Dead), []byte("["+strings.TrimSuffix(steps, ",")+"]"), maxPayload)
	if !errors.Is(err, holdfast.ErrInvalid) {
		t.Errorf("got %v, want an ErrInvalid", err)
	}
}

// A step may read the whole document, so one limit covers the number of steps and the size and depth of the document.
// Without it, each of these patches takes between ten seconds and ten minutes.
func TestThePatchOfATaskIsBounded(t *testing.T) {
	t.Parallel()
	repeated := func(step string, n int) string {
		return "[" + strings.TrimSuffix(strings.Repeat(step+",", n), ",") + "]"
	}
	list := `{"a":[0` + strings.Repeat(",0", 400_000) + `]}`
	const depth = 9_000
	deep := strings.Repeat(`{"a":`, depth) + `"` + strings.Repeat("x", 500_000) + `"` + strings.Repeat("}", depth)
	for name, c := range map[string]struct{ payload, patch string }{
		"too many steps":            {`{}`, repeated(`{"op":"add","path":"/payload/a","value":1}`, change.MaxPatchSteps+1)},
		"inserts into a long list":  {list, repeated(`{"op":"add","path":"/payload/a/0","value":0}`, change.MaxPatchSteps)},
		"moves in a long list":      {list, repeated(`{"op":"move","from":"/payload/a/0","path":"/payload/a/9"}`, change.MaxPatchSteps)},
		"comparisons":               {list, repeated(`{"op":"test","path":"/payload/a/1","value":0}`, change.MaxPatchSteps)},
		"a deep path":               {deep, `[{"op":"remove","path":"/payload` + strings.Repeat("/a", depth) + `"}]`},
		"a comparison of deep JSON": {deep, `[{"op":"test","path":"/payload","value":` + strings.Replace(deep, "x", "y", 1) + `}]`},
		"a document that grows": {`{"a":[0]}`, "[" + strings.Repeat(`{"op":"copy","from":"/payload","path":"/payload/b"},{"op":"move","from":"/payload/b","path":"/payload/a/0"},`, 200) +
			`{"op":"test","path":"/payload/c"}]`},
	} {
		task := task(holdfast.Dead)
		task.Payload = json.RawMessage(c.payload)
		began := time.Now()
		_, err := change.Patch(t.Context(), task, []byte(c.patch), maxPayload)
		if !errors.Is(err, holdfast.ErrInvalid) {
			t.Errorf("%s: got %v, want an ErrInvalid", name, err)
		}
		if took := time.Since(began); took > slow.Times(10*time.Second) {
			t.Errorf("%s: the refusal took %s", name, took)
		}
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := change.Patch(ctx, task(holdfast.Dead), []byte(`[{"op":"remove","path":"/payload"}]`), maxPayload); !errors.Is(err, context.Canceled) {
		t.Errorf("after the end of the context: %v", err)
	}
}

// A patch with many steps still applies to a payload of usual size.
func TestAPatchOfManyStepsFitsAUsualPayload(t *testing.T) {
	t.Parallel()
	task := task(holdfast.Dead)
	task.Payload = json.RawMessage(`{"text":"` + strings.Repeat("x", 8<<10) + `"}`)
	var steps []string
	for i := range change.MaxPatchSteps {
		steps = append(steps, fmt.Sprintf(`{"op":"add","path":"/payload/n%d","value":%d}`, i, i))
	}
	to, err := change.Patch(t.Context(), task, []byte("["+strings.Join(steps, ",")+"]"), maxPayload)
	if err != nil || !strings.Contains(string(to.Payload), `"n999":999`) {
		t.Errorf("got %.80s, %v", to.Payload, err)
	}
}

func TestATaskThatJSONCannotRepresentIsRefused(t *testing.T) {
	t.Parallel()
	task := task(holdfast.Ready)
	task.NextRunAt = time.Date(11026, 1, 1, 0, 0, 0, 0, time.UTC)
	if _, err := change.Patch(t.Context(), task, []byte(`[{"op":"replace","path":"/queue","value":"mail"}]`), maxPayload); !errors.Is(err, holdfast.ErrInvalid) {
		t.Errorf("got %v, want an ErrInvalid", err)
	}
}

// FuzzPatch looks for patches that crash the process. Janitors apply the patches of operations.
func FuzzPatch(f *testing.F) {
	for _, patch := range []string{
		`[{"op":"test","path":""}]`,
		`[{"op":"test","path":"/payload/list","value":[null]}]`,
		`[{"op":"replace","path":"","value":null},{"op":"remove","path":"/queue"}]`,
		`[{"op":"add","path":"/payload/n","value":1.10}]`,
		`[null]`,
	} {
		f.Add(patch, `{"list":[1,null,{"a":null}],"text":"<&>"}`)
	}
	f.Fuzz(func(t *testing.T, patch, payload string) {
		task := task(holdfast.Dead)
		if task.Payload = json.RawMessage(payload); !json.Valid(task.Payload) {
			t.Skip()
		}
		to, err := change.Patch(t.Context(), task, []byte(patch), maxPayload)
		if err != nil && !errors.Is(err, holdfast.ErrInvalid) {
			t.Errorf("patch %s of payload %s: %v", patch, payload, err)
		}
		if err == nil && !json.Valid(to.Payload) {
			t.Errorf("patch %s of payload %s: the result %s is not JSON", patch, payload, to.Payload)
		}
	})
}

func TestEditsAreChecked(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		name  string
		state holdfast.State
		edit  func(*change.Document)
		want  string // "" means that the edit is allowed
	}{
		{"a payload", holdfast.Dead, func(d *change.Document) { d.Payload = json.RawMessage(`1`) }, ""},
		{"white space", holdfast.Dead, func(d *change.Document) {
			d.Payload = json.RawMessage(`{"order":{"id":12345678901234567890},"html":"<b>"}`)
		}, "changes nothing"},
		{"nothing", holdfast.Ready, func(*change.Document) {}, "changes nothing"},
		{"a queue", holdfast.Ready, func(d *change.Document) { d.Queue = "other" }, ""},
		{"a tag", holdfast.Dead, func(d *change.Document) { d.Tags = []string{"ada"} }, ""},
		{"a bad tag", holdfast.Dead, func(d *change.Document) { d.Tags = []string{"a b"} }, "tag"},
		{"a bad queue", holdfast.Ready, func(d *change.Document) { d.Queue = "No Queue" }, "must be at most"},
		{"no queue", holdfast.Ready, func(d *change.Document) { d.Queue = "" }, "the queue is empty"},
		{"bad JSON", holdfast.Ready, func(d *change.Document) { d.Payload = json.RawMessage(`{`) }, "not valid JSON"},
		{"a long payload", holdfast.Ready, func(d *change.Document) { d.Payload = json.RawMessage(`"` + strings.Repeat("x", 100) + `"`) }, "the limit is 100"},
		{"a negative number", holdfast.Ready, func(d *change.Document) { d.MaxAttempts = -1 }, "max attempts"},
		{"the setting of the type", holdfast.Ready, func(d *change.Document) { d.MaxAttempts = 0 }, ""},
		{"a time", holdfast.Ready, func(d *change.Document) { d.RunAt = due.Add(time.Hour) }, ""},
		{"a time before 1970", holdfast.Ready, func(d *change.Document) { d.RunAt = time.Time{} }, "in the years from 1970"},
		{"a time of a dead task", holdfast.Dead, func(d *change.Document) { d.RunAt = due.Add(time.Hour) }, "only a ready task has a time to run"},
		{"a running task", holdfast.Running, func(d *change.Document) { d.Queue = "other" }, "its state is running"},
		{"a task that is done", holdfast.Done, func(d *change.Document) { d.Queue = "other" }, "its state is done"},
	} {
		to := change.DocumentOf(task(c.state))
		c.edit(&to)
		got, err := change.Edit(task(c.state), to, change.Rules{MaxPayload: 100})
		switch {
		case c.want == "" && (err != nil || got.Edit == nil):
			t.Errorf("%s: %v", c.name, err)
		case c.want != "" && (err == nil || !strings.Contains(err.Error(), c.want)):
			t.Errorf("%s: %v, want %q", c.name, err, c.want)
		}
	}
}

// A new payload must fit the schema of its type. An unchanged payload need not, because the edit does not make it
// worse.
func TestANewPayloadMustFitItsType(t *testing.T) {
	t.Parallel()
	schema := json.RawMessage(`{"type":["object","null"],"properties":{"to":{"type":["string","null"]}}}`)
	rules := change.Rules{MaxPayload: 1000, Schemas: []store.TypeSchema{{Type: "mail", Schema: schema}}}
	dead := task(holdfast.Dead)
	dead.Payload = json.RawMessage(`{"to":1}`)
	edit := func(rules change.Rules, edit func(*change.Document)) (store.Change, error) {
		to := change.DocumentOf(dead)
		edit(&to)
		return change.Edit(dead, to, rules)
	}
	bad := func(d *change.Document) { d.Payload = json.RawMessage(`{"to":2}`) }
	_, err := edit(rules, bad)
	if !errors.Is(err, holdfast.ErrInvalid) || !strings.Contains(err.Error(), "invalid payload for type mail: /to: expected string or null, got number") ||
		holdfast.HintOf(err).Kind != holdfast.HintSkipValidation {
		t.Errorf("a payload that does not fit: %v", err)
	}
	if got, err := edit(rules, func(d *change.Document) { d.Payload = json.RawMessage(`{"to":"ada"}`) }); err != nil || got.Edit.SkippedValidation {
		t.Errorf("a payload that fits: %+v, %v", got.Edit, err)
	}
	if _, err := edit(rules, func(d *change.Document) { d.Queue = "other" }); err != nil {
		t.Errorf("another queue: %v", err)
	}
	skipping, other := rules, rules
	skipping.Validation, other.Schemas = change.SkipValidation, []store.TypeSchema{{Type: "other", Schema: schema}}
	if _, err := edit(other, bad); err != nil {
		t.Errorf("the schema of another type: %v", err)
	}
	got, err := edit(skipping, bad)
	if err != nil || !got.Edit.SkippedValidation {
		t.Fatalf("without validation: %+v, %v", got.Edit, err)
	}
	if e := entry(t, got); !strings.Contains(string(e.After), `"skipped_validation":true`) || strings.Contains(string(e.Before), "skipped") {
		t.Errorf("the audit entry has %s and %s", e.Before, e.After)
	}
	if got, err := edit(skipping, func(d *change.Document) { d.Queue = "other" }); err != nil || got.Edit.SkippedValidation {
		t.Errorf("another queue without validation: %+v, %v", got.Edit, err)
	}
	// An edit also calls the check function of the type, as producers do.
	errCheck := fmt.Errorf("%w: no address", holdfast.ErrInvalid)
	check := func(payload []byte) error {
		if string(payload) == `{"to":2}` {
			return errCheck
		}
		return nil
	}
	checked := change.Rules{MaxPayload: 1000, Check: map[string]func([]byte) error{"mail": check}}
	if _, err := edit(checked, bad); !errors.Is(err, errCheck) {
		t.Errorf("a payload that the check refuses: %v", err)
	}
	if _, err := edit(checked, func(d *change.Document) { d.Queue = "other" }); err != nil {
		t.Errorf("another queue of a checked type: %v", err)
	}
	checked.Validation = change.SkipValidation
	if got, err := edit(checked, bad); err != nil || !got.Edit.SkippedValidation {
		t.Errorf("without the check: %+v, %v", got.Edit, err)
	}
}

func entry(t *testing.T, c store.Change) store.AuditEntry {
	t.Helper()
	before, after := c.Versions()
	e := store.AuditEntry{ID: 1, Action: c.Action, Task: c.Task.ID}
	var err error
	if e.Before, err = before.Document(); err != nil {
		t.Fatal(err)
	}
	if after != nil {
		if e.After, err = after.Document(); err != nil {
			t.Fatal(err)
		}
	}
	return e
}

// An undo restores every earlier value, including each character of the payload.
func TestUndoReturnsTheValuesFromBefore(t *testing.T) {
	t.Parallel()
	before := task(holdfast.Ready)
	before.Tags, before.ImportedKey = []string{"ada"}, "imported"
	to := change.Document{Payload: json.RawMessage(`2`), Queue: "other", MaxAttempts: 0, RunAt: due.Add(time.Hour), Tags: []string{"ben"}}
	edit, err := change.Edit(before, to, change.Rules{MaxPayload: 1000})
	if err != nil {
		t.Fatal(err)
	}
	after := before
	after.Attempt, after.Payload, after.Queue, after.MaxAttempts, after.NextRunAt = 4, to.Payload, to.Queue, 0, to.RunAt
	after.ImportedKey = ""
	undo, err := change.Undo(after, entry(t, edit))
	if err != nil {
		t.Fatal(err)
	}
	if e := undo.Edit; string(e.Payload) != string(before.Payload) || e.Queue != before.Queue || e.MaxAttempts != before.MaxAttempts || !e.RunAt.Equal(before.NextRunAt) ||
		e.Tags == nil || !slices.Equal(*e.Tags, before.Tags) || e.Key != before.ImportedKey {
		t.Errorf("undo: %+v", e)
	}

	dead := task(holdfast.Dead)
	retry, err := change.Of(store.ActionRetry, dead)
	if err != nil {
		t.Fatal(err)
	}
	ready := dead
	ready.State, ready.Attempt, ready.Failures, ready.Crashes = holdfast.Ready, 4, 0, 0
	undo, err = change.Undo(ready, entry(t, retry))
	if err != nil {
		t.Fatal(err)
	}
	if m := undo.Move; m.To != holdfast.Dead || m.Failures != 2 || m.Crashes != 1 || m.MaxAttempts != 5 {
		t.Errorf("undo: %+v", m)
	}
	cancelled := dead
	cancelled.State = holdfast.Cancelled
	if retry, err = change.Of(store.ActionRetry, cancelled); err != nil {
		t.Fatal(err)
	}
	if undo, err = change.Undo(ready, entry(t, retry)); err != nil {
		t.Fatal(err)
	}
	if m := undo.Move; m.To != holdfast.Cancelled || m.Failures != 2 || m.Crashes != 1 {
		t.Errorf("undo of the retry of a cancelled task: %+v", m)
	}
	claimed := ready
	claimed.State = holdfast.Running
	if _, err := change.Undo(claimed, entry(t, retry)); !errors.Is(err, holdfast.ErrConflict) {
		t.Errorf("the undo of a claimed task: %v", err)
	}
	purge, err := change.Of(store.ActionPurge, dead)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := change.Undo(dead, entry(t, purge)); !errors.Is(err, holdfast.ErrConflict) {
		t.Errorf("the undo of a purge: %v", err)
	}
}
