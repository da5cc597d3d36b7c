package app

import (
	"fmt"

	"github.com/holdfastq/holdfast"
	"github.com/holdfastq/holdfast/store"
)

// errUnread means that this version cannot read a schedule, a source, a shard job or a batch.
var errUnread = fmt.Errorf("%w: this version cannot read it; use the version that has stored it, or delete it", holdfast.ErrUnavailable)

// listed returns a plan for a list. If this version cannot read the plan, the list shows the reason as a failure, so that
// one plan does not hide the others.
func listed(p store.Plan, err error) store.Plan {
	if err != nil {
		p.Failures, p.Failure = max(1, p.Failures), err.Error()
	}
	return p
}

// deletable reports whether an action may go on although this version cannot read the plan. People can delete whatever is
// stored.
func deletable(p store.Plan, action store.Action) bool {
	return p.ID != 0 && action == store.ActionDelete
}
