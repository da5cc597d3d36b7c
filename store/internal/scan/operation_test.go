package scan

import (
	"slices"
	"testing"

	"github.com/holdfastq/holdfast"
)

// A build that does not know a condition of a filter must not take the rest for the whole. The stored form of a known
// condition must not change, because builds of before decide by it, too.
func TestFiltersWithUnknownConditionsAreForeign(t *testing.T) {
	t.Parallel()
	for filter, foreign := range map[string]bool{
		`{"states":["dead"]}`:                      false,
		`{"states":["dead"],"not_ids":["7","42"]}`: false,
		`{"states":["dead"],"not_types":["x"]}`:    true,
		`{"states":"dead"}`:                        true,
		`{`:                                        true,
	} {
		o := Operation{Filter: filter}.Value()
		if o.Foreign != foreign {
			t.Errorf("%s: foreign is %t", filter, o.Foreign)
		}
		if len(o.Filter.NotIDs) > 0 && !slices.Equal(o.Filter.NotIDs, []holdfast.TaskID{7, 42}) {
			t.Errorf("%s: the exceptions are %v", filter, o.Filter.NotIDs)
		}
	}
}
