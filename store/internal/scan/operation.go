package scan

import (
	"encoding/json"
	"strings"

	"github.com/holdfastq/holdfast/store"
)

// Operation is an operation, as {{operation}} in sql/parts.sql of each adapter selects it.
type Operation struct {
	store.Operation
	Filter      string // JSON
	Unvalidated bool
	MaxTasks    int64
}

// Value returns the operation.
func (r Operation) Value() store.Operation {
	o := r.Operation
	o.SkipValidation, o.Limit = r.Unvalidated, r.MaxTasks
	// A build that does not know a condition of the filter would select too many tasks.
	decoder := json.NewDecoder(strings.NewReader(r.Filter))
	decoder.DisallowUnknownFields()
	o.Foreign = decoder.Decode(&o.Filter) != nil
	return o
}
