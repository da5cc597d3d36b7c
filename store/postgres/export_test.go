package postgres

import (
	"context"

	"github.com/holdfastq/holdfast"
	"github.com/holdfastq/holdfast/store"
)

// RangeSize is how many ids one statement of a walk looks at.
const RangeSize = rangeSize

// Text returns a statement as it is sent.
func (s *Store) Text(name string) string { return s.text(name) }

// BeginImportOnce is BeginImport without another try.
func (s *Store) BeginImportOnce(ctx context.Context, i store.Import, last holdfast.TaskID, into store.Into) (store.Import, error) {
	return s.beginImport(ctx, i, int64(last), into, 1)
}
