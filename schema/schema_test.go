package schema_test

import (
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/holdfastq/holdfast"
	"github.com/holdfastq/holdfast/schema"
)

// The numbers are the order: there must be neither a gap nor a number twice.
func TestVersionsCountFromOne(t *testing.T) {
	for i, version := range schema.Versions() {
		if version.Number != int64(i+1) || version.Name == "" {
			t.Errorf("version %d is %+v", i+1, version)
		}
	}
	if got, want := schema.Latest(), int64(len(schema.Versions())); got != want {
		t.Errorf("Latest is %d, want %d", got, want)
	}
}

func TestStateCheckListsTheStates(t *testing.T) {
	file, err := schema.FS.ReadFile("00001_tables.sql")
	if err != nil {
		t.Fatal(err)
	}
	list := regexp.MustCompile(`check \(state in \(([^)]*)\)\)`).FindSubmatch(file)
	if list == nil {
		t.Fatal("there is no check on tasks.state")
	}
	var got []holdfast.State
	for word := range strings.SplitSeq(string(list[1]), ",") {
		got = append(got, holdfast.State(strings.Trim(word, " '")))
	}
	if !slices.Equal(got, holdfast.States()) {
		t.Errorf("the check on tasks.state allows %v, the domain has %v", got, holdfast.States())
	}
}
