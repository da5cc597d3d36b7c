package holdfast_test

import (
	"encoding/json"
	"errors"
	"slices"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"github.com/holdfastq/holdfast"
)

func TestPrioritiesAreParsed(t *testing.T) {
	for text, want := range map[string]holdfast.Priority{
		"low": holdfast.PriorityLow, "normal": holdfast.PriorityNormal, "high": holdfast.PriorityHigh, "critical": holdfast.PriorityCritical,
		"0": holdfast.PriorityLow, "2": holdfast.PriorityLow, "3": holdfast.PriorityNormal, "4": holdfast.PriorityNormal, "5": holdfast.PriorityNormal,
		"6": holdfast.PriorityHigh, "8": holdfast.PriorityHigh, "9": holdfast.PriorityCritical,
	} {
		if got, err := holdfast.ParsePriority(text); got != want || err != nil {
			t.Errorf("ParsePriority(%q) = %s, %v; want %s", text, got, err, want)
		}
		forms := []string{`"` + text + `"`}
		if len(text) == 1 {
			forms = append(forms, text)
		}
		for _, form := range forms {
			var got holdfast.Priority
			if err := json.Unmarshal([]byte(form), &got); got != want || err != nil {
				t.Errorf("the JSON %s is %s, %v; want %s", form, got, err, want)
			}
		}
	}
	for _, text := range []string{"", "10", "-1", "High", " low", "urgent", "4.0", "x"} {
		if p, err := holdfast.ParsePriority(text); !errors.Is(err, holdfast.ErrInvalid) || p != 0 {
			t.Errorf("ParsePriority(%q) = %s, %v; want an ErrInvalid", text, p, err)
		}
	}
	for _, form := range []string{`10`, `4.5`, `true`, `{}`, `"10"`, `[1]`} {
		p := holdfast.PriorityHigh
		if err := json.Unmarshal([]byte(form), &p); err == nil || p != holdfast.PriorityHigh {
			t.Errorf("the JSON %s is %s, %v; want an error", form, p, err)
		}
	}
	for _, p := range holdfast.Priorities() {
		text, err := json.Marshal(p)
		var again holdfast.Priority
		if err != nil || json.Unmarshal(text, &again) != nil || again != p {
			t.Errorf("%s is %s in JSON, and read as %s; %v", p, text, again, err)
		}
	}
	for _, p := range []holdfast.Priority{holdfast.PriorityLow - 1, holdfast.PriorityCritical + 1} {
		if text, err := json.Marshal(p); err == nil {
			t.Errorf("priority %d is %s in JSON", p, text)
		}
		if err := (holdfast.NewTask{Type: "x", Priority: p}).Validate(0); !errors.Is(err, holdfast.ErrInvalid) {
			t.Errorf("a task with priority %d: %v", p, err)
		}
	}
}

// The queue and the priority of each subqueue can be read from its name, and no two pairs have the same name.
func TestSubqueuesAreUnique(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		queue := rapid.StringMatching(`[a-z0-9][a-z0-9_-]{0,99}`).Draw(t, "queue")
		seen := make(map[string]bool)
		for _, p := range holdfast.Priorities() {
			name := holdfast.Subqueue(queue, p)
			if q, again := holdfast.SplitSubqueue(name); q != queue || again != p || seen[name] {
				t.Fatalf("%s with priority %s is %s, which is read as %s with priority %s", queue, p, name, q, again)
			}
			if isQueue := (holdfast.NewTask{Type: "x", Queue: name}).Validate(0) == nil && len(queue) <= holdfast.MaxNameLength; isQueue != (p == holdfast.PriorityNormal) {
				t.Fatalf("that %s is the name of a queue is %v", name, isQueue)
			}
			seen[name] = true
		}
		all := holdfast.Subqueues(queue)
		if len(all) != len(holdfast.Priorities()) || !slices.Equal(holdfast.QueuesOf(append(all, "other.high")), []string{queue, "other"}) {
			t.Fatalf("the subqueues of %s are %q, and their queues %q", queue, all, holdfast.QueuesOf(all))
		}
		if one := holdfast.Subqueues(queue, holdfast.PriorityHigh); !slices.Equal(one, []string{queue + ".high"}) {
			t.Fatalf("the subqueue for high is %q", one)
		}
	})
}

// The names of priorities are part of stored names, and must never change.
func TestNamesOfSubqueues(t *testing.T) {
	if got := strings.Join(holdfast.Subqueues("mail"), " "); got != "mail.low mail mail.high mail.critical" {
		t.Errorf("the subqueues are %s", got)
	}
}
