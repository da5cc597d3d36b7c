package surface

import (
	"errors"
	"strings"
	"testing"

	"github.com/holdfastq/holdfast"
	"github.com/holdfastq/holdfast/app"
	"github.com/holdfastq/holdfast/internal/plan"
)

func TestMissingResults(t *testing.T) {
	t.Parallel()
	type counts = plan.Counts
	for name, c := range map[string]struct {
		subtasks counts
		stage    int
		after    []bool
		found    int64
		missing  string // the beginning of the error
	}{
		"empty":                     {counts{}, 0, []bool{false}, 0, ""},
		"all":                       {counts{Total: 3}, 0, []bool{false}, 3, ""},
		"more since the first read": {counts{Total: 3}, 0, []bool{false}, 5, ""},
		"deleted by a person":       {counts{Total: 3, Gone: 1}, 0, []bool{false}, 2, ""},
		"some missing":              {counts{Total: 3}, 1, []bool{false, true}, 2, "1 of 3 subtasks of batch 7 were deleted; "},
		"all missing":               {counts{Total: 3}, 1, []bool{false, true}, 0, "3 of 3 subtasks of batch 7 were deleted; "},
		"other stages count":        {counts{Total: 5}, 1, []bool{false, false}, 2, ""},
		"later stages do not yet":   {counts{Total: 3}, 0, []bool{false, false}, 2, "1 of 3 "},
		"nothing of two stages":     {counts{Total: 5}, 1, []bool{false, false}, 0, "5 of 5 "},
	} {
		b := app.Batch{ID: 7}
		b.Progress = plan.BatchProgress{Stage: c.stage, Subtasks: c.subtasks}
		for _, after := range c.after {
			b.Spec.Stages = append(b.Spec.Stages, plan.Stage{After: after})
		}
		err := MissingResults(b, c.found)
		if c.missing == "" && err != nil || c.missing != "" && (!errors.Is(err, holdfast.ErrNotFound) || !strings.Contains(err.Error(), ": "+c.missing)) {
			t.Errorf("%s: %v", name, err)
		}
	}
}

func TestResultCursor(t *testing.T) {
	t.Parallel()
	place := plan.ResultCursor{Chunk: 3, Task: 77}
	if got, err := parseResultCursor(resultCursor(place)); got != place || err != nil {
		t.Errorf("%+v, %v", got, err)
	}
	for _, bad := range []string{"x", "3", "3-", "-1-7", "3-x", "3-0", "--"} {
		if _, err := parseResultCursor(bad); !errors.Is(err, holdfast.ErrInvalid) {
			t.Errorf("%q: %v", bad, err)
		}
	}
}
