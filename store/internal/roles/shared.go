package roles

import "github.com/holdfastq/holdfast/store"

// Shared implements the roles that are the same for every adapter, whose Store embeds it. To add a role, add it here.
type Shared struct {
	tickets
	patrol
	inspector
	deaths
	notices
	audit
	verification
	tokens
	answers
	operations
	settings
}

// NewShared returns the roles over the statements of an adapter, which add the tasks that they block to ended. choose
// returns the name of the fastest statement for an operation, "list" or "count", with a filter that needs none of the
// variants _ids, _unique, _tag, _tag_dead, _group and _deaths.
func NewShared(t Transactions, choose func(operation string, f store.Filter) string, ended *Ended) Shared {
	return Shared{
		tickets{t, ended}, patrol{t}, inspector{t, choose}, deaths{t}, notices{t}, audit{t}, verification{t},
		tokens{t}, answers{t}, operations{t}, settings{t},
	}
}
