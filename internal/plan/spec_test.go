package plan_test

import (
	"bytes"
	"encoding/json"
	"testing"

	"github.com/holdfastq/holdfast/internal/plan"
)

// A payload comes out of a document as it went in, also if the document is a part of another one.
func TestPayloadsOfPlansKeepEachByte(t *testing.T) {
	t.Parallel()
	for _, payload := range []string{`{ "sp" :  [1,  2.0] }`, "[1,\n\t2]", `{"a":1}`, `"<&>"`, `"< &>" `, `1e2`, `null`, ""} {
		before := plan.Schedule{Every: 1, Task: plan.Task{Type: "a", Payload: json.RawMessage(payload), Tags: []string{"x"}}}
		var text bytes.Buffer
		encoder := json.NewEncoder(&text)
		encoder.SetEscapeHTML(false) // as in documents of plans
		if err := encoder.Encode(struct{ Outer any }{before}); err != nil {
			t.Fatal(err)
		}
		var after struct{ Outer plan.Schedule }
		if err := json.Unmarshal(text.Bytes(), &after); err != nil || string(after.Outer.Task.Payload) != payload || after.Outer.Task.Tags[0] != "x" {
			t.Errorf("%q comes back as %q, %v: %s", payload, after.Outer.Task.Payload, err, text.String())
		}
	}
	var task plan.Task
	if err := json.Unmarshal([]byte(`{"type":"a","payload":{"a":1}}`), &task); err != nil || string(task.Payload) != `{"a":1}` {
		t.Errorf("%+v, %v", task, err)
	}
	if err := json.Unmarshal([]byte(`{"type":"a","unknown":1}`), &task); err == nil {
		t.Error("an unknown member is accepted")
	}
}
