package schema_test

import (
	"io/fs"
	"maps"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/holdfastq/holdfast"
	"github.com/holdfastq/holdfast/schema"
)

// Migrations run in the order of their numbers, which have no gaps and no duplicates. A version has the same number and
// name in every dialect.
func TestVersionsCountFromOne(t *testing.T) {
	t.Parallel()
	for _, dialect := range schema.Dialects() {
		for i, version := range dialect.Versions() {
			if version.Number != int64(i+1) || version.Name == "" {
				t.Errorf("%s: version %d is %+v", dialect, i+1, version)
			}
		}
		if got, want := dialect.Latest(), int64(len(dialect.Versions())); got != want {
			t.Errorf("%s: Latest is %d, want %d", dialect, got, want)
		}
		if got, want := dialect.Versions(), schema.Postgres.Versions(); !slices.Equal(got, want) {
			t.Errorf("%s has the versions %v, PostgreSQL has %v", dialect, got, want)
		}
	}
}

func TestStateCheckListsTheStates(t *testing.T) {
	t.Parallel()
	for _, dialect := range schema.Dialects() {
		list := regexp.MustCompile(`check \(state in \(([^)]*)\)\)`).FindStringSubmatch(file(t, dialect))
		if list == nil {
			t.Fatalf("%s: there is no check on tasks.state", dialect)
		}
		var got []holdfast.State
		for word := range strings.SplitSeq(list[1], ",") {
			got = append(got, holdfast.State(strings.Trim(word, " '")))
		}
		if !slices.Equal(got, holdfast.States()) {
			t.Errorf("%s: the check on tasks.state allows %v, the domain has %v", dialect, got, holdfast.States())
		}
	}
}

// Both databases have the same tables and columns, so that people need to learn them only once.
func TestDialectsHaveTheSameColumns(t *testing.T) {
	t.Parallel()
	want, got := tables(t, schema.Postgres), tables(t, schema.SQLite)
	// PostgreSQL stores long values outside the row itself, and needs no extra table.
	if !slices.Equal(got["payloads"], []string{"payload", "task_id"}) {
		t.Errorf("SQLite's table payloads has the columns %v", got["payloads"])
	}
	delete(got, "payloads")
	// One process changes a file at a time, so it needs no table that lets several work side by side. It finds ticketed
	// tasks and the tasks of a key by an index.
	for _, table := range []string{"ticket_scan", "keys", "count_deltas", "gate_epoch", "bucket_arrivals"} {
		delete(want, table)
	}
	for table, unneeded := range map[string][]string{
		"workers":     {"boot_id", "gate_epoch", "pid_namespace", "present", "process_started", "tasks"},
		"topic_state": {"one_row", "sampled", "sampled_at", "stored"},
	} {
		want[table] = slices.DeleteFunc(want[table], func(column string) bool { return slices.Contains(unneeded, column) })
	}
	if !slices.Equal(slices.Sorted(maps.Keys(got)), slices.Sorted(maps.Keys(want))) {
		t.Errorf("SQLite has the tables %v, PostgreSQL has %v", slices.Sorted(maps.Keys(got)), slices.Sorted(maps.Keys(want)))
	}
	for table, columns := range want {
		if !slices.Equal(got[table], columns) {
			t.Errorf("%s has the columns %v in SQLite, %v in PostgreSQL", table, got[table], columns)
		}
	}
}

// tables lists the columns of each table, sorted.
func tables(t *testing.T, dialect schema.Dialect) map[string][]string {
	t.Helper()
	found := map[string][]string{}
	column := regexp.MustCompile(`(?m)^  ([a-z_]+) +(bigint|integer|smallint|real|double|text|json|timestamptz|boolean)`)
	for _, table := range regexp.MustCompile(`(?ms)^create table (\w+) \(\n(.*?)^\)`).FindAllStringSubmatch(file(t, dialect), -1) {
		for _, match := range column.FindAllStringSubmatch(table[2], -1) {
			found[table[1]] = append(found[table[1]], match[1])
		}
		slices.Sort(found[table[1]])
	}
	if len(found) < 30 || len(found["tasks"]) < 20 {
		t.Fatalf("%s: only these tables and columns were found: %v", dialect, found)
	}
	return found
}

func file(t *testing.T, dialect schema.Dialect) string {
	t.Helper()
	text, err := fs.ReadFile(dialect.FS(), "00001_tables.sql")
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}
