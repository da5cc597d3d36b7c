package holdfast_test

import (
	"flag"
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"maps"
	"os"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/holdfastq/holdfast"
)

var update = flag.Bool("update", false, "rewrite the generated files")

const machineFile = "docs/state_machine.md"

// TestTheDocumentOfTheStatesIsCurrent compares docs/state_machine.md with the state table.
func TestTheDocumentOfTheStatesIsCurrent(t *testing.T) {
	t.Parallel()
	want := machineDocument(t)
	if *update {
		if err := os.WriteFile(machineFile, []byte(want), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	got, err := os.ReadFile(machineFile)
	if err != nil {
		t.Fatal(err)
	}
	if string(got) != want {
		t.Errorf("%s is out of date; run: go test . -run DocumentOfTheStates -update", machineFile)
	}
}

// constant is a constant of state.go and its comment.
type constant struct{ value, comment string }

// constants returns the constants of a type in state.go, in order.
func constants(t *testing.T, typeName string) []constant {
	t.Helper()
	file, err := parser.ParseFile(token.NewFileSet(), "state.go", nil, parser.ParseComments)
	if err != nil {
		t.Fatal(err)
	}
	var found []constant
	for _, decl := range file.Decls {
		group, ok := decl.(*ast.GenDecl)
		if !ok || group.Tok != token.CONST {
			continue
		}
		for _, spec := range group.Specs {
			c := spec.(*ast.ValueSpec)
			if name, ok := c.Type.(*ast.Ident); !ok || name.Name != typeName {
				continue
			}
			value, err := strconv.Unquote(c.Values[0].(*ast.BasicLit).Value)
			if err != nil {
				t.Fatal(err)
			}
			found = append(found, constant{value, strings.TrimSpace(c.Comment.Text())})
		}
	}
	return found
}

func machineDocument(t *testing.T) string {
	t.Helper()
	var out strings.Builder
	states, events, moves := constants(t, "State"), constants(t, "Event"), holdfast.Moves()
	fmt.Fprint(&out, `# States of a task

<!-- Generated from state.go; run "go test . -run DocumentOfTheStates -update" after a change there. -->

Every task is in one of these states. A task in a final state stays in it unless an operator changes it.

| state | final | meaning |
|---|---|---|
`)
	for _, s := range states {
		final := ""
		if holdfast.State(s.value).Final() {
			final = "yes"
		}
		fmt.Fprintf(&out, "| `%s` | %s | %s |\n", s.value, final, s.comment)
	}
	fmt.Fprint(&out, `
Scheduled, retrying and queued are not states but views of `+"`ready`"+`: the task waits for its time, for another attempt, or for a free
worker.

## Moves

An event moves a task only from the states listed here. Every move is a compare-and-set on state, attempt and owner. If two moves
compete, the store applies one and refuses the other. `+"`Settle`"+` chooses the event for every result, crash and request of an operator.

| event | from | to | when |
|---|---|---|---|
`)
	for _, e := range events {
		move := moves[holdfast.Event(e.value)]
		from := make([]string, len(move.From))
		for i, s := range move.From {
			from[i] = "`" + string(s) + "`"
		}
		fmt.Fprintf(&out, "| `%s` | %s | `%s` | %s |\n", e.value, strings.Join(from, ", "), move.To, e.comment)
	}
	picture(&out, states, events)
	return out.String()
}

// picture writes the state table as a diagram.
func picture(out *strings.Builder, states, events []constant) {
	moves := holdfast.Moves()
	fmt.Fprint(out, "\n## Diagram\n\n```mermaid\nstateDiagram-v2\n    [*] --> ready: enqueue\n")
	type edge struct{ from, to string }
	labels := make(map[edge][]string)
	var edges []edge
	for _, e := range events {
		move := moves[holdfast.Event(e.value)]
		for _, from := range move.From {
			at := edge{string(from), string(move.To)}
			if labels[at] == nil {
				edges = append(edges, at)
			}
			labels[at] = append(labels[at], e.value)
		}
	}
	for _, at := range edges {
		fmt.Fprintf(out, "    %s --> %s: %s\n", at.from, at.to, strings.Join(labels[at], ", "))
	}
	for _, s := range states {
		if holdfast.State(s.value).Final() && s.value != string(holdfast.Dead) { // dead tasks are never pruned
			fmt.Fprintf(out, "    %s --> [*]: pruned\n", s.value)
		}
	}
	out.WriteString("```\n")
}

func TestTheTableIsComplete(t *testing.T) {
	t.Parallel()
	moves := holdfast.Moves()
	var listed []holdfast.State
	for _, s := range constants(t, "State") {
		listed = append(listed, holdfast.State(s.value))
		if s.comment == "" {
			t.Errorf("the state %s has no comment", s.value)
		}
	}
	if !slices.Equal(listed, holdfast.States()) {
		t.Errorf("States returns %v, state.go has %v", holdfast.States(), listed)
	}
	reached := map[holdfast.State]bool{holdfast.Ready: true}
	left := make(map[holdfast.State]bool)
	events := constants(t, "Event")
	if len(events) != len(moves) {
		t.Errorf("%d events, but %d rows in the table", len(events), len(moves))
	}
	for _, e := range events {
		move, ok := moves[holdfast.Event(e.value)]
		if !ok || e.comment == "" || len(move.From) == 0 || !move.To.Valid() {
			t.Errorf("the event %s has the row %+v and the comment %q", e.value, move, e.comment)
		}
		reached[move.To] = true
		for _, from := range move.From {
			left[from] = true
			if !from.Valid() || from == move.To {
				t.Errorf("%s leads from %q to %q", e.value, from, move.To)
			}
		}
	}
	if len(reached) != len(listed) {
		t.Errorf("only these states can be reached: %v", slices.Collect(maps.Keys(reached)))
	}
	for _, s := range listed {
		if !left[s] && s != holdfast.Done {
			t.Errorf("no event leaves the state %s", s)
		}
		if s.Final() {
			if holdfast.Allowed(holdfast.EventClaim, s) || holdfast.Allowed(holdfast.EventCrash, s) {
				t.Errorf("the state %s is final, but a worker or a crash may change it", s)
			}
		}
	}
}

func TestAllowedIsTheTable(t *testing.T) {
	t.Parallel()
	for event, move := range holdfast.Moves() {
		for _, s := range append(holdfast.States(), "", "scheduled") {
			if got, want := holdfast.Allowed(event, s), slices.Contains(move.From, s); got != want {
				t.Errorf("%s from %q: got %v", event, s, got)
			}
		}
	}
	if holdfast.Allowed("", holdfast.Ready) || holdfast.Allowed("explode", holdfast.Running) {
		t.Error("an unknown event is allowed")
	}
}

func TestMovesIsACopy(t *testing.T) {
	t.Parallel()
	table := holdfast.Moves()
	table[holdfast.EventClaim].From[0] = holdfast.Done
	delete(table, holdfast.EventRetry)
	if !holdfast.Allowed(holdfast.EventClaim, holdfast.Ready) || !holdfast.Allowed(holdfast.EventRetry, holdfast.Running) {
		t.Error("a caller can change the state table")
	}
}

func TestUnknownStates(t *testing.T) {
	t.Parallel()
	for _, s := range []holdfast.State{"", "Ready", "queued"} {
		if s.Valid() || s.Final() {
			t.Errorf("%q is taken for a state", s)
		}
	}
}
